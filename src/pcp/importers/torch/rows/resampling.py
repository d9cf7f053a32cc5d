"""Changes of spatial resolution, all linear and separable: along every axis a small matrix of constants.

PyTorch's kernels compute the places and weights themselves: how these round is no part of what is documented.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from pcp import ops
from pcp.importers.torch.exporting import torch_package
from pcp.importers.torch.table import row
from pcp.ir import DType, TensorSpec
from pcp.tensor import Tensor

Matrix = np.ndarray[Any, Any]
Factors = Sequence[float] | None


def _along(x: Tensor, axis: int, matrix: Matrix) -> Tensor:
    """x with an axis multiplied by a matrix of shape (new, old)."""
    constant = matrix.astype(x.dtype.numpy)
    return ops.moveaxis(ops.dot_general(x, constant, ((axis,), (1,))), -1, axis)


@row("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default", "adaptive_avg_pool1d.default")
def adaptive_avg_pool(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """The means of as many parts of every spatial axis as are asked for; parts overlap where they do not divide it."""
    for axis, new in enumerate(sizes, x.ndim - len(sizes)):
        old = x.shape[axis]
        if new == 1:
            x = ops.mean(x, axis, keepdims=True)
        elif new != old:
            matrix = np.zeros((new, old))
            for place in range(new):
                low, high = place * old // new, -(-(place + 1) * old // new)
                matrix[place, low:high] = 1 / (high - low)
            x = _along(x, axis, matrix)
    return x


def _upsample_nearest(
    name: str, x: Tensor, _: object, factors: Factors = None, *, result: TensorSpec
) -> Tensor:
    """The element of the place nearest to each new one."""
    for number, axis in enumerate(range(2, x.ndim)):
        old, new = x.shape[axis], result.shape[axis]
        numbers = torch_package().arange(old, dtype=_computed(x)).expand(1, 1, *[2] * (x.ndim - 3), old)
        taken = _of_last_axis(name, numbers, new, (), factors[number] if factors else None)
        places = taken.reshape(-1, new)[0].numpy().astype(np.int32)
        back = _places_of_gradient(name, old, new, factors[number] if factors else None)
        if (places == back).all():
            x = _taken(x, places, axis)
        else:  # the derivative is PyTorch's
            value, moved = ops.stop_gradient(_taken(x, places, axis)), _taken(x, back, axis)
            x = value + (moved - ops.stop_gradient(moved))
    return x


def _taken(x: Tensor, places: Matrix, axis: int) -> Tensor:
    times, rest = divmod(len(places), x.shape[axis])
    if not rest and (places == np.arange(len(places)) // times).all():
        return ops.repeat(x, times, axis)
    return ops.take(x, places, axis)


def _places_of_gradient(name: str, old: int, new: int, factor: float | None) -> Matrix:
    """Where PyTorch's backward pass puts the gradients of the elements nearest: it rounds otherwise than the forward pass."""
    numbers = np.arange(new)
    if new == old or new == 2 * old:
        return numbers * old // new
    scale = np.float32(1 / factor) if factor else np.float32(old) / np.float32(new)
    places = np.float32(scale) * (numbers + (0.5 if "exact" in name else 0)).astype(np.float32)
    return np.minimum(places.astype(np.int32), old - 1)


def _upsample(
    name: str, x: Tensor, _: object, align_corners: bool, factors: Factors = None, *, result: TensorSpec
) -> Tensor:
    """Weighted sums of neighbours along every spatial axis."""
    for number, axis in enumerate(range(2, x.ndim)):
        old, new = x.shape[axis], result.shape[axis]
        each = torch_package().eye(old, dtype=_computed(x)).reshape(1, old, *[1] * (x.ndim - 3), old)
        weights = _of_last_axis(name, each, new, (align_corners,), factors[number] if factors else None)
        x = _along(x, axis, weights.reshape(old, new).numpy().T)
    return x


def _of_last_axis(name: str, x: Any, new: int, options: tuple[Any, ...], factor: float | None) -> Any:
    """What PyTorch's operation makes of the last axis of its own tensor; the axes before it keep their sizes."""
    kept = list(x.shape[2:-1])
    factors = [None] * len(kept) + [factor]
    return getattr(torch_package().ops.aten, name)(x.contiguous(), [*kept, new], *options, *factors)


def _computed(x: Tensor) -> Any:
    """The element type in which PyTorch computes places and weights."""
    return torch_package().float64 if x.dtype is DType.f64 else torch_package().float32


for _name in ("upsample_nearest", "_upsample_nearest_exact"):
    for _count in (1, 2, 3):
        row(f"{_name}{_count}d.vec", knows_result=True)(partial(_upsample_nearest, f"{_name}{_count}d"))
for _name in (
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
):
    row(f"{_name}.vec", knows_result=True)(partial(_upsample, _name))
