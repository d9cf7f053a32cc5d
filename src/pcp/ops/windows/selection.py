"""`select_and_scatter`, the derivative of pooling by selection, as of the maximum; it has one of its own."""

from collections.abc import Sequence

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import comparison_direction
from pcp.ir.toolkit.regions import block_operations, combiner, returned_by
from pcp.ops.derivative import Cotangent, Expanded, Outgoing, Primal
from pcp.ops.elementwise import bitwise_and, equal, logical_not, where
from pcp.ops.movement import full, pad, slice_, zeros
from pcp.ops.record import Kind, declare
from pcp.ops.reductions.bodies import map_body
from pcp.ops.reductions.primitives import neutral, sum_
from pcp.ops.windows.folds import COMPARISONS, chosen
from pcp.ops.windows.geometry import along_windows, windows_of
from pcp.tensor import Tensor, as_tensor


def _select_and_scatter(primal: Primal, g: Cotangent) -> Outgoing:
    direction = _direction(primal.op.regions[0])
    if direction is None or combiner(primal.op.regions[1]) != "add" or g is None:
        return Expanded(_place_by_place(primal))
    x, source, _ = primal.inputs
    windows = windows_of(primal.op)
    gathered = zeros(source.shape, g.dtype)
    if source.size:
        least = neutral("low" if direction in ("GE", "GT") else "high", x.dtype)
        keys, whole = windows.padded(x, as_tensor(least)), windows.padded(g, as_tensor(0, g.dtype))
        (gathered,) = chosen(keys, [whole], windows, source.shape, direction)
    return [None, gathered, sum_(g) if primal.active[2] else None]


def _direction(region: ir.Region) -> str | None:
    """How a body compares the element that was selected so far with the next; None if it does anything else."""
    (block,) = region.blocks
    operations = block_operations(block)
    if len(operations) != 1 or list(operations[0].results) != returned_by(block):
        return None
    (op,) = operations
    if op.name != "stablehlo.compare" or list(op.operands) != list(block.arguments):
        return None
    direction = comparison_direction(op)
    return direction if direction in COMPARISONS else None


def _place_by_place(primal: Primal) -> Sequence[Tensor]:
    """First which place in each window the select body keeps; then the sources are scattered, place by place.

    At one place of all windows there are as many different elements as there are windows, so that no two updates meet.
    """
    operand, source, start = primal.inputs
    windows, shape = windows_of(primal.op), source.shape
    whole = windows.padded(operand, as_tensor(0, operand.dtype))
    inside = windows.padded(full(operand.shape, True), as_tensor(False))
    selected, chosen_place, known = zeros(shape, operand.dtype), zeros(shape, DType.i32), full(shape, False)
    for number, offset in enumerate(windows.offsets()):
        reach = (*windows.reach(offset, shape), windows.strides)
        part, valid = slice_(whole, *reach), slice_(inside, *reach)
        (kept,) = map_body(primal, [selected, part])
        better = bitwise_and(valid, logical_not(bitwise_and(known, kept)))
        selected, chosen_place, known = (
            where(better, part, selected),
            where(better, number, chosen_place),
            known | valid,
        )
    total = start.broadcast_to(whole.shape)
    for number, offset in enumerate(windows.offsets()):
        mask = bitwise_and(equal(chosen_place, number), known)
        first, last = windows.reach(offset, shape)
        widths = [
            (low, size - high, stride - 1)
            for low, high, size, stride in zip(first, last, whole.shape, windows.strides, strict=True)
        ]
        (joined,) = map_body(primal, [total, pad(source, widths)], region=1)
        total = where(pad(mask, widths, constant_values=False), joined, total)
    low = [max(before, 0) for before, _ in windows.padding]
    return [slice_(total, low, [a + n for a, n in zip(low, operand.shape, strict=True)])]


declare(
    "select_and_scatter",
    Kind.reduction,
    derivative=_select_and_scatter,
    batching=along_windows(lambda _: 2),
)
