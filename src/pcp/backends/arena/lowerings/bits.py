"""Operations on the bits of numbers, which NumPy does not have."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def total_order(x: Array) -> Array:
    """Integers in the total order of IEEE 754: -NaN, -inf, ..., -0, 0, ..., inf, NaN; integers are their own."""
    if x.dtype.kind in "biu":
        return x
    bits = x.view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def count_leading_zeros(x: Array, out: Array) -> None:
    """How many zeros stand before the first one."""
    bits = 8 * x.dtype.itemsize
    left = x.view(f"u{x.dtype.itemsize}").copy()
    step = bits // 2
    while step:
        np.bitwise_or(left, left >> left.dtype.type(bits // 2 // step), left)
        step //= 2
    np.copyto(out, bits - np.bitwise_count(left).astype(np.int64), casting="unsafe")


def reduce_precision(x: Array, exponent_bits: int, mantissa_bits: int, out: Array) -> None:
    """Each number as a format of fewer bits has it: rounded to even, infinite above its range, 0 below its normal one."""
    wide = x.astype(np.float64)
    fraction, exponent = np.frexp(wide)
    scale = np.ldexp(1.0, mantissa_bits + 1)
    rounded = np.ldexp(np.rint(fraction * scale) / scale, exponent)
    bias = 2 ** (exponent_bits - 1) - 1
    largest = np.ldexp(2.0 - np.ldexp(1.0, -mantissa_bits), bias)
    smallest = np.ldexp(1.0, 1 - bias)
    size = np.abs(rounded)
    if exponent_bits < 11:
        rounded = np.where(size > largest, np.copysign(np.inf, wide), rounded)
        rounded = np.where(size < smallest, np.copysign(0.0, wide), rounded)
    np.copyto(out, np.where(np.isfinite(wide), rounded, wide), casting="unsafe")
