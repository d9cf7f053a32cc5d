"""A case's gradients by PCP beside those of PyTorch: with random cotangents, in float64."""

from typing import Any

import numpy as np
import torch

import pcp
from pcp.autodiff import value_and_vjp
from tests.corpus.case import Case
from tests.corpus.comparison import Mismatch, distance, drawn_like
from tests.execution import run


def check_torch(case: Case) -> float:
    """Compare a case with PyTorch: `case.function` makes a module, whose parameters are moved at random, or a function.

    Returns:
        The greatest relative distance that was found.

    Raises:
        Mismatch: it is greater than the case's tolerance.
        PCPError: PCP refuses.
    """
    rng = np.random.default_rng(sum(case.name.encode()))
    torch.manual_seed(0)
    module = case.function()
    if isinstance(module, torch.nn.Module):
        module = _moved(module.double().eval(), rng)
    arguments = case.arguments(rng)
    inputs = [_tensor(argument) for argument in arguments]
    imported = pcp.from_torch(module, *(x.detach() for x in inputs))
    weights = {name: module.get_parameter(name) for name in sorted(imported.weights)}
    leaves = [*weights.values(), *(x for x in inputs if x.is_floating_point())]
    outputs = _listed(module(*inputs))
    cotangents = [
        torch.from_numpy(drawn_like(leaf.detach().numpy(), rng)).requires_grad_() for leaf in outputs
    ]
    gradients = _pulled(outputs, leaves, cotangents)

    held = [imported.buffers] if imported.buffers else []
    given = [imported.weights, *held, *arguments]
    first = len(given) - len(arguments)
    wrt = [i + first for i, x in enumerate(inputs) if x.is_floating_point()]
    wrt = [0, *wrt] if weights else wrt
    seeds = [_array(c) for c in cotangents]
    found = run(value_and_vjp(imported.program, wrt), *given, *seeds)
    worst = max(distance(found[0], _arrays(outputs)), distance(found[1], _arrays(gradients)))
    if not any(bool(torch.any(gradient != 0)) for gradient in gradients):
        raise ValueError(f"{case.name}: every gradient is zero, so any rule would pass")
    if case.order == 2:
        directions = [drawn_like(_array(leaf), rng) for leaf in leaves]
        twice = pcp.vjp(pcp.vjp(imported.program, wrt), [*wrt, *range(len(given), len(given) + len(seeds))])
        expected = _pulled(gradients, [*leaves, *cotangents], [torch.from_numpy(d) for d in directions])
        worst = max(worst, distance(run(twice, *given, *seeds, *directions), _arrays(expected)))
    if not worst <= case.tolerance:
        raise Mismatch(f"{case.name}: {worst:.2e} from PyTorch; expected at most {case.tolerance:.0e}")
    return worst


def _moved(module: torch.nn.Module, rng: np.random.Generator) -> torch.nn.Module:
    """The module with no parameter and no statistic left at zero or one."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.from_numpy(rng.normal(size=tuple(parameter.shape)))
        for name, buffer in module.named_buffers():
            if "running" in name:
                buffer += torch.from_numpy(rng.uniform(0.1, 0.5, tuple(buffer.shape)))
    return module


def _tensor(array: Any) -> torch.Tensor:
    tensor = torch.from_numpy(np.array(array))
    return tensor.requires_grad_() if tensor.is_floating_point() else tensor


def _pulled(outputs: list[torch.Tensor], leaves: list[torch.Tensor], cotangents: list[torch.Tensor]) -> Any:
    return torch.autograd.grad(outputs, leaves, cotangents, create_graph=True, materialize_grads=True)


def _listed(outputs: Any) -> list[torch.Tensor]:
    leaves, _ = torch.utils._pytree.tree_flatten(outputs)
    return list(leaves)


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().numpy()


def _arrays(tensors: Any) -> list[Any]:
    return [_array(tensor) for tensor in tensors]
