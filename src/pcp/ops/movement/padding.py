"""Padding: a constant, or what stands in the tensor, added around it."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from pcp.ops.movement.joining import concatenate, narrow, padded
from pcp.ops.movement.shape import broadcast_to, reverse
from pcp.tensor import (
    ShapeMismatch,
    Tensor,
    TensorLike,
    WrongArgument,
    as_tensor,
    export_operations,
    operation,
)

Widths = int | Sequence[Any]

_MODES: dict[str, Literal["edge", "reflect", "symmetric", "wrap"]] = {
    "edge": "edge",
    "reflect": "reflect",
    "symmetric": "symmetric",
    "wrap": "wrap",
}


@operation
def pad(
    x: TensorLike, pad_width: Widths, mode: str = "constant", *, constant_values: TensorLike = 0
) -> Tensor:
    """x with elements added around it.

    Arguments:
        pad_width: for each axis, how many before and after; one pair is for all axes, one number for both sides of all. In
            mode "constant", negative ones cut off, and a third number says how many are added between elements.
        mode: `"constant"`; `"edge"`: the last element again; `"reflect"`: mirrored at the last element; `"symmetric"`:
            mirrored behind it; `"wrap"`: from the other end.
        constant_values: the scalar that mode "constant" adds.

    Raises:
        ShapeMismatch: there is not one entry for each axis, or an axis has too few elements for a mode.
        DTypeMismatch: the scalar is none, or not of the element type of x.
        WrongArgument: there is no such mode.
    """
    tensor = as_tensor(x)
    widths = _for_each_axis(tensor, pad_width)
    if mode == "constant":
        return padded(tensor, widths, constant_values)
    if mode not in _MODES:
        raise WrongArgument(f"pad: mode {mode!r} was given; expected one of constant, {', '.join(_MODES)}")
    for axis, width in enumerate(widths):
        if len(width) != 2 or min(width) < 0:
            raise ShapeMismatch(
                f"pad: widths {width} were given in mode {mode!r}; expected two, none below 0"
            )
        tensor = _around(tensor, axis, width, mode)
    return tensor


def _for_each_axis(tensor: Tensor, widths: Widths) -> list[Any]:
    """One entry for each axis, from any form that NumPy takes."""
    if isinstance(widths, int | np.integer):
        return [(widths, widths)] * tensor.ndim
    entries = list(widths)
    if len(entries) == 2 and all(isinstance(each, int | np.integer) for each in entries):
        return [tuple(entries)] * tensor.ndim
    entries = [(each, each) if isinstance(each, int | np.integer) else tuple(each) for each in entries]
    return entries * tensor.ndim if len(entries) == 1 else entries


def _around(x: Tensor, axis: int, width: tuple[int, int], mode: str) -> Tensor:
    """The places that NumPy reads along the axis, in runs that go on, go back or stay."""
    size = x.shape[axis]
    if size < 1 and any(width):
        raise ShapeMismatch(f"pad: axis {axis} of shape {x.shape} is empty; mode {mode!r} needs an element")
    places = np.pad(np.arange(size), width, mode=_MODES[mode]).tolist()
    parts, start = [], 0
    while start < len(places):
        end, step = start + 1, places[start + 1] - places[start] if start + 1 < len(places) else 1
        step = step if step in (-1, 0, 1) else 1
        while end < len(places) and places[end] - places[end - 1] == step:
            end += 1
        parts.append(_run(x, axis, places[start], end - start, step))
        start = end
    return concatenate(parts, axis) if len(parts) > 1 else parts[0] if parts else x


def _run(x: Tensor, axis: int, first: int, count: int, step: int) -> Tensor:
    if step == 1:
        return narrow(x, axis, first, first + count)
    if step == -1:
        return reverse(narrow(x, axis, first - count + 1, first + 1), axis)
    shape = [count if place == axis else size for place, size in enumerate(x.shape)]
    return broadcast_to(narrow(x, axis, first, first + 1), shape)


export_operations(__name__)
