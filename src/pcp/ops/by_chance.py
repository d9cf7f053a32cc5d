"""Rounding up or down by a chance that keeps the mean: what changes by less than numbers are apart moves on average.

The chance is a hash of a number and its place, so the same numbers are rounded to the same bits.

Source: Gupta et al., "Deep Learning with Limited Numerical Precision", 2015, section 3.
"""

import numpy as np

from pcp.ir import DType
from pcp.ops.elementwise import bitcast, bitwise_and, bitwise_xor, convert, is_finite, shift_right, where
from pcp.ops.movement import iota, reshape
from pcp.tensor import Tensor


def noise_of(x: Tensor) -> Tensor:
    """32 random bits for each number of float32: a hash of it and its place, the end of MurmurHash3."""
    places = reshape(iota((x.size,), 0, DType.u32), x.shape) * np.uint32(0x9E3779B1)
    mixed = bitcast(x, DType.u32) + places
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        mixed = bitwise_xor(mixed, shift_right(mixed, np.uint32(shift))) * np.uint32(factor)
    return bitwise_xor(mixed, shift_right(mixed, np.uint32(16)))


def bf16_by_chance(x: Tensor) -> Tensor:
    """Numbers of float32 in bfloat16, each one of its two neighbours there; what is not finite stays so."""
    low = bitwise_and(noise_of(x), np.uint32(0xFFFF))
    bits = bitwise_and(bitcast(x, DType.u32) + low, np.uint32(0xFFFF0000))
    return convert(where(is_finite(x), bitcast(bits, DType.f32), x), DType.bf16)
