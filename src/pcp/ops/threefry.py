"""Threefry-2x32: random bits as a function of a key and a counter, in integer arithmetic alone.

So they are the same on every backend, and the same as JAX's (with `jax_threefry_partitionable`, its default): the bits of an
element depend on the key and the element's place only.

Source: Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011, section 3.3.
"""

import math

import numpy as np

from pcp.ir import DType, DTypeLike
from pcp.ir.types import checked_shape, dtype_of
from pcp.ops.elementwise import bitwise_or, bitwise_xor, convert, shift_left, shift_right
from pcp.ops.movement import iota, reshape, stack
from pcp.tensor import DTypeMismatch, Tensor, TensorLike, TracingError, as_tensor

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA  # makes the third word of the key schedule differ from zero for a key of zeros


class NoKey(TracingError):
    """What was given as a key of random numbers is no key."""


def checked_key(key: TensorLike) -> Tensor:
    """The key as a Tensor.

    Raises:
        NoKey: it is not two words of u32.
    """
    tensor = as_tensor(key)
    if tensor.shape != (2,) or tensor.dtype is not DType.u32:
        raise NoKey(
            f"a key of {tensor.spec} was given; expected u32[2], as pcp.random.key(seed) and split make it"
        )
    return tensor


def threefry(key: Tensor | tuple[Tensor, Tensor], high: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    """20 rounds of Threefry on counters.

    Arguments:
        key: u32[2], or its two words.
        high, low: the two words of the counters, u32 of one shape, to which those of the key broadcast.

    Returns:
        Two words of random bits for every counter.
    """
    first, second = key[0], key[1]
    schedule = (first, second, bitwise_xor(bitwise_xor(first, second), PARITY))
    high, low = high + first, low + second
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            high = high + low
            low = bitwise_xor(high, bitwise_or(shift_left(low, distance), shift_right(low, 32 - distance)))
        high = high + schedule[(group + 1) % 3]
        low = low + (schedule[(group + 2) % 3] + (group + 1))
    return high, low


def counted_words(key: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Two words of random bits for every element of a shape; the counter is its place in row-major order."""
    size = math.prod(shape)
    if size < 2**32:
        low = iota((size,), 0, DType.u32)
        high = bitwise_xor(low, low)
    else:
        places = iota((size,), 0, DType.u64)
        high, low = convert(shift_right(places, 32), DType.u32), convert(places, DType.u32)
    first, second = threefry(key, high, low)
    return reshape(first, shape), reshape(second, shape)


def random_words(key: TensorLike, shape: tuple[int, ...] | int, dtype: DTypeLike) -> Tensor:
    """Random bits as unsigned integers, all values equally probable.

    Raises:
        DTypeMismatch: `dtype` is no unsigned type.
    """
    wanted = dtype_of(dtype)
    if wanted.kind != "unsigned":
        raise DTypeMismatch(f"bits: element type {wanted} was given; expected u8, u16, u32 or u64")
    first, second = counted_words(checked_key(key), checked_shape(shape))
    if wanted is DType.u64:
        return bitwise_or(shift_left(convert(first, wanted), 32), convert(second, wanted))
    return convert(bitwise_xor(first, second), wanted)


def folded(key: TensorLike, data: TensorLike) -> Tensor:
    """A key that a key and a number make."""
    number = (
        as_tensor(int(data) % 2**32, DType.u32) if isinstance(data, int | np.integer) else as_tensor(data)
    )
    if number.shape != () or not number.dtype.is_integer:
        raise DTypeMismatch(f"fold_in: the number is {number.spec}; expected an integer scalar")
    low = convert(number, DType.u32)
    return stack(threefry(checked_key(key), bitwise_xor(low, low), low))
