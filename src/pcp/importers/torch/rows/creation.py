"""Tensors from nothing: the shape and element type are those of PyTorch's result."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcp import ops
from pcp.importers.torch.table import row
from pcp.ir import TensorSpec
from pcp.tensor import Tensor, TensorLike, as_tensor


def _filled(value: TensorLike, result: TensorSpec) -> Tensor:
    return ops.broadcast_to(ops.convert(value, result.dtype), result.shape)


@row(
    "full.default",
    "full_like.default",
    "new_full.default",
    "fill.Scalar",
    "fill.Tensor",
    "scalar_tensor.default",
    knows_result=True,
)
def full(*arguments: TensorLike, result: TensorSpec, **_: object) -> Tensor:
    """One value everywhere, the last argument."""
    return _filled(arguments[-1], result)


@row(
    "zeros.default",
    "zeros_like.default",
    "new_zeros.default",
    "empty.memory_format",
    "empty_like.default",
    "empty_strided.default",
    "new_empty.default",
    "new_empty_strided.default",
    knows_result=True,
)
def zeros(*_: object, result: TensorSpec, **__: object) -> Tensor:
    """Zeros, which also stand in what PyTorch leaves undefined."""
    return _filled(0, result)


@row("ones.default", "ones_like.default", "new_ones.default", knows_result=True)
def ones(*_: object, result: TensorSpec, **__: object) -> Tensor:
    """Ones."""
    return _filled(1, result)


@row("arange.start_step", "arange.start", "arange.default", knows_result=True)
def arange(*bounds: float, result: TensorSpec, **_: object) -> Tensor:
    """Evenly spaced numbers: start + step * (0, 1, 2, ...)."""
    start, step = (0, 1) if len(bounds) == 1 else (bounds[0], bounds[2] if len(bounds) == 3 else 1)
    counted = ops.iota(result.shape, 0, result.dtype)
    counted = counted if step == 1 else counted * ops.convert(step, result.dtype)
    return counted if start == 0 else counted + ops.convert(start, result.dtype)


def _frequencies(frequencies: Callable[[int, float], np.ndarray[Any, Any]]) -> Callable[..., Tensor]:
    return lambda count, distance=1.0, **_: as_tensor(frequencies(count, distance))


row("fft_fftfreq.default")(_frequencies(np.fft.fftfreq))
row("fft_rfftfreq.default")(_frequencies(np.fft.rfftfreq))
