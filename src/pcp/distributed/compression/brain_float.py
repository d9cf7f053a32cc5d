"""bfloat16 by the bits of f32: its upper half.

A compiler may drop a conversion to bfloat16 and back, and devices differ in what they make of numbers below the normal
range. Of integers none of that is true.
"""

import numpy as np

from pcp.ir import DType
from pcp.ops import bitcast, bitwise_and, bitwise_or, convert, minimum, shift_left, shift_right, where
from pcp.tensor import Tensor

INFINITY = np.uint32(0x7F800000)
NAN = np.uint32(0x7FC00000)
SMALLEST_NORMAL = np.uint32(0x00800000)
LARGEST = np.uint32(0x7F7F0000)
UPPER = np.uint32(0xFFFF0000)
SIGN = np.uint32(0x80000000)


def magnitude_bits(x: Tensor) -> Tensor:
    """The bits of |x|, as u32: in the order of |x|, and NaN after infinity."""
    return bitwise_and(bitcast(x, DType.u32), ~SIGN)


def sign_bits(x: Tensor) -> Tensor:
    """The bits of x, as u32, without all but the sign."""
    return bitwise_and(bitcast(x, DType.u32), SIGN)


def to_bf16(x: Tensor) -> Tensor:
    """x rounded to the nearest bf16, ties to even; finite numbers stay finite."""
    size = magnitude_bits(x)
    even = bitwise_and(shift_right(size, np.uint32(16)), np.uint32(1))
    rounded = minimum(bitwise_and(size + (even + np.uint32(0x7FFF)), UPPER), LARGEST)
    special = where(size > INFINITY, NAN, INFINITY)
    return bf16_of_bits(bitwise_or(where(size < INFINITY, rounded, special), sign_bits(x)))


def bf16_of_bits(bits: Tensor) -> Tensor:
    """The bf16 whose bits are the upper half of those given."""
    return bitcast(convert(shift_right(bits, np.uint32(16)), DType.u16), DType.bf16)


def from_bf16(x: Tensor) -> Tensor:
    """x as f32."""
    return bitcast(shift_left(convert(bitcast(x, DType.u16), DType.u32), np.uint32(16)), DType.f32)
