"""Random uses of PyTorch's operations beside PyTorch: what differs, what is refused, and with which words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from tests.execution import run
from tests.peers.from_torch.fuzz import algebra as algebra
from tests.peers.from_torch.fuzz import arrangement as arrangement
from tests.peers.from_torch.fuzz import elementwise as elementwise
from tests.peers.from_torch.fuzz import networks as networks
from tests.peers.from_torch.fuzz import places as places
from tests.peers.from_torch.fuzz import reductions as reductions
from tests.peers.from_torch.fuzz import windows as windows
from tests.peers.from_torch.fuzz.drawing import FAMILIES, Draw

import pcp
from pcp.errors import PCPError

ACCURACY = {torch.float16: 4e-3, torch.bfloat16: 4e-2, torch.float32: 2e-5, torch.complex64: 2e-5}
"""Of the results in lower precision; others are compared to 1e-8."""


@dataclass(frozen=True)
class Drawn:
    """One random use of an operation.

    Arguments:
        label: what shows it again: the family, the seed, and the attributes.
        function: from tensors to a tensor or a tuple of them.
        inputs: float64 arrays are differentiated for, others are not.
        differentiated: whether gradients are compared, too: where an output is not finite, they are not.
    """

    label: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    differentiated: bool = True


@dataclass
class Outcome:
    """What became of the uses: how many are equal, and what is to be read of the others."""

    equal: int = 0
    refused: dict[str, PCPError] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)


def listed(value: Any) -> list[torch.Tensor]:
    found = list(value) if isinstance(value, tuple | list) else [value]
    return [y for y in found if isinstance(y, torch.Tensor)]


class Uses(torch.nn.Module):
    """Uses side by side: a weighted sum of the floating-point outputs of those that are differentiated, and all outputs."""

    def __init__(self, uses: Sequence[Drawn]) -> None:
        super().__init__()
        self.uses = uses

    def forward(self, floats: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> Any:
        total, outputs = torch.zeros((), dtype=torch.float64), {}
        for number, use in enumerate(self.uses):
            names = [f"{number}.{i}" for i in range(len(use.inputs))]
            made = use.function(*(floats[n] if n in floats else others[n] for n in names))
            for i, output in enumerate(listed(made)):
                outputs[f"{number}.{i}"] = output
                parts = (output.real, output.imag) if output.is_complex() else (output,)
                for part in parts if output.requires_grad and use.differentiated else ():
                    angles = torch.arange(part.numel(), dtype=torch.float64).reshape(part.shape)
                    total = total + (part * torch.cos(angles + number + 1)).sum()
        return total, outputs


def compare(uses: Sequence[Drawn]) -> Outcome:
    """Compare uses in as few programs as possible; those that PyTorch itself refuses are left out."""
    outcome = Outcome()
    _compare([seen for use in uses if (seen := _seen(use))], outcome)
    return outcome


def _tensors(use: Drawn, number: int = 0) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    given = {f"{number}.{i}": torch.from_numpy(np.array(array)) for i, array in enumerate(use.inputs)}
    floats = {name: t.requires_grad_() for name, t in given.items() if t.dtype is torch.float64}
    return floats, {name: t for name, t in given.items() if name not in floats}


def _seen(use: Drawn) -> Drawn | None:
    """A use that PyTorch computes, and whether its gradients count; None if it refuses."""
    try:
        floats, others = _tensors(use)
        total, outputs = Uses([use])(floats, others)
        if total.requires_grad:
            total.backward()
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, AssertionError):
        return None
    return replace(use, differentiated=bool(torch.isfinite(total))) if outputs else None


def _compare(uses: Sequence[Drawn], outcome: Outcome) -> None:
    if not uses:
        return
    floats: dict[str, torch.Tensor] = {}
    others: dict[str, torch.Tensor] = {}
    for number, use in enumerate(uses):
        for held, found in zip((floats, others), _tensors(use, number), strict=True):
            held.update(found)
    module = Uses(uses)
    total, outputs = module(floats, others)
    if total.requires_grad:
        total.backward()
    arrays = [{name: t.detach().numpy() for name, t in held.items()} for held in (floats, others)]
    try:
        program = pcp.from_torch(module, floats, others).program
        if total.requires_grad:
            (_, mine), gradients = run(pcp.value_and_grad(program, wrt=1, has_aux=True), {}, *arrays)
        else:
            (_, mine), gradients = run(program, {}, *arrays), {}
    except Exception as error:
        if len(uses) > 1:
            for half in (uses[: len(uses) // 2], uses[len(uses) // 2 :]):
                _compare(half, outcome)
        elif isinstance(error, PCPError):
            outcome.refused[uses[0].label] = error
        else:
            outcome.raw.append(f"{uses[0].label}: {type(error).__name__}: {str(error)[:1500]}")
        return
    theirs = {name: tensor.grad for name, tensor in floats.items()} if gradients else {}
    wrong = _faults(outputs, mine, theirs, gradients)
    outcome.equal += len(uses) - len(wrong)
    outcome.different += [f"{uses[n].label}\n    " + "\n    ".join(faults) for n, faults in wrong.items()]


def _faults(
    outputs: dict[str, torch.Tensor], mine: Any, theirs: dict[str, torch.Tensor | None], gradients: Any
) -> dict[int, list[str]]:
    """What differs, by the number of the use."""
    wrong: dict[int, list[str]] = {}
    lower = set()
    for name, output in outputs.items():
        number, accuracy = int(name.split(".")[0]), ACCURACY.get(output.dtype, 1e-8)
        lower |= {number} if output.dtype in ACCURACY else set()
        expected, got = output.detach().resolve_conj().resolve_neg(), mine[name]
        if expected.dtype is torch.bfloat16:  # PyTorch makes no array of these
            got, expected = got.astype(np.float32), expected.float()
        if fault := _difference(got, expected.numpy(), accuracy):
            wrong.setdefault(number, []).append(f"output {name}: {fault}")
    for name, gradient in theirs.items():
        number = int(name.split(".")[0])
        wanted = np.zeros(gradients[name].shape) if gradient is None else gradient.numpy(force=True)
        if fault := _difference(gradients[name], wanted, 4e-2 if number in lower else 1e-8):
            wrong.setdefault(number, []).append(f"gradient {name}: {fault}")
    return wrong


def _difference(got: Any, expected: Any, accuracy: float) -> str:
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return f"{got.dtype}{got.shape}, not {expected.dtype}{expected.shape}"
    if np.allclose(got, expected, accuracy, accuracy, equal_nan=True):
        return ""
    return f"{got.tolist()} is not {expected.tolist()}"


def drawn(name: str, seed: int) -> Drawn:
    """The use of a family that a seed stands for."""
    words, function, *inputs = FAMILIES[name](Draw(seed, *name.encode()))
    shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in inputs)
    return Drawn(f"{name} {seed}: {words} of {shapes}", function, tuple(inputs))
