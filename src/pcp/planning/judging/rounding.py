"""The same Program in other roundings: how far float32 results are from exact ones, without anything wider than float32.

Every operation that rounds has its results rounded to one bit less, and sums are added up in another order. How far the results
then move estimates how wrong the plain path's are, cancellation included.

A compiler computes cheap values again where they are read, in one loop with what reads them. Between operations that are
disturbed it does so less, and would keep values for the backward pass that the plain path does not. So they are made again
here (`pcp.planning.judging.recomputation`); rounding depends on bits alone, so they come out the same.

Rounding to fewer bits rather than at random takes a compiler half the time. Source of the idea: Vignes, "Discrete Stochastic
Arithmetic for Validating Results of Numerical Software", Numerical Algorithms 37, 2004.
"""

from collections.abc import Sequence

from pcp.ir import DType, Program, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.builder import attribute
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.record import RECORDS, Kind, kind_of
from pcp.planning.judging.recomputation import Recomputing, emitted, is_float32, sliced

_MANTISSA_BITS = 22
"""Of the 23 that float32 stores: errors are twice as large as in float32 then, and different ones."""


def in_other_roundings(program: Program) -> Program:
    """The Program with the same arguments and results, whose float32 results are rounded otherwise.

    Arguments:
        program: any Program; only what is float32 in it changes.
    """
    return _OtherRoundings(program, DType.f32).made


class _OtherRoundings(Recomputing):
    _is_inside = False

    def operation(self, op: ir.Operation) -> ir.Operation:
        outside = self._is_inside
        # Regions of loops and branches hold arithmetic, as outside; regions of other operations combine two elements.
        self._is_inside = outside or (len(op.regions) > 0 and kind_of(op.name) is not Kind.control)
        copied = super().operation(op)
        self._is_inside = outside
        record = RECORDS.get(op.name)
        if record is not None and record.rounds is True and not outside:
            for result in op.results:
                self.known[result] = _rounded(self.known[result])
        return copied

    def operands(self, op: ir.Operation) -> list[Value]:
        values = super().operands(op)
        match op.name:
            case "stablehlo.dot_general":
                axes = DotAxes.of(op).contract
                return [_disturbed(value, each) for value, each in zip(values, axes, strict=True)]
            case "stablehlo.reduce":
                reduced = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
                count = len(values) // 2
                return [*(_disturbed(value, reduced) for value in values[:count]), *values[count:]]
            case "stablehlo.convolution":
                return [_rounded(value) for value in values]
            case _:
                return values


def _disturbed(value: Value, axes: Sequence[int]) -> Value:
    """A value that is summed along axes with other last bits, beginning in the middle of the first axis."""
    if not is_float32(value):
        return value
    rounded = _rounded(value)
    shape = spec_of(value.type).shape
    if not axes or shape[axes[0]] < 2:
        return rounded
    axis, middle = axes[0], shape[axes[0]] // 2
    halves = []
    for start, end in ((middle, shape[axis]), (0, middle)):
        starts, ends = [0] * len(shape), list(shape)
        starts[axis], ends[axis] = start, end
        halves.append(sliced(rounded, starts, ends))
    return emitted("concatenate", value.type, *halves, dimension=attribute(axis))


def _rounded(value: Value) -> Value:
    """A float32 value rounded to one bit less; the largest numbers, which cannot be, stay."""
    if not is_float32(value):
        return value
    bits = {"exponent_bits": 8, "mantissa_bits": _MANTISSA_BITS}
    kind = ir.IntegerType.get_signless(32)
    shorter = emitted(
        "reduce_precision",
        value.type,
        value,
        **{name: ir.IntegerAttr.get(kind, n) for name, n in bits.items()},
    )
    truth = mlir_type(TensorSpec(spec_of(value.type).shape, DType.bool))
    return emitted("select", value.type, emitted("is_finite", truth, shorter), shorter, value)
