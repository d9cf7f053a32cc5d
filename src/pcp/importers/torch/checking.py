"""An imported module beside PyTorch's own: results, changed buffers and gradients on random inputs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pcp.importers.checking import (
    CannotCheck,
    by_argument,
    by_name,
    compare,
    cotangents_of,
    differentiable_arguments,
    random_like,
    values_and_gradients,
)
from pcp.importers.torch.arrays import CONSTANTS, Arrays, array_from_torch, plain_containers
from pcp.importers.torch.exporting import torch_package
from pcp.ir import Program
from pcp.ir.tree import flatten, map_tree
from pcp.tracing import ArgumentSpec


def check_beside_torch(
    module: Any,
    program: Program,
    held: Sequence[Arrays],
    inputs: Sequence[Any],
    keywords: Mapping[str, Any],
    output: Callable[[Any], Any] | None,
) -> None:
    """Compare a program with the module that it was imported from.

    Arguments:
        held: its weights and, if it has some, its buffers.
        inputs, keywords: examples, as `from_torch` takes them.
        output: from what the module returns to what the program does.

    Raises:
        CannotCheck: the module draws random numbers.
        ImportDiffers: a result, a changed buffer or a gradient differs.
    """
    if any("random_key" in arrays for arrays in held):
        raise CannotCheck(
            "check=True compares numbers, and this module draws random ones, which are not PyTorch's; call module.eval() to "
            "leave dropout out, or import it without check"
        )
    torch = torch_package()
    examples = [_filled(value, 100 * i) for i, value in enumerate(inputs)]
    named = {key: _filled(value, 100 * i + 50) for i, (key, value) in enumerate(keywords.items())}
    all_examples = [x for x in (*examples, *named.values()) if not isinstance(x, CONSTANTS)]
    arguments: list[Any] = [{key: np.array(array) for key, array in arrays.items()} for arrays in held]
    arguments += [_arrays(plain_containers(x, lambda leaf: leaf)) for x in all_examples]
    wrt = [i for i in differentiable_arguments(program) if i == 0 or i >= len(held)]

    # On copies: a module may write into its buffers.
    weights = {name: module.get_parameter(name).detach().clone().requires_grad_() for name in held[0]}
    state = [*module.named_parameters(), *module.named_buffers()]
    own = {name: tensor.detach().clone() for name, tensor in state if name not in weights} | weights
    moving = by_argument(program, wrt, [all_examples[i - len(held)] if i else weights for i in wrt])
    for leaf in moving.values():
        leaf.requires_grad_()
    returned = torch.func.functional_call(module, own, tuple(examples), named)
    theirs = plain_containers(returned if output is None else output(returned), lambda leaf: leaf)
    tensors, _ = flatten(theirs)

    changed = len(program.results) - len(tensors)
    cotangents = cotangents_of(program, changed)
    results, gradients = values_and_gradients(program, arguments, wrt, cotangents)
    new, mine = results if changed else ({}, results)
    compare(module, by_name(mine, "result"), by_name(_arrays(theirs), "result"))
    compare(module, new, {name: array_from_torch(own[name]) for name in new})
    seeds = [_tensor(array) for array in cotangents[len(cotangents) - sum(map(_moves, tensors)) :]]
    if gradients:
        expected = _gradients(torch, list(filter(_moves, tensors)), seeds, moving)
        compare(module, by_argument(program, wrt, gradients), expected)


def _gradients(torch: Any, outputs: Sequence[Any], seeds: Sequence[Any], moving: Mapping[str, Any]) -> Arrays:
    """PyTorch's own gradients by name; zeros where nothing depends on a tensor."""
    pairs = [(y, seed) for y, seed in zip(outputs, seeds, strict=True) if y.requires_grad]
    gradients: Sequence[Any] = [None] * len(moving)
    if pairs:
        ends, starts = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(ends, list(moving.values()), starts, allow_unused=True)
    return {
        name: array_from_torch(torch.zeros_like(x) if gradient is None else gradient)
        for (name, x), gradient in zip(moving.items(), gradients, strict=True)
    }


def _moves(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _arrays(value: Any) -> Any:
    return map_tree(lambda leaf: array_from_torch(leaf) if hasattr(leaf, "detach") else leaf, value)


def _tensor(array: np.ndarray[Any, Any]) -> Any:
    torch = torch_package()
    if str(array.dtype) == "bfloat16":  # PyTorch takes no array of these
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(np.array(array))


def _filled(value: Any, place: int) -> Any:
    """An example of an argument with random numbers in the place of specs; tensors and arrays stay what they are."""
    torch = torch_package()
    if isinstance(value, ArgumentSpec):
        return _tensor(random_like(value.spec, place))
    if isinstance(value, np.ndarray | np.generic):
        return _tensor(np.asarray(value))
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _filled(entry, place + i + 1) for i, (key, entry) in enumerate(value.items())}
    if type(value) in (list, tuple):
        return type(value)(_filled(entry, place + i + 1) for i, entry in enumerate(value))
    return value
