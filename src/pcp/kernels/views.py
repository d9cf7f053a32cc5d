"""Views: an array that a program takes out of another one by slices, reshapes and transpositions, as strides within that one.

A handler that reads by strides needs none of them done in memory: so the heads of attention are read where the product of
query, key and value wrote them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.dataflow import result_owner
from pcp.ir.toolkit.tensor_types import spec_of


@dataclass(frozen=True, slots=True)
class View:
    """Where an array lies in another one.

    Arguments:
        base: the other one, which is dense.
        start: of its elements, the first of the array.
        strides: in elements, of each axis of the array.
    """

    base: Value
    start: int
    strides: tuple[int, ...]


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Of a dense array, in elements."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def view_of(value: Value) -> View:
    """The first array before slices, reshapes and transpositions of which a value is a view; itself if there are none."""
    itself = View(value, 0, dense_strides(spec_of(value.type).shape))
    if isinstance(value.owner, ir.Block):
        return itself
    op = result_owner(value)
    if op.name not in ("stablehlo.slice", "stablehlo.transpose", "stablehlo.reshape"):
        return itself
    inner = view_of(op.operands[0])
    if op.name == "stablehlo.transpose":
        order = integers_of(op.attributes["permutation"])
        return View(inner.base, inner.start, tuple(inner.strides[axis] for axis in order))
    if op.name == "stablehlo.slice":
        starts, steps = (integers_of(op.attributes[name]) for name in ("start_indices", "strides"))
        first = sum(start * stride for start, stride in zip(starts, inner.strides, strict=True))
        strides = tuple(step * stride for step, stride in zip(steps, inner.strides, strict=True))
        return View(inner.base, inner.start + first, strides)
    new_strides = _reshaped(spec_of(op.operands[0].type).shape, inner.strides, spec_of(value.type).shape)
    return itself if new_strides is None else View(inner.base, inner.start, new_strides)


def _reshaped(shape: Sequence[int], strides: Sequence[int], to: Sequence[int]) -> tuple[int, ...] | None:
    """The strides of the same elements in another shape; None if some axis of it would need two."""
    if 0 in shape:
        return None
    new_strides = [0] * len(to)
    places = [place for place in range(len(shape)) if shape[place] != 1]
    axis = len(to) - 1
    while places:  # the innermost axes that can be walked with one step
        place = places.pop()
        size, step = shape[place], strides[place]
        while places and strides[places[-1]] == size * step:
            size *= shape[places.pop()]
        while size > 1 and axis >= 0:
            if size % to[axis]:
                return None
            new_strides[axis] = step
            size, step, axis = size // to[axis], step * to[axis], axis - 1
    return tuple(new_strides)
