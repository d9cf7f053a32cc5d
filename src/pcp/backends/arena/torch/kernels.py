"""What PyTorch computes: for each function that the arena calls the one of torch, and for which types."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

from pcp.backends.arena.lowerings.elementwise import (
    clamp,
    logistic,
    maximum,
    minimum,
    narrowed,
    power,
    rsqrt,
    select,
)
from pcp.backends.arena.lowerings.reductions import along
from pcp.backends.arena.recording import copy_rounded

Types = frozenset["np.dtype[Any]"]


def _types(*types: Any) -> Types:
    return frozenset(map(np.dtype, types))


BFLOAT16 = _types(ml_dtypes.bfloat16)
NARROW = BFLOAT16 | _types(np.float16)
FLOATS = NARROW | _types(np.float32, np.float64)
INTEGERS = _types(np.int8, np.int16, np.int32, np.int64, np.uint8)
COMPLEX = _types(np.complex64, np.complex128)
NUMBERS = FLOATS | INTEGERS
PRODUCTS = NUMBERS - _types(np.float16) | COMPLEX
"""All but products of float16, which it adds up too slowly: the arena makes them float32 first."""
COPIED = NUMBERS | COMPLEX | _types(bool)

NARROW_LEAST = 256
"""Elements from which torch is faster for floats of 16 bits, that NumPy computes one by one."""
LEAST = (1 << 14) + 1
"""Elements from which it is for other types: smaller ones belong to NumPy and the native library, whose calls begin sooner."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function of torch in the place of one of the arena.

    Arguments:
        function: takes the same arguments, with tensors for arrays.
        types: of all arrays but those that are `apart`.
        apart: places of the arguments that may have other types, and which.
        is_elementwise: whether a call is worth it from some size on, which the result says.
    """

    function: Callable[..., object]
    types: Types
    apart: tuple[tuple[int, Types], ...] = ()
    is_elementwise: bool = True


def _into(function: Callable[..., object]) -> Callable[..., object]:
    """A function of torch with the array to write as its last argument."""

    def call(*arguments: Any) -> None:
        *operands, out = arguments
        function(*operands, out=out)

    return call


def _copied(target: torch.Tensor, source: torch.Tensor) -> None:
    target.copy_(source)


def _converted(source: torch.Tensor, target: torch.Tensor) -> None:
    target.copy_(source)


def _clamped(low: torch.Tensor, x: torch.Tensor, high: torch.Tensor, out: torch.Tensor) -> None:
    torch.maximum(x, low, out=out)
    torch.minimum(out, high, out=out)


_REDUCTIONS: dict[Any, Callable[..., object]] = {
    np.add: lambda x, axes, out: torch.sum(x, axes, dtype=out.dtype, out=out),
    np.maximum: lambda x, axes, out: torch.amax(x, axes, out=out),
    np.minimum: lambda x, axes, out: torch.amin(x, axes, out=out),
}
REDUCED = frozenset(_REDUCTIONS)
"""The ufuncs by which torch reduces several axes at once."""


def _reduced(ufunc: Any, x: torch.Tensor, axes: tuple[int, ...], out: torch.Tensor) -> None:
    _REDUCTIONS[ufunc](x, axes, out)


_FUNCTIONS: dict[Callable[..., object], Callable[..., object]] = {
    np.exp: torch.exp, np.expm1: torch.expm1, np.log: torch.log, np.log1p: torch.log1p, np.sqrt: torch.sqrt,
    rsqrt: torch.rsqrt, np.sin: torch.sin, np.cos: torch.cos, np.tan: torch.tan, np.tanh: torch.tanh,
    logistic: torch.sigmoid, np.floor: torch.floor, np.ceil: torch.ceil, np.rint: torch.round,
    np.arctan2: torch.atan2, power: torch.pow, np.divide: torch.divide,
    np.add: torch.add, np.subtract: torch.subtract, np.multiply: torch.multiply, maximum: torch.maximum,
    minimum: torch.minimum, np.negative: torch.negative, np.abs: torch.abs,
}  # fmt: skip
_COMPARISONS: dict[Callable[..., object], Callable[..., object]] = {
    np.equal: torch.eq, np.not_equal: torch.ne, np.less: torch.lt, np.less_equal: torch.le, np.greater: torch.gt,
    np.greater_equal: torch.ge,
}  # fmt: skip
_BOOL = _types(bool)

KERNELS: dict[Callable[..., object], Kernel] = {
    **{function: Kernel(_into(theirs), NARROW) for function, theirs in _FUNCTIONS.items()},
    **{function: Kernel(_into(theirs), NARROW, ((2, _BOOL),)) for function, theirs in _COMPARISONS.items()},
    select: Kernel(_into(torch.where), COPIED, ((0, _BOOL),)),
    clamp: Kernel(_clamped, NARROW),
    narrowed: Kernel(_converted, FLOATS, ((0, NUMBERS),)),
    copy_rounded: Kernel(_converted, FLOATS, ((0, NUMBERS),)),
    np.copyto: Kernel(_copied, COPIED),
    np.matmul: Kernel(_into(torch.matmul), PRODUCTS, is_elementwise=False),
    along: Kernel(_reduced, NUMBERS, ((1, NUMBERS),), is_elementwise=False),
}
"""The kernels of torch, by the functions of the arena whose place they take.

Functions of each element are here for floats of 16 bits alone: wider ones NumPy computes as fast, or faster, on one core.
Whether products of float32 are faster depends on the processor; a search measures it."""
