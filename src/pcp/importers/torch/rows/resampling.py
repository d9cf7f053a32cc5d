"""Changes of spatial resolution, all linear and separable: along every axis a small matrix of constants."""

from collections.abc import Sequence

import numpy as np

from pcp import ops
from pcp.importers.torch.table import row
from pcp.ir import TensorSpec
from pcp.tensor import Tensor

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]


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


def _step(old: int, new: int, factor: float | None) -> float:
    return 1 / factor if factor else old / new


@row("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec", knows_result=True)
def upsample_nearest(
    x: Tensor, _: object, factors: Sequence[float] | None = None, *, result: TensorSpec
) -> Tensor:
    """Every element repeated."""
    for number, axis in enumerate(range(2, x.ndim)):
        old, new = x.shape[axis], result.shape[axis]
        step = _step(old, new, factors[number] if factors else None)
        if new % old == 0 and step == old / new:
            x = ops.repeat(x, new // old, axis)
        else:
            places = np.minimum((np.arange(new) * np.float32(step)).astype(np.int32), old - 1)
            x = ops.take(x, places, axis)
    return x


@row("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec", knows_result=True)
def upsample_linear(
    x: Tensor,
    _: object,
    align_corners: bool,
    factors: Sequence[float] | None = None,
    *,
    result: TensorSpec,
) -> Tensor:
    """Between neighbours on a line, along every spatial axis."""
    for number, axis in enumerate(range(2, x.ndim)):
        old, new = x.shape[axis], result.shape[axis]
        if align_corners:
            places = np.arange(new) * ((old - 1) / max(new - 1, 1))
        else:
            places = (np.arange(new) + 0.5) * _step(old, new, factors[number] if factors else None) - 0.5
        places = np.clip(places, 0, old - 1)
        low = np.minimum(places.astype(int), old - 1)
        matrix = np.zeros((new, old))
        np.add.at(matrix, (np.arange(new), low), 1 - (places - low))
        np.add.at(matrix, (np.arange(new), np.minimum(low + 1, old - 1)), places - low)
        x = _along(x, axis, matrix)
    return x
