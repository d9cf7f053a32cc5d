"""Fine-tuning of low-rank matrices beside weights that stay: which matrices, their first values, what is merged and written.

Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021. Names and files are those of the library `peft`.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.importers.torch.imported import Imported
from pcp.ir import Program, Role
from pcp.ir.tree import flatten
from pcp.ops import matmul, transpose
from pcp.rewrite.low_rank import LowRank, factored, summed_axes
from pcp.symbolic.program import SymbolicProgram
from pcp.tensor import Tensor
from pcp.tracing import ArgumentSpec, call, specs_of, trace
from pcp.training.recipes.adapters import DOWN, UP, merged, write_adapter

Array = np.ndarray[Any, Any]

_HEADS = ("lm_head", "embed_out", "output_projection", "score", "classifier")


class NotAdaptable(PCPError):
    """A program or its weights that no low-rank matrices can be put beside."""


@dataclass(frozen=True)
class Adapted(Imported):
    """A program whose weights are low-rank matrices beside weights that stay.

    Arguments:
        program: `(weights, buffers, inputs...)`, where buffers hold all that stays, and are the second argument.
        weights: A (rank, inputs) as `module.lora_A.weight` and B (outputs, rank) as `module.lora_B.weight`.
        buffers: the weights and buffers of what was adapted, by their names.
        matrices: of each module that is adapted, the name of its weight and the axis of that that is summed over.
        rank: of the matrices.
        alpha: what is added is B A alpha / rank.
        names: of the weights of what was adapted, as buffers have them.
    """

    matrices: Mapping[str, tuple[str, int]]
    rank: int
    alpha: float
    names: tuple[str, ...]

    def merged(self, weights: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """The weights of what was adapted, with the low-rank matrices added to them.

        Arguments:
            weights: of A and B, after training; those of the beginning if None.
        """
        given = self.weights if weights is None else weights
        own = {name: self.buffers[name] for name in self.names}
        return merged(own, given, self.matrices, self.alpha / self.rank)

    def save(self, folder: str | Path, weights: Mapping[str, Any] | None = None, base: str = "") -> Path:
        """Write the matrices as `peft` reads them: adapter_model.safetensors and adapter_config.json.

        Arguments:
            weights: of A and B, after training; those of the beginning if None.
            base: name or folder of the model that they belong to.
        """
        given = self.weights if weights is None else weights
        return write_adapter(Path(folder), given, self.matrices, self.rank, self.alpha, base)


def lora(
    program: Imported | Program,
    *,
    rank: int,
    alpha: float | None = None,
    targets: Sequence[str] = (),
    weights: Any = None,
    seed: int = 0,
) -> Adapted:
    """Put low-rank matrices beside weights, which are trained in their place.

    A matrix W of a target becomes W + B A alpha / rank. Products by it become x W + (x A) B, so nothing of the size of W is
    made anew, and W has no gradient, no moments and no decay. At first B is zero, and the program computes what it did.

    Arguments:
        program: what `from_torch` made, or a Program whose first argument is its weights.
        rank: of the matrices.
        alpha: scales what is added; twice the rank if None.
        targets: names of modules, or how they end: `q_proj` means every `...q_proj`. Without any, all matrices of products, but
            the head.
        weights: of a Program, nested as its first argument.
        seed: of A, which is drawn evenly between -1 / sqrt(inputs) and 1 / sqrt(inputs), as `peft` does.

    Returns:
        The program and its weights; `pcp.training_step` takes the program, `initial_state(weights, buffers)` the arrays.

    Raises:
        NotAdaptable: a number is out of its range, a target is no matrix that products read, or the weights are missing.
    """
    whole, weights, buffers = _parts(program, weights)
    if type(rank) is not int or rank < 1:
        raise NotAdaptable(f"rank is {rank!r}; expected an integer of at least 1")
    scale_alpha = 2.0 * rank if alpha is None else float(alpha)
    names = dict(zip(flatten(weights)[1].names(), range(len(whole.arguments)), strict=False))
    matrices = _matrices(whole, names, tuple(targets))
    leaves, tree = flatten(weights)
    held = dict(zip(tree.names(), leaves, strict=True))
    rng = np.random.default_rng(seed)
    added: dict[str, Array] = {}
    for module, (name, axis) in matrices.items():
        shape, limit = held[name].shape, held[name].shape[axis] ** -0.5
        added[f"{module}.{DOWN}"] = rng.uniform(-limit, limit, (rank, shape[axis])).astype(np.float32)
        added[f"{module}.{UP}"] = np.zeros((shape[1 - axis], rank), np.float32)
    adapted = _program(whole, added, held, buffers, matrices, scale_alpha / rank)
    return Adapted(adapted, added, {**held, **buffers}, matrices, rank, scale_alpha, tuple(held))


def _parts(program: Imported | Program, weights: Any) -> tuple[Program, Any, dict[str, Array]]:
    """The program, its weights, and its buffers."""
    whole = program.program if isinstance(program, Imported) else program
    if isinstance(whole, SymbolicProgram):
        raise NotAdaptable(
            f"the program has open sizes ({', '.join(whole.symbols)}); adapt it at sizes: program.at({whole.symbols[0]}=8, ...)"
        )
    if isinstance(program, Imported):
        return whole, program.weights, program.buffers
    if weights is None:
        raise NotAdaptable(
            "a Program does not hold its weights; give them: pcp.lora(program, rank=8, weights=weights), nested as its first "
            "argument"
        )
    return whole, weights, {}


def _matrices(
    program: Program, names: Mapping[str, int], targets: tuple[str, ...]
) -> dict[str, tuple[str, int]]:
    """Of each module to adapt, the name of its weight and the axis that products sum over."""
    axes = summed_axes(program, list(names.values()))
    known = {_module(name): (name, axes[number]) for name, number in names.items() if number in axes}
    if not targets:
        chosen = {
            m: found for m, found in known.items() if m.rpartition(".")[2] not in (*_HEADS, *_tables(known))
        }
    else:
        chosen = {m: found for m, found in known.items() if any(_is_meant(m, target) for target in targets)}
    missing = [t for t in targets if not any(_is_meant(module, t) for module in known)]
    if missing or not chosen:
        ends = sorted({module.rpartition(".")[2] for module in known})
        raise NotAdaptable(
            f"targets name {', '.join(missing) or 'nothing'}, of which no matrix is multiplied by; the matrices of this "
            f"program are {', '.join(ends) or 'none'}"
        )
    return chosen


def _tables(known: Mapping[str, object]) -> set[str]:
    """Embeddings that are the head as well."""
    return {
        m.rpartition(".")[2] for m in known if "emb" in m.rpartition(".")[2] or m.endswith(("wte", "shared"))
    }


def _module(name: str) -> str:
    return name.removesuffix(".weight")


def _is_meant(module: str, target: str) -> bool:
    return module == target or module.endswith(f".{target}")


def _program(
    program: Program,
    added: Mapping[str, Array],
    held: Mapping[str, Array],
    buffers: Mapping[str, Array],
    matrices: Mapping[str, tuple[str, int]],
    scale: float,
) -> Program:
    """`(added, held and buffers, inputs...)`, whose products are taken of the factors."""
    tree = program.argument_tree
    first = tree.children[0]
    whole = tree.unflatten([ArgumentSpec(entry.spec, entry.role) for entry in program.arguments])
    inputs = whole[2:] if buffers else whole[1:]
    changes = any(entry.role is Role.state for entry in program.arguments)

    def adapted(weights: dict[str, Tensor], buffers_: dict[str, Tensor], *inputs: Any) -> Any:
        own = {name: buffers_[name] for name in held}
        for module, (name, axis) in matrices.items():
            up, down = weights[f"{module}.{UP}"], weights[f"{module}.{DOWN}"]
            more = matmul(up, down) * scale
            own[name] = own[name] + (more if axis else transpose(more, (1, 0))).astype(own[name].dtype)
        rest = [{name: buffers_[name] for name in buffers}] if buffers else []
        result = call(program, first.unflatten(own.values()), *rest, *inputs)
        return ({**buffers_, **result[0]}, result[1]) if changes else result

    stays = specs_of({**held, **buffers}, Role.state if changes else Role.weight)
    traced = trace(_named(adapted, program, bool(buffers)), specs_of(dict(added)), stays, *inputs)
    numbers = {entry.name: number for number, entry in enumerate(traced.arguments)}
    pairs = [
        LowRank(
            numbers[f"buffers.{name}"], numbers[f"weights.{m}.{DOWN}"], numbers[f"weights.{m}.{UP}"], scale
        )
        for m, (name, _) in matrices.items()
    ]
    begins = {
        f"buffers.{entry.name.partition('.')[2]}": program.begins[entry.name]
        for entry in program.arguments
        if entry.name in program.begins
    }
    return replace(factored(traced, pairs), begins=begins)


def _named(function: Any, program: Program, has_buffers: bool) -> Any:
    """The function with a signature from which the traced program takes the names of its arguments."""
    names = [entry.name.partition(".")[0] for entry in program.arguments]
    own = list(dict.fromkeys(names))[1 + has_buffers :]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    function.__signature__ = inspect.Signature(
        [inspect.Parameter(name, kind) for name in ("weights", "buffers", *own)]
    )
    return function
