"""Small unsigned integers packed into bytes, row by row."""

import numpy as np

from pcp.ir import DType
from pcp.ops import bitwise_and, bitwise_or, concatenate, convert, shift_left, shift_right, split
from pcp.tensor import Tensor


def pack_2_bits(codes: Tensor) -> Tensor:
    """Four numbers below 4 in a byte: u8 (rows, m / 4) of u8 (rows, m); a byte takes one from each quarter of the row."""
    packed, *others = split(codes, 4, 1)
    for place, part in enumerate(others, start=1):
        packed = bitwise_or(packed, shift_left(part, np.uint8(2 * place)))
    return packed


def unpack_2_bits(packed: Tensor) -> Tensor:
    """The inverse of `pack_2_bits`."""
    shifted = (shift_right(packed, np.uint8(2 * place)) for place in range(4))
    return concatenate([bitwise_and(part, np.uint8(3)) for part in shifted], 1)


def pack_12_bits(numbers: Tensor) -> Tensor:
    """Two numbers below 4096 in three bytes: u8 (rows, 3 m / 2) of i32 (rows, m).

    The first third of a row's bytes holds the lower bytes of the first half of its numbers, the second third the upper
    nibbles of both halves, and the last third the lower bytes of the second half.
    """
    first, second = split(numbers, 2, 1)
    nibbles = bitwise_or(shift_right(first, 8), shift_left(shift_right(second, 8), 4))
    lower = (bitwise_and(half, 255) for half in (first, nibbles, second))
    return convert(concatenate(list(lower), 1), DType.u8)


def unpack_12_bits(packed: Tensor) -> Tensor:
    """The inverse of `pack_12_bits`, as i32."""
    first, nibbles, second = split(convert(packed, DType.i32), 3, 1)
    first = bitwise_or(first, shift_left(bitwise_and(nibbles, 15), 8))
    second = bitwise_or(second, shift_left(shift_right(nibbles, 4), 8))
    return concatenate([first, second], 1)
