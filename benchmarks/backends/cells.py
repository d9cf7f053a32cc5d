"""What a backend makes of one operation in one element type: each in a process that may end over it."""

import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from unittest import mock

import numpy as np
from tests.interpreter import interpreted

import pcp
from benchmarks.backends.ahead import refusals
from benchmarks.backends.operations import CASES, Case
from benchmarks.own_process import OwnProcess
from pcp.backends.base import CompileOptions
from pcp.errors import PCPError
from pcp.ir import DType
from pcp.ir.types import dtype_of

INTERPRETER = "interpreter"
TORCH = "torch:cpu"
"""Runs small arrays by NumPy, which is not what a cell is to tell."""
_NEAR = {
    DType.f64: 1e-10,
    DType.c128: 1e-10,
    DType.f32: 2e-5,
    DType.c64: 2e-5,
    DType.f16: 4e-3,
    DType.bf16: 3e-2,
}
"""How near results must be, relative to the largest; what is no float is equal."""

Cell = tuple[str, DType]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Answer:
    """What came of a cell: one of the two.

    Arguments:
        result: what was computed.
        refusal: why nothing was.
    """

    result: Array | None
    refusal: str = ""


def answers(place: str, cells: Sequence[Cell], seed: int) -> Iterator[Answer]:
    """What a backend's device, or the interpreter, makes of each cell. A process that ends is started again.

    IREE compiles all cells before the first runs.
    """
    refused = refusals(place, cells) if place.startswith("iree:") else {}
    with contextlib.ExitStack() as stack:
        child: OwnProcess | None = None
        for cell in cells:
            if cell in refused:
                yield Answer(None, refused[cell])
                continue
            child = child or stack.enter_context(OwnProcess(_runner, place, seed))
            try:
                yield child.call(cell)[1]
            except EOFError:
                yield Answer(None, "the process ended")
                child = None


def _runner(place: str, seed: int) -> tuple[None, Any]:
    return None, lambda cell: result_of(place, *cell, seed, cache=place.startswith("iree:"))


def result_of(
    place: str,
    name: str,
    dtype: DType,
    seed: int,
    *,
    cache: bool = False,
    options: CompileOptions = MappingProxyType({}),
) -> Answer:
    """What a device, or the interpreter, makes of one cell, in this process.

    Arguments:
        cache: whether compiled code is taken from the cache on disk, and kept there.
        options: of the compiler.
    """
    program = CASES[name].program(dtype)
    assert program is not None
    operands = CASES[name].operands(program, _generator(name, dtype, seed))
    if place == INTERPRETER:
        return Answer(interpreted(program, operands)[0])
    try:
        with of_any_size() if place == TORCH else contextlib.nullcontext():
            plan = pcp.plan(program, place, cache=cache, options=options)
        return Answer(np.asarray(plan.run(*operands)))
    except PCPError as error:
        return Answer(None, str(error))
    except Exception as error:
        return Answer(None, f"fails by {type(error).__name__}: {error}")


def of_any_size() -> contextlib.AbstractContextManager[Any]:
    """What is planned within has torch compute all that it can, however small it is."""
    from pcp.backends.arena.torch import kernels

    return mock.patch.multiple(kernels, LEAST=0, NARROW_LEAST=0)


def _generator(name: str, dtype: DType, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(f"{name} {dtype}".encode())])


def references(
    cells: Sequence[Cell], seed: int, here: Callable[..., Answer] | None = None
) -> dict[Cell, Array]:
    """What StableHLO's interpreter makes of each cell, or NumPy in wider numbers where the interpreter lacks the operation.

    A cell that neither has is left out: what it should be, nothing says.

    Arguments:
        here: `result_of` to interpret in this process, which then must have no cell that ends it; None for another.
    """
    found = {}
    interpreter = [cell for cell in cells if CASES[cell[0]].in_numpy is None]
    made = (
        answers(INTERPRETER, interpreter, seed)
        if here is None
        else (here(INTERPRETER, *cell, seed) for cell in interpreter)
    )
    for cell, answer in zip(interpreter, made, strict=True):
        if answer.result is not None:
            found[cell] = answer.result
    for name, dtype in cells:
        made = _in_numpy(CASES[name], name, dtype, seed)
        if made is not None:
            found[name, dtype] = made
    return found


def _in_numpy(case: Case, name: str, dtype: DType, seed: int) -> Array | None:
    program = case.program(dtype)
    if case.in_numpy is None or program is None:
        return None
    operands = case.operands(program, _generator(name, dtype, seed))
    wide = {"float": np.float64, "complex": np.complex128}.get(dtype.kind)
    made = case.in_numpy(
        *(x.astype(wide) if wide is not None and x.dtype == dtype.numpy else x for x in operands)
    )
    return None if made is None else np.asarray(made).astype(program.results[0].spec.dtype.numpy)


def judged(cell: Cell, answer: Answer, reference: Array) -> str:
    """Nothing where the answer is right; else why there is none, or how wrong it is."""
    if answer.result is None:
        return answer.refusal
    made, dtype = answer.result, dtype_of(reference.dtype)
    if (made.shape, made.dtype) != (reference.shape, reference.dtype):
        return f"wrong: {made.dtype}{list(made.shape)}, not {reference.dtype}{list(reference.shape)}"
    if dtype not in _NEAR:
        return "" if np.array_equal(made, reference) else "wrong: other numbers"
    near = max(_NEAR[dtype], _NEAR.get(cell[1], 0.0))
    error = _distance(made.astype(np.complex128), reference.astype(np.complex128))
    return "" if error <= near else f"wrong: an error of {error:.0e}"


def _distance(made: Array, reference: Array) -> float:
    """The largest difference over the largest number; infinite where infinities or NaN differ."""
    finite = np.isfinite(reference)
    if (
        not np.array_equal(made[~finite], reference[~finite], equal_nan=True)
        or not np.isfinite(made[finite]).all()
    ):
        return float("inf")
    scale = abs(reference[finite]).max(initial=0.0) or 1.0
    return float(abs(made[finite] - reference[finite]).max(initial=0.0) / scale)


def every_cell(names: Iterable[str], types: Iterable[DType]) -> list[Cell]:
    """Each operation in each element type in which StableHLO has it."""
    types = list(types)
    return [(name, dtype) for name in names for dtype in types if CASES[name].program(dtype) is not None]
