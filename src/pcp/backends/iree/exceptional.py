"""Powers, shifts by 0, and in float32 and fewer bits other functions, that IREE 3.13 gets wrong: of zeros, infinities, large
angles.

It computes `power(x, y)` as `exp(y log x)`, also of negative x, does not see the sign of a zero, and takes multiples of a
full turn off with one rounded number. On Vulkan it gets shifts of 64-bit integers
by 0 wrong, and no others.
"""

import math
from collections.abc import Callable

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.elementwise import convert
from pcp.ops.elementwise.comparison import where
from pcp.ops.elementwise.rounding import floor, round_
from pcp.tensor import Tensor, current_builder

_TURN = (6.28125, 0.0019353071)
"""A full turn in two parts; products of the first with whole numbers below 2^16 are exact in float32."""


def is_exceptional(op: ir.Operation) -> bool:
    """Whether there is a form for the operation and its type."""
    if op.name not in WRITTEN:
        return False
    dtype = spec_of(op.results[0].type).dtype
    if op.name == "stablehlo.shift_left":
        return dtype in (DType.i64, DType.u64)
    return dtype in (DType.f32, DType.f16, DType.bf16) or (
        dtype is DType.f64 and op.name == "stablehlo.power"
    )


def written(op: ir.Operation, *operands: Tensor) -> Tensor:
    """An operation by its form, which computes in float32, of 64 bits in its own type."""
    dtype = spec_of(op.results[0].type).dtype
    through = dtype if dtype.itemsize == 8 else DType.f32
    result = WRITTEN[op.name](op.name, *(convert(each, through) for each in operands))
    return convert(result, dtype)


def _plain(name: str, *operands: Tensor) -> Tensor:
    op = ir.Operation.create(name, [operands[0].value.type], [each.value for each in operands])
    return Tensor(op.results[0], current_builder())


def _is_negative(x: Tensor) -> Tensor:
    """Also of -0.0."""
    return where(x == 0, 1 / x < 0, x < 0)


def _is_infinite(x: Tensor) -> Tensor:
    return abs(x) == math.inf


def _power(name: str, x: Tensor, y: Tensor) -> Tensor:
    """`|x|^y`, negative for a negative base and an odd exponent, NaN for one that is not whole."""
    size, half = abs(x), y * 0.5
    ends = (size == 0) | (size == math.inf)
    grows = (size == math.inf) == (y > 0)
    inside = where(ends, 1.0, size)
    power = where(ends & (y == y), where(grows, math.inf, 0.0), _plain(name, inside, y))
    power = where(_is_infinite(y) & (size == size), where((size > 1) == (y > 0), math.inf, 0.0), power)
    whole, even = floor(y) == y, floor(half) == half
    power = where((x < 0) & ~whole & ~ends, math.nan, power)
    power = where(_is_negative(x) & whole & ~even, -power, power)
    return where((y == 0) | (x == 1) | ((x == -1) & _is_infinite(y)), 1.0, power)


def _atan2(name: str, y: Tensor, x: Tensor) -> Tensor:
    """The angle of `(x, |y|)`, with the sign of y."""
    height = abs(y)
    both = (height == math.inf) & _is_infinite(x)
    wide = where(both, where(x > 0, 1.0, -1.0), x)
    nothing = (y == 0) & (x == 0)
    angle = _plain(name, where(both, 1.0, height), where(nothing, 1.0, wide))
    angle = where(y == 0, where(x == x, where(_is_negative(x), math.pi, 0.0), math.nan), angle)
    return where(_is_negative(y), -angle, angle)


def _cbrt(name: str, x: Tensor) -> Tensor:
    return where(_is_infinite(x), x, _plain(name, x))


def _within_a_turn(name: str, x: Tensor) -> Tensor:
    """A function of an angle, of what is left when full turns are taken off."""
    turns = round_(x * (0.5 / math.pi))
    left = (x - turns * _TURN[0]) - turns * _TURN[1]
    return _plain(name, where(abs(x) < 6.0, x, left))


def _shift_left(name: str, x: Tensor, count: Tensor) -> Tensor:
    return where(count == 0, x, _plain(name, x, count))


WRITTEN: dict[str, Callable[..., Tensor]] = {
    "stablehlo.power": _power,
    "stablehlo.atan2": _atan2,
    "stablehlo.cbrt": _cbrt,
    "stablehlo.sine": _within_a_turn,
    "stablehlo.cosine": _within_a_turn,
    "stablehlo.tan": _within_a_turn,
    "stablehlo.shift_left": _shift_left,
}
"""The forms, which call the operation itself where it is right."""
