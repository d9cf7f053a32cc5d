"""Movement operations that cut and join: slice, pad, concatenate.

Each is linear, and its transpose moves the cotangent back.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pcp.ir import DType, DTypeLike, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integer_of, integers_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.batched_axes import along_axes, following, led_by, led_by_size
from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.movement.axes import checked_axis
from pcp.ops.movement.shape import expand_dims, reshape
from pcp.ops.promotion import promoted
from pcp.ops.record import Cost, Kind, Linear, declare
from pcp.tensor import (
    DTypeMismatch,
    ShapeMismatch,
    Tensor,
    TensorLike,
    as_tensor,
    emit,
    export_operations,
    operation,
)


def _put_back(primal: Primal, g: Tensor) -> list[Cotangent]:
    starts, steps = primal.integers("start_indices"), primal.integers("strides")
    sizes = zip(starts, steps, g.shape, primal.input(0).shape, strict=True)
    widths = [
        (start, whole - start - max((n - 1) * step + 1, 0) * (n > 0), step - 1)
        for start, step, n, whole in sizes
    ]
    return [padded(g, widths)]


def _sliced(op: ir.Operation, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    bounds = (integers_of(op.attributes[name]) for name in ("start_indices", "limit_indices", "strides"))
    return x[tuple(slice(*each) for each in zip(*bounds, strict=True))]


declare(
    "slice",
    Kind.movement,
    cost=Cost.move,
    linear=Linear(),
    fuses=True,
    functions=("slice",),
    derivative=_put_back,
    batching=along_axes(start_indices=led_by(0), limit_indices=led_by_size, strides=led_by(1)),
    fold=_sliced,
)


@operation
def slice_(
    x: TensorLike, start: Sequence[int], stop: Sequence[int], step: Sequence[int] | None = None
) -> Tensor:
    """The block `start[i] <= place < stop[i]` of every axis i, each `step[i]`-th element.

    Raises:
        ShapeMismatch: the bounds do not fit the shape.
    """
    tensor = as_tensor(x)
    steps = tuple(step) if step is not None else (1,) * tensor.ndim
    bounds = list(zip(start, stop, steps, tensor.shape, strict=False))
    if not len(start) == len(stop) == len(steps) == tensor.ndim or any(
        not 0 <= a <= b <= n or s < 1 for a, b, s, n in bounds
    ):
        raise ShapeMismatch(
            f"slice: start {tuple(start)}, stop {tuple(stop)}, step {steps} do not fit shape {tensor.shape}"
        )
    shape = tuple(-(-(b - a) // s) for a, b, s, _ in bounds)
    if shape == tensor.shape:
        return tensor
    attributes = {"start_indices": tuple(start), "limit_indices": tuple(stop), "strides": steps}
    return emit("slice", (tensor,), (TensorSpec(shape, tensor.dtype),), attributes)


def narrow(x: Tensor, axis: int, start: int, stop: int, step: int = 1) -> Tensor:
    """The elements start, start + step, ... before stop along one axis, which is not negative."""
    low, high, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    low[axis], high[axis], steps[axis] = start, stop, step
    return slice_(x, low, high, steps)


def _cut_out(primal: Primal, g: Tensor) -> list[Cotangent]:
    low, high, inner = (
        primal.integers(f) for f in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    # Negative padding cut elements off: they get zeros. Then the padding in front, behind and between is cut off.
    missing = [(max(-a, 0), max(-b, 0)) for a, b in zip(low, high, strict=True)]
    whole = padded(g, missing) if any(map(any, missing)) else g
    start = [max(a, 0) for a in low]
    stop = [n - max(b, 0) for n, b in zip(whole.shape, high, strict=True)]
    part = slice_(whole, start, stop, [i + 1 for i in inner])
    filler = g.sum() - part.sum() if primal.active[1] else None
    return [part if primal.active[0] else None, filler]


def _padded(op: ir.Operation, x: np.ndarray[Any, Any], filler: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    result = np.full(spec_of(op.results[0].type).shape, filler)
    low, inner = (integers_of(op.attributes[name]) for name in ("edge_padding_low", "interior_padding"))
    places = [
        start + np.arange(size) * (between + 1)
        for start, size, between in zip(low, x.shape, inner, strict=True)
    ]
    kept = [(place >= 0) & (place < size) for place, size in zip(places, result.shape, strict=True)]
    result[np.ix_(*(place[there] for place, there in zip(places, kept, strict=True)))] = x[np.ix_(*kept)]
    return result


declare(
    "pad",
    Kind.movement,
    cost=Cost.move,
    linear=Linear(),
    fuses=True,
    functions=("pad",),
    derivative=_cut_out,
    batching=along_axes(
        lambda _: 1,
        edge_padding_low=led_by(0),
        edge_padding_high=led_by(0),
        interior_padding=led_by(0),
    ),
    fold=_padded,
)


def padded(
    tensor: Tensor, widths: Sequence[tuple[int, int] | tuple[int, int, int]], value: TensorLike = 0
) -> Tensor:
    """A tensor with a scalar added around it, and between elements; arguments and errors as of `pad`."""
    is_flag = tensor.dtype is DType.bool and isinstance(value, int) and value in (0, 1)
    filler = as_tensor(bool(value)) if is_flag else promoted(tensor, value)[1]
    if filler.spec != TensorSpec((), tensor.dtype):
        raise DTypeMismatch(f"pad: the value is {filler.spec}; expected a scalar of {tensor.dtype}")
    if len(widths) != tensor.ndim:
        raise ShapeMismatch(
            f"pad: {len(widths)} widths were given for shape {tensor.shape}; expected one for each axis"
        )
    low, high, inner = zip(*((*w, 0)[:3] for w in widths), strict=True) if widths else ((), (), ())
    shape = tuple(
        a + n + max(n - 1, 0) * i + b for a, b, i, n in zip(low, high, inner, tensor.shape, strict=True)
    )
    if any(size < 0 for size in shape):
        raise ShapeMismatch(f"pad: widths {tuple(widths)} cut more than shape {tensor.shape} has")
    attributes = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inner}
    return emit("pad", (tensor, filler), (TensorSpec(shape, tensor.dtype),), attributes)


def _parts(primal: Primal, g: Tensor) -> list[Cotangent]:
    axis, start = primal.integer("dimension"), 0
    parts: list[Cotangent] = []
    for x, active in zip(primal.inputs, primal.active, strict=True):
        stop = start + x.shape[axis]
        parts.append(narrow(g, axis, start, stop) if active else None)
        start = stop
    return parts


declare(
    "concatenate",
    Kind.movement,
    cost=Cost.move,
    linear=Linear(),
    functions=("concatenate",),
    derivative=_parts,
    batching=along_axes(dimension=following),
    fold=lambda op, *parts: np.concatenate(parts, integer_of(op.attributes["dimension"])),
)


@operation
def concatenate(
    tensors: Sequence[TensorLike], axis: int | None = 0, dtype: DTypeLike | None = None
) -> Tensor:
    """The tensors one after another along an axis; flattened first if it is None.

    Arguments:
        dtype: element type; if None, that in which the tensors meet.

    Raises:
        ShapeMismatch: there is none, or they differ in another axis.
    """
    if not len(tensors):
        raise ShapeMismatch("concatenate: no tensors were given; expected at least one")
    parts = promoted(*tensors) if dtype is None else tuple(as_tensor(t).astype(dtype) for t in tensors)
    if axis is None:
        parts, axis = tuple(reshape(t, (t.size,)) for t in parts), 0
    place = checked_axis("concatenate", axis, parts[0].ndim)
    rests = {(*t.shape[:place], *t.shape[place + 1 :]) for t in parts if t.ndim == parts[0].ndim}
    if len(rests) != 1 or any(t.ndim != parts[0].ndim for t in parts):
        shown = ", ".join(str(t.shape) for t in parts)
        raise ShapeMismatch(f"concatenate: shapes {shown} differ in more than axis {place}")
    total = sum(t.shape[place] for t in parts)
    shape = (*parts[0].shape[:place], total, *parts[0].shape[place + 1 :])
    return emit("concatenate", parts, (TensorSpec(shape, parts[0].dtype),), {"dimension": place})


@operation
def stack(tensors: Sequence[TensorLike], axis: int = 0, *, dtype: DTypeLike | None = None) -> Tensor:
    """The tensors, all of one shape, along a new axis; in `dtype`, or in the type in which they meet."""
    return concatenate([expand_dims(t, axis) for t in tensors], axis, dtype)


@operation
def split(x: TensorLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """x cut along an axis.

    Arguments:
        indices_or_sections: into how many equal parts, or at which places: [2, 5] gives x[:2], x[2:5] and x[5:].

    Raises:
        ShapeMismatch: the size of the axis is no multiple of the number of parts.
    """
    tensor = as_tensor(x)
    place = checked_axis("split", axis, tensor.ndim)
    size = tensor.shape[place]
    if not isinstance(indices_or_sections, int | np.integer):
        bounds = [
            slice(*pair).indices(size) for pair in pairwise([None, *map(int, indices_or_sections), None])
        ]
        return tuple(narrow(tensor, place, low, max(low, high)) for low, high, _ in bounds)
    parts = indices_or_sections
    if parts < 1 or size % parts:
        raise ShapeMismatch(
            f"split: axis {place} of shape {tensor.shape} cannot be cut into {parts} equal parts"
        )
    width = size // parts
    return tuple(narrow(tensor, place, i * width, (i + 1) * width) for i in range(parts))


export_operations(__name__)
