"""The derivative of select_and_scatter, which is itself the derivative of pooling by selection, as of the maximum."""

from collections.abc import Sequence

from pcp.autodiff.rule import Expansion, Primal, register_rules
from pcp.autodiff.rules.reduction import map_body
from pcp.autodiff.rules.windows import windows_of
from pcp.ir import DType
from pcp.ops.elementwise import bitwise_and, equal, logical_not, where
from pcp.ops.movement import full, pad, slice_, zeros
from pcp.tensor import Tensor, as_tensor


def _select_and_scatter(primal: Primal) -> Sequence[Tensor]:
    """First which place in each window the select body keeps; then the sources are scattered, place by place.

    At one place of all windows there are as many different elements as there are windows, so that no two updates meet.
    """
    operand, source, start = primal.inputs
    windows, shape = windows_of(primal), source.shape
    whole = windows.padded(operand, as_tensor(0, operand.dtype))
    inside = windows.padded(full(operand.shape, True), as_tensor(False))
    found, chosen, known = zeros(shape, operand.dtype), zeros(shape, DType.i32), full(shape, False)
    for number, offset in enumerate(windows.offsets()):
        reach = (*windows.reach(offset, shape), windows.strides)
        part, valid = slice_(whole, *reach), slice_(inside, *reach)
        (kept,) = map_body(primal, [found, part])
        better = bitwise_and(valid, logical_not(bitwise_and(known, kept)))
        found, chosen, known = where(better, part, found), where(better, number, chosen), known | valid
    total = start.broadcast_to(whole.shape)
    for number, offset in enumerate(windows.offsets()):
        mask = bitwise_and(equal(chosen, number), known)
        first, last = windows.reach(offset, shape)
        widths = [
            (low, size - high, stride - 1)
            for low, high, size, stride in zip(first, last, whole.shape, windows.strides, strict=True)
        ]
        (joined,) = map_body(primal, [total, pad(source, widths)], region=1)
        total = where(pad(mask, widths, False), joined, total)
    low = [max(before, 0) for before, _ in windows.padding]
    return [slice_(total, low, [a + n for a, n in zip(low, operand.shape, strict=True)])]


register_rules({"select_and_scatter": Expansion(_select_and_scatter)})
