"""Which operation made the first NaN: the program is run again with a flag for every floating-point value in it.

An infinity is often meant (the mask of an attention), so only what reaches a result is blamed: for a NaN the first operation
on the way there that makes one from operands without any, for an infinity the first that makes one from finite operands.
The flags are results of another program than the plan's, so the compiler may fuse it otherwise; a NaN that depends on rounding
may be elsewhere or not at all. A loop is one operation here: the report names the line of the loop, not that inside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.backends import Device, Target
from pcp.errors import PCPError
from pcp.ir import DType, Program, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.expecting import expect_program
from pcp.ir.operations import Operation
from pcp.ir.tree import flatten_like
from pcp.ir.types import dtype_of
from pcp.ops.elementwise import convert, imag, is_finite, maximum, not_equal, real, where
from pcp.ops.movement import concatenate, reshape
from pcp.ops.reductions.primitives import max_
from pcp.planning.compiled import Compiled, compiled
from pcp.planning.diagnostics.dataflow import Dataflow
from pcp.planning.instrument import flat, with_extras
from pcp.tensor import Tensor

_FLAGS_AT_ONCE = 1024  # compile time grows with the number of flags
_FINITE, _INFINITE, _NAN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Range:
    """What a value held: its type, the least and largest finite element, and how many were not finite."""

    spec: TensorSpec
    least: float | None
    largest: float | None
    nans: int
    infinities: int

    def __str__(self) -> str:
        parts = [] if self.least is None else [f"in [{self.least:.6g}, {self.largest:.6g}]"]
        parts += [f"{self.nans} NaN"] if self.nans else []
        parts += [f"{self.infinities} infinite"] if self.infinities else []
        return f"{self.spec} {', '.join(parts) or 'without elements'}"


@dataclass(frozen=True, slots=True)
class NonFinite:
    """Where a NaN or an infinity came from.

    Arguments:
        origin: the operation that made it, or the name of the argument that it came in by.
        operands: what the operation was given.
        cause: where an infinity among the operands of an operation that made NaN came from.
    """

    origin: Operation | str
    operands: tuple[Range, ...]
    result: Range
    cause: "NonFinite | None" = None

    def __str__(self) -> str:
        kind = "NaN" if self.result.nans else "an infinity"
        if isinstance(self.origin, str):
            return f"argument {self.origin} holds {kind}: {self.result}"
        place = self.origin.location or "an unknown line"
        lines = [f"{self.origin.name} made {kind} at {place}", f"  result: {self.result}"]
        lines += [f"  operand {i}: {operand}" for i, operand in enumerate(self.operands)]
        lines += [f"  the infinity came from here: {self.cause}"] if self.cause else []
        return "\n".join(lines)


class NaNFound(PCPError):
    """A result that holds NaN or an infinity; `report` says where it came from, where that was found."""

    def __init__(self, message: str, report: NonFinite | None) -> None:
        super().__init__(message)
        self.report = report


def find_nan(
    program: Program, *arguments: Any, device: str | Device | Target | None = None
) -> NonFinite | None:
    """Where the first NaN or infinity in a program's results comes from; None if all results are finite.

    Arguments:
        program: any Program.
        arguments: nested as the program's; state is not donated.
        device: where it is run: once for every 1024 values of the program, and once more.

    Raises:
        ProgramExpected: it is something else.
        TreeMismatch, ArgumentMismatch, OutOfMemory, CompilationFailed: as a Plan of the program.
    """
    inlined = flat(expect_program(program, "pcp.find_nan"))
    dataflow = Dataflow(inlined)
    target = Target.of(device)
    codes = _codes(inlined, dataflow, arguments, target)
    worst = max((codes[number] for number in dataflow.returned if number in codes), default=_FINITE)
    if worst == _FINITE:
        return None
    origins = [_origin(dataflow, codes, dataflow.returned, worst)]
    infinite = [n for n in dataflow.operands(origins[0]) if codes.get(n) == _INFINITE]
    if infinite:
        origins.append(_origin(dataflow, codes, infinite, _INFINITE))
    wanted = [number for origin in origins for number in (*dataflow.operands(origin), origin)]
    ranges = map(range_of, _values(inlined, dataflow, wanted, arguments, target))
    report: NonFinite | None = None
    range_by_number = dict(zip(wanted, ranges, strict=True))
    for origin in reversed(origins):
        operands = tuple(range_by_number[number] for number in dataflow.operands(origin))
        maker: Operation | str
        if origin < dataflow.argument_count:
            maker = inlined.arguments[origin].name
        else:
            maker = dataflow.operations[dataflow.maker[origin]]
        report = NonFinite(maker, operands, range_by_number[origin], report)
    return report


def range_of(array: Any) -> Range:
    """The range of an array's elements; for complex numbers that of their magnitudes."""
    values = np.asarray(array)
    spec = TensorSpec(values.shape, dtype_of(values.dtype))
    if spec.dtype.kind == "complex":
        values = np.abs(values)
    values = values.astype(np.float64)
    finite = values[np.isfinite(values)]
    nans = int(np.isnan(values).sum())
    least, largest = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    return Range(spec, least, largest, nans, values.size - finite.size - nans)


def checked_run(plan: Compiled, lowered: Program, arguments: tuple[Any, ...]) -> Any:
    """What `Plan.run` does with `check`.

    Arguments:
        plan: what is run.
        lowered: the program as it is run.
        arguments: as for `Plan.run`; state is not consumed.

    Raises:
        NaNFound: a result is not finite.
    """
    placed = plan.place(*arguments)
    results = plan.call(*plan.with_copied_state(placed))
    leaves = flatten_like(plan.program.result_tree, results, "result")
    for entry, leaf in zip(plan.outputs, leaves, strict=True):
        if not entry.spec.dtype.is_differentiable:
            continue
        values = range_of(leaf)
        if values.nans or values.infinities:
            report = find_nan(lowered, *plan.bound, *placed, device=plan.target.with_options({}))
            name = f"result {entry.name}" if entry.name else "the result"
            origin = (
                report
                or "every operation is finite when the operations run one at a time, so the NaN depends on rounding"
            )
            raise NaNFound(f"{name} is not finite: {values}\n{origin}", report)
    return results


def _origin(dataflow: Dataflow, codes: dict[int, int], ends: Sequence[int], worst: int) -> int:
    """The first value on the way to `ends` that is as bad as `worst` while nothing it is made from is."""
    reached = {number for number in ends if codes.get(number, _FINITE) >= worst}
    pending, origins = list(reached), []
    while pending:
        number = pending.pop()
        before = {n for n in dataflow.operands(number) if codes.get(n, _FINITE) >= worst}
        if not before:
            origins.append(number)
        pending += before - reached
        reached |= before
    return min(origins)


def _codes(
    program: Program, dataflow: Dataflow, arguments: tuple[Any, ...], target: Target
) -> dict[int, int]:
    """For every floating-point value the worst of its elements: finite, infinite or NaN."""
    floating = [
        n for n, spec in dataflow.specs.items() if spec and spec.dtype.is_differentiable and spec.size
    ]
    codes: dict[int, int] = {}
    for start in range(0, len(floating), _FLAGS_AT_ONCE):
        window = floating[start : start + _FLAGS_AT_ONCE]

        def flags(
            operations: list[ir.Operation], inputs: list[Tensor], window: list[int] = window
        ) -> list[tuple[str, Tensor]]:
            worst = [reshape(_worst(dataflow.tensor(n, operations, inputs)), (1,)) for n in window]
            return [("flags", concatenate(worst))]

        (measured,) = _run(with_extras(program, flags, donate=False), arguments, target)
        codes |= dict(zip(window, np.asarray(measured).tolist(), strict=True))
    return codes


def _values(
    program: Program, dataflow: Dataflow, numbers: Sequence[int], arguments: tuple[Any, ...], target: Target
) -> list[Any]:
    def values(operations: list[ir.Operation], inputs: list[Tensor]) -> list[tuple[str, Tensor]]:
        return [(str(n), dataflow.tensor(n, operations, inputs)) for n in numbers]

    return _run(with_extras(program, values, donate=False), arguments, target)


def _run(program: Program, arguments: tuple[Any, ...], target: Target) -> list[Any]:
    """The further values of an extended program; it is compiled for this call alone."""
    _, values = compiled(program, target, cache=False).call(*arguments)
    return list(values)


def _worst(x: Tensor) -> Tensor:
    """The code of the worst element, as one i32."""
    if not x.dtype.is_float:
        return maximum(_worst(real(x)), _worst(imag(x)))
    code = where(not_equal(x, x), _NAN, where(is_finite(x), _FINITE, _INFINITE))
    return max_(convert(code, DType.i32))
