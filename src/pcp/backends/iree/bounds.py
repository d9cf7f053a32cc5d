"""What lies out of bounds: indices beyond operands, where IREE reads and writes, and floats that no integer is.

StableHLO clamps the indices of a gather, and drops the windows of a scatter that do not fit. A float becomes the nearest
integer that there is, and NaN becomes 0, as on XLA and in the arena.
"""

from pcp.backends.iree.exceptional import is_exceptional, written
from pcp.backends.nested_blocks import clamped_indices
from pcp.backends.rewritten import Form, rewrite_each
from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ops.elementwise import convert
from pcp.ops.elementwise.comparison import where
from pcp.ops.indexing.gathering import WindowAxes
from pcp.ops.movement import concatenate, pad, slice_
from pcp.ops.reductions.primitives import all_
from pcp.tensor import Tensor, current_builder


def with_bounds(module: ir.Module) -> bool:
    """Write gathers, scatters and conversions to integers so that they stay within bounds; returns whether there are any.

    Scatters of several operands stay as they are: IREE refuses them.
    """
    return rewrite_each(module, _is_concerned, lambda op, *x: _WRITTEN.get(op.name, written)(op, *x))


def _is_concerned(op: ir.Operation) -> bool:
    if op.name == "stablehlo.convert":
        source, target = (spec_of(value.type).dtype for value in (op.operands[0], op.results[0]))
        return source.is_float and target.name[0] in "iu"
    return is_exceptional(op) or (op.name in _WRITTEN and len(op.results) == 1)


def _converted(op: ir.Operation, x: Tensor) -> Tensor:
    to = spec_of(op.results[0].type).dtype
    signed = to.name.startswith("i")
    least, most = (-(2 ** (to.bits - 1)), 2 ** (to.bits - 1) - 1) if signed else (0, 2**to.bits - 1)
    through = to if to.bits >= 8 else DType.i8
    wide = x if x.dtype is DType.f64 else convert(x, DType.f32)
    # As floats, the bounds may be rounded up: what lies on them is not converted either.
    above, below = wide >= float(most), wide <= float(least)
    inside = where(above | below | (wide != wide), 0.0, wide)
    return convert(where(above, most, where(below, least, convert(inside, through))), to)


def _gathered(op: ir.Operation, operand: Tensor, indices: Tensor) -> Tensor:
    if indices.dtype.bits < 32:  # IREE takes unsigned ones for signed ones
        indices = convert(indices, DType.i32)
    clamped = clamped_indices(op, operand, indices)
    gather = op.clone().operation
    gather.operands[1] = clamped
    return Tensor(gather.results[0], current_builder())


def _scattered(op: ir.Operation, operand: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A scatter into an operand that is longer by a window: windows that do not fit go to its end, which is cut off."""
    axes, shape = WindowAxes.of(op), operand.shape
    sizes = axes.sizes(operand.ndim, updates.shape)
    if indices.dtype.bits < 32:  # the end of an operand may be more than they can say
        indices = convert(indices, DType.i32)
    fits = (indices >= 0) & (indices <= axes.limits(shape, sizes, indices))
    if axes.vector < indices.ndim:
        fits = all_(fits, axes.vector, keepdims=True)
    end = axes.limits(shape, (0,) * len(shape), indices)
    longer = _longer(operand, {axis: sizes[axis] for axis in axes.index_map})
    checked = where(fits, indices, end)
    scatter = op.clone().operation
    scatter.operands[0], scatter.operands[1] = longer.value, checked.value
    scatter.results[0].set_type(mlir_type(longer.spec))
    # Several may go to the end, in any order.
    scatter.attributes["unique_indices"] = scatter.attributes["indices_are_sorted"] = ir.BoolAttr.get(False)
    return slice_(Tensor(scatter.results[0], current_builder()), [0] * len(shape), shape)


def _longer(x: Tensor, by: dict[int, int]) -> Tensor:
    """With something behind an array along some axes: zeros, or of complex numbers, which IREE cannot pad, some of its own."""
    if x.dtype.kind != "complex":
        return pad(x, [(0, by.get(axis, 0)) for axis in range(x.ndim)])
    for axis, size in by.items():
        more = [size if each == axis else length for each, length in enumerate(x.shape)]
        x = concatenate([x, slice_(x, [0] * x.ndim, more)], axis)
    return x


_WRITTEN: dict[str, Form] = {
    "stablehlo.convert": _converted,
    "stablehlo.gather": _gathered,
    "stablehlo.scatter": _scattered,
}
