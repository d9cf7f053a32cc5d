"""Reductions over windows, computed anew from operations that have derivatives: few of them, however large the windows are.

A fold combines neighbours axis after axis, by doubling, so a window of n elements costs about log n operations. Where one
element of each window is chosen, as by the maximum, windows that do not overlap become axes of their own, which needs no fold.
"""

import math
from collections.abc import Callable, Sequence
from itertools import product

from pcp.ir import DType
from pcp.ops.elementwise import (
    bitwise_and,
    bitwise_or,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_not,
    not_equal,
    where,
)
from pcp.ops.indexing.gathering import WindowAxes, gather
from pcp.ops.movement import iota, reshape, slice_
from pcp.ops.movement.joining import narrow
from pcp.ops.reductions.primitives import broadcast_reduced, max_, min_, sum_
from pcp.ops.windows.geometry import Windows, dilated
from pcp.tensor import Tensor

Combine = Callable[[list[Tensor], list[Tensor]], list[Tensor]]
"""What an associative body makes of the elements of two neighbouring stretches, of which the first comes first."""

COMPARISONS = {"GE": greater_equal, "GT": greater, "LE": less_equal, "LT": less}
"""Of two elements the first is chosen where the comparison holds."""

_FEW = 3
"""Elements of a window along one axis that are combined one after another."""
_SMALL = 16
"""Elements of windows of which each place is read by itself; elements of larger ones are read by their numbers."""


def folded(
    wholes: Sequence[Tensor], windows: Windows, shape: Sequence[int], combine: Combine
) -> list[Tensor]:
    """What an associative body makes of every window, its elements in order.

    Arguments:
        wholes: what the windows slide over, padded; all of one shape.
        windows: their padding and base dilation do not count any more.
        shape: how many windows there are along each axis; none is 0.
        combine: the body.
    """
    tensors = list(wholes)
    for axis in reversed(range(len(shape))):  # so the elements of a window stay in order
        tensors = _folded_along(axis, tensors, windows, shape[axis], combine)
    return tensors


def _folded_along(
    axis: int, tensors: list[Tensor], windows: Windows, count: int, combine: Combine
) -> list[Tensor]:
    def seen(tensors: list[Tensor], first: int, count: int, stride: int) -> list[Tensor]:
        return [_along(t, axis, first, count, stride) for t in tensors]

    size, stride, distance = windows.sizes[axis], windows.strides[axis], windows.window_dilation[axis]
    while size % 2 == stride % 2 == 0 and distance == 1:  # every window consists of the same pairs
        pairs = tensors[0].shape[axis] // 2
        tensors = combine(seen(tensors, 0, pairs, 2), seen(tensors, 1, pairs, 2))
        size, stride = size // 2, stride // 2
    stretches, length = {1: tensors}, 1
    while size > _FEW and 2 * length <= size:
        apart = length * distance
        rest = tensors[0].shape[axis] - apart
        tensors = combine(seen(tensors, 0, rest, 1), seen(tensors, apart, rest, 1))
        length *= 2
        stretches[length] = tensors
    whole: list[Tensor] = []
    place = 0
    while place < size:
        while length > size - place:
            length //= 2
        part = seen(stretches[length], place * distance, count, stride)
        whole = combine(whole, part) if whole else part
        place += length
    return whole


def _along(tensor: Tensor, axis: int, first: int, count: int, stride: int) -> Tensor:
    return narrow(tensor, axis, first, first + dilated(count, stride), stride)


def chosen(
    keys: Tensor, tensors: Sequence[Tensor], windows: Windows, shape: Sequence[int], direction: str
) -> list[Tensor]:
    """The elements of tensors at the place in each window whose key is chosen.

    From the first element of a window to the last, the one that was chosen so far stays if it compares with the next as
    `direction` says. A comparison with NaN is false, so an element that is NaN takes the place of the one before it, and
    the next takes the place of a NaN.

    Arguments:
        keys: what is compared, padded.
        tensors: of the keys' shape, padded.
        windows: their padding and base dilation do not count any more.
        shape: how many windows there are along each axis; none is 0.
        direction: `"GE"`, `"GT"`, `"LE"` or `"LT"`.
    """
    apart = zip(windows.sizes, windows.strides, windows.window_dilation, strict=True)
    if all(size == 1 or (size == stride and distance == 1) for size, stride, distance in apart):
        return _chosen_apart(keys, tensors, windows, shape, direction)
    numbers = reshape(iota(keys.size, 0, DType.i32 if keys.size < 2**31 else DType.i64), keys.shape)
    places = _chosen_numbers(keys, numbers, windows, shape, direction)
    if math.prod(windows.sizes) > _SMALL:
        return [_elements_at(t, places) for t in tensors]
    sums: list[Tensor | None] = [None] * len(tensors)
    for offset in product(*map(range, windows.sizes)):
        reach = (*windows.reach(offset, shape), windows.strides)
        here = equal(places, slice_(numbers, *reach))
        parts = [where(here, slice_(t, *reach), 0) for t in tensors]
        sums = [part if whole is None else whole + part for whole, part in zip(sums, parts, strict=True)]
    return [whole for whole in sums if whole is not None]


def _elements_at(tensor: Tensor, numbers: Tensor) -> Tensor:
    flat, listed = reshape(tensor, (tensor.size,)), reshape(numbers, (numbers.size, 1))
    return reshape(gather(flat, listed, WindowAxes((), (0,), (0,), 1), (1,)), numbers.shape)


def _chosen_numbers(
    keys: Tensor, numbers: Tensor, windows: Windows, shape: Sequence[int], direction: str
) -> Tensor:
    """The number of the element of each window whose key is chosen."""

    def combine(first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
        stays = COMPARISONS[direction](first[0], second[0])
        if not keys.dtype.is_float:
            return [where(stays, a, b) for a, b in zip(first, second, strict=True)]
        # What follows a NaN in the second stretch was chosen without a look at the first.
        stays = bitwise_and(stays, logical_not(second[2]))
        kept = [where(stays, a, b) for a, b in zip(first[:2], second[:2], strict=True)]
        return [*kept, bitwise_or(first[2], second[2])]

    flags = [not_equal(keys, keys)] if keys.dtype.is_float else []
    return folded([keys, numbers, *flags], windows, shape, combine)[1]


def _chosen_apart(
    keys: Tensor, tensors: Sequence[Tensor], windows: Windows, shape: Sequence[int], direction: str
) -> list[Tensor]:
    """The same for windows that do not overlap: the place of the chosen element is a reduction over their own axes."""
    inside = tuple(range(1, 2 * len(shape), 2))
    whole = tuple(size for pair in zip(shape, windows.sizes, strict=True) for size in pair)

    def apart(tensor: Tensor) -> Tensor:
        for axis, (count, size, stride) in enumerate(zip(shape, windows.sizes, windows.strides, strict=True)):
            tensor = _along(tensor, axis, 0, count * size, stride if size == 1 else 1)
        return reshape(tensor, whole)

    def over_windows(reduced: Tensor) -> Tensor:
        return broadcast_reduced(reduced, whole, inside)

    greatest, first = direction in ("GE", "GT"), direction in ("GE", "LE")
    seen = apart(keys)
    last = math.prod(windows.sizes) - 1
    places = reshape(iota(last + 1), [1 if i not in inside else n for i, n in enumerate(whole)])
    places = places.broadcast_to(whole)
    restart = None
    if keys.dtype.is_float:
        restart = over_windows(max_(where(not_equal(seen, seen), places, -1), inside))
        behind = greater(places, restart)
        unlike = -math.inf if greatest else math.inf
        best = (max_ if greatest else min_)(where(behind, seen, unlike), inside)
        is_best = bitwise_and(behind, equal(seen, over_windows(best)))
    else:
        best = (max_ if greatest else min_)(seen, inside)
        is_best = equal(seen, over_windows(best))
    if first:
        place = min_(where(is_best, places, last), inside)
    else:
        place = max_(where(is_best, places, -1 if restart is None else restart), inside)
    mask = equal(places, over_windows(place))
    return [sum_(where(mask, apart(t), 0), inside) for t in tensors]
