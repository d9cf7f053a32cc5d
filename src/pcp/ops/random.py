"""Random numbers as functions of a key: the same key gives the same numbers, on every backend.

A key is two words, u32[2]. It is used once; `split` makes new ones of it, `fold_in` one for every number (a step, a layer).
The bits are JAX's bit for bit (see `pcp.ops.threefry`); numbers made from them by logarithms and the like agree to rounding.
"""

import math
from typing import overload

import numpy as np

from pcp.ir import DType, DTypeLike
from pcp.ir.types import checked_shape, dtype_of
from pcp.ops.elementwise import (
    abs_,
    bitcast,
    bitwise_or,
    clip,
    convert,
    equal,
    erf,
    erf_inv,
    fmod,
    less,
    log,
    log1p,
    maximum,
    shift_right,
    where,
)
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.indexing.reading import take
from pcp.ops.movement import iota, stack
from pcp.ops.movement.axes import checked_axis
from pcp.ops.promotion import broadcast_shape
from pcp.ops.record import Cost, Kind, declare
from pcp.ops.reductions.extremes import argmax
from pcp.ops.sorting.sorting import argsort
from pcp.ops.threefry import checked_key, counted_words, folded, random_words
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor, TensorLike, as_tensor, explained

Shape = tuple[int, ...] | int

_MANTISSA = {DType.f64: 52, DType.f32: 23, DType.f16: 10, DType.bf16: 7}
_SMALLEST = {DType.f64: 2.0**-1022, DType.f32: 2.0**-126, DType.f16: 2.0**-14, DType.bf16: 2.0**-126}


@overload
def key(seed: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]: ...
@overload
def key(seed: Tensor) -> Tensor: ...
@explained
def key(seed: int | Tensor) -> np.ndarray[tuple[int], np.dtype[np.uint32]] | Tensor:
    """The key of a seed: an array u32[2] from a Python integer, inside and outside of traced functions; a Tensor from a Tensor.

    Arguments:
        seed: below 2^64 in magnitude; an integer scalar if it is a Tensor.

    Raises:
        DTypeMismatch: the seed is no integer scalar.
    """
    if not isinstance(seed, Tensor):
        number = int(seed) % 2**64
        return np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)
    if seed.shape != () or not seed.dtype.is_integer:
        raise DTypeMismatch(f"key: the seed is {seed.spec}; expected an integer scalar")
    low = convert(seed, DType.u32)
    high = convert(shift_right(seed, 32), DType.u32) if seed.dtype.itemsize == 8 else low ^ low
    return stack([high, low])


@explained
def split(key: TensorLike, count: int = 2) -> Tensor:
    """`count` new keys, u32[count, 2], that replace the given one."""
    return stack(counted_words(checked_key(key), checked_shape(count)), -1)


@explained
def fold_in(key: TensorLike, data: TensorLike) -> Tensor:
    """A new key for a number: an integer scalar, taken modulo 2^32.

    Raises:
        DTypeMismatch: the number is no integer scalar.
    """
    return folded(key, data)


@explained
def bits(key: TensorLike, shape: Shape = (), dtype: DTypeLike = DType.u32) -> Tensor:
    """Random unsigned integers, all values of the type equally probable.

    Raises:
        DTypeMismatch: `dtype` is no unsigned type.
    """
    return random_words(key, shape, dtype)


@explained
def uniform(
    key: TensorLike,
    shape: Shape = (),
    dtype: DTypeLike = DType.f32,
    low: TensorLike = 0.0,
    high: TensorLike = 1.0,
) -> Tensor:
    """Random floats, evenly distributed over low <= x < high.

    Arguments:
        shape: of the result.
        dtype: a floating-point type.
        low, high: bounds, whose shapes broadcast to `shape`.

    Raises:
        DTypeMismatch: `dtype` is no floating-point type.
    """
    wanted = _floating("uniform", dtype)
    sizes = checked_shape(shape)
    mantissa = _MANTISSA[wanted]
    word = DType(f"u{8 * wanted.itemsize}")
    width = 8 if mantissa < 8 else 8 * wanted.itemsize
    random = convert(random_words(key, sizes, DType(f"u{width}")), word)
    one = np.asarray(1, wanted.numpy).view(word.numpy)
    # Bits in the mantissa of 1 are a number from 1 to 2.
    unit = bitcast(bitwise_or(shift_right(random, width - mantissa), one), wanted) - 1
    bounds = [convert(as_tensor(bound, wanted), wanted) for bound in (low, high)]
    return maximum(bounds[0], unit * (bounds[1] - bounds[0]) + bounds[0])


@explained
def normal(key: TensorLike, shape: Shape = (), dtype: DTypeLike = DType.f32) -> Tensor:
    """Random floats, normally distributed with mean 0 and variance 1: the inverse error function of uniform ones.

    Raises:
        DTypeMismatch: `dtype` is no floating-point type.
    """
    wanted = _floating("normal", dtype)
    least = np.nextafter(np.asarray(-1, wanted.numpy), np.asarray(0, wanted.numpy))
    return _scaled(erf_inv(uniform(key, shape, wanted, least, 1)), wanted)


@explained
def truncated_normal(
    key: TensorLike,
    low: TensorLike,
    high: TensorLike,
    shape: Shape | None = None,
    dtype: DTypeLike = DType.f32,
) -> Tensor:
    """Random floats, normally distributed with mean 0 and variance 1 under the condition low < x < high.

    Arguments:
        low, high: bounds, whose shapes broadcast to `shape`.
        shape: of the result; None: that to which the bounds broadcast.

    Raises:
        DTypeMismatch: `dtype` is no floating-point type.
    """
    wanted = _floating("truncated_normal", dtype)
    bounds = [convert(as_tensor(bound, wanted), wanted) for bound in (low, high)]
    sizes = (
        broadcast_shape("truncated_normal", *(b.shape for b in bounds))
        if shape is None
        else checked_shape(shape)
    )
    root = np.asarray(math.sqrt(2), wanted.numpy)
    inside = [erf(bound / root) for bound in bounds]
    drawn = _scaled(erf_inv(uniform(key, sizes, wanted, *inside)), wanted)
    return clip(drawn, *(_next(bound, way) for bound, way in zip(bounds, (1, -1), strict=True)))


@explained
def bernoulli(key: TensorLike, probability: TensorLike = 0.5, shape: Shape | None = None) -> Tensor:
    """Random booleans.

    Arguments:
        probability: that an element is true; floats, whose shape broadcasts to `shape`.
        shape: of the result; None: that of `probability`.
    """
    chance = as_tensor(probability)
    if not chance.dtype.is_float:
        chance = convert(chance, DType.f32)
    return less(uniform(key, chance.shape if shape is None else shape, chance.dtype), chance)


@explained
def exponential(key: TensorLike, shape: Shape = (), dtype: DTypeLike = DType.f32) -> Tensor:
    """Random floats, exponentially distributed with mean 1.

    Raises:
        DTypeMismatch: `dtype` is no floating-point type.
    """
    return -log1p(-uniform(key, shape, _floating("exponential", dtype)))


@explained
def gumbel(key: TensorLike, shape: Shape = (), dtype: DTypeLike = DType.f32) -> Tensor:
    """Random floats of the standard Gumbel distribution: the largest of many alike.

    Raises:
        DTypeMismatch: `dtype` is no floating-point type.
    """
    wanted = _floating("gumbel", dtype)
    return -log(-log(uniform(key, shape, wanted, _SMALLEST[wanted], 1)))


@explained
def categorical(key: TensorLike, logits: TensorLike, axis: int = -1) -> Tensor:
    """A random class, as i32, with the probabilities softmax(logits).

    Arguments:
        logits: floats, any shape.
        axis: the axis of the classes, which the result lacks.

    Source: Gumbel, "Statistical Theory of Extreme Values and Some Practical Applications", 1954: the largest of logits with
    independent Gumbel noise.
    """
    scores = as_tensor(logits)
    if not scores.dtype.is_float:
        scores = convert(scores, DType.f32)
    place = checked_axis("categorical", axis, scores.ndim)
    return argmax(gumbel(key, scores.shape, scores.dtype) + scores, place)


@explained
def randint(key: TensorLike, shape: Shape, low: int, high: int, dtype: DTypeLike = DType.i32) -> Tensor:
    """Random integers low <= x < high.

    Arguments:
        low, high: Python integers that the type holds (`high` may be one more). Random
            bits, 32 or 64, are reduced modulo high - low: probabilities differ by a share below (high - low) / 2^bits.

    Raises:
        DTypeMismatch: `dtype` is no integer type, or does not hold the bounds.
        ShapeMismatch: there is no integer between the bounds.
    """
    wanted = dtype_of(dtype)
    if not wanted.is_integer:
        raise DTypeMismatch(f"randint: element type {wanted} was given; expected an integer type")
    limits = np.iinfo(wanted.numpy)
    if low >= high:
        raise ShapeMismatch(f"randint: bounds {low} and {high} were given; expected low < high")
    if low < limits.min or high > limits.max + 1:
        raise DTypeMismatch(f"randint: {wanted} does not hold all integers from {low} to {high - 1}")
    width = max(32, 8 * wanted.itemsize)
    word, span = DType(f"u{width}"), high - low
    keys = split(key)
    above, below = (random_words(keys[i], shape, word) for i in range(2))
    if span < 2**width:
        # (above 2^width + below) modulo span, in arithmetic modulo 2^width
        carry = pow(2, width // 2, span) ** 2 % 2**width % span
        below = fmod(fmod(above, span) * carry + fmod(below, span), span)
    wide = DType(f"i{width}") if wanted.kind == "signed" else word
    return convert(bitcast(below, wide) + low, wanted)


@explained
def permutation(key: TensorLike, x: TensorLike | int, axis: int = 0) -> Tensor:
    """The slices of x along an axis in random order, all orders equally probable; for an integer x, the numbers below it.

    By sorting with random keys, as often as makes equal keys improbable.
    """
    if isinstance(x, int):
        return _shuffled(key, x)
    tensor = as_tensor(x)
    place = checked_axis("permutation", axis, tensor.ndim)
    return take(tensor, _shuffled(key, tensor.shape[place]), place)


@explained
def choice(
    key: TensorLike, x: TensorLike | int, shape: Shape = (), replace: bool = True, axis: int = 0
) -> Tensor:
    """Random slices of x along an axis; or random numbers below x, if x is a Python integer.

    Arguments:
        shape: how many; it takes the place of the axis.
        replace: whether a slice may be taken several times.

    Raises:
        ShapeMismatch: there are fewer slices than are to be taken, and none may be taken twice.
    """
    sizes = checked_shape(shape)
    tensor = iota((x,)) if isinstance(x, int) else as_tensor(x)
    place = checked_axis("choice", axis, tensor.ndim)
    size, count = tensor.shape[place], math.prod(sizes)
    if not size or (not replace and count > size):
        raise ShapeMismatch(
            f"choice: {count} of {size} slices were asked for; expected at most as many as there are"
        )
    if replace:
        return take(tensor, randint(key, sizes, 0, size), place)
    return take(tensor, _shuffled(key, size)[:count].reshape(sizes), place)


def _shuffled(key: TensorLike, size: int) -> Tensor:
    order, current = iota((size,)), checked_key(key)
    rounds = math.ceil(3 * math.log(max(1, size)) / math.log(2**32 - 1))
    for _ in range(rounds):
        keys = split(current)
        current = keys[0]
        order = take_along_axis(order, argsort(random_words(keys[1], (size,), DType.u32)), 0)
    return order


def _floating(name: str, dtype: DTypeLike) -> DType:
    wanted = dtype_of(dtype)
    if not wanted.is_float:
        raise DTypeMismatch(f"{name}: element type {wanted} was given; expected f16, bf16, f32 or f64")
    return wanted


def _scaled(x: Tensor, dtype: DType) -> Tensor:
    return x * np.asarray(math.sqrt(2), dtype.numpy)


def _next(x: Tensor, way: int) -> Tensor:
    """The float next to x, upwards or downwards; infinities stay."""
    word = DType(f"i{8 * x.dtype.itemsize}")
    tiny = np.asarray(1, word.numpy).view(x.dtype.numpy) * way
    raw = bitcast(x, word)
    stepped = bitcast(where(less(raw, 0), raw - way, raw + way), x.dtype)
    return where(equal(x, 0), tiny, where(equal(abs_(x), math.inf), x, stepped))


declare("rng", Kind.creation, cost=Cost.heavy_move, has_effect=True)
declare("rng_bit_generator", Kind.creation, cost=Cost.heavy_move)
