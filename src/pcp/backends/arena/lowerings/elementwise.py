"""Operations of each element: one call of NumPy where it has the operation, else a few into the same memory."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.bits import count_leading_zeros, reduce_precision, total_order
from pcp.backends.arena.recording import Lowering, Recorder, refused
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import comparison_direction, integer_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.elementwise.comparison import COMPARISONS

Array = np.ndarray[Any, Any]

BLOCK = 8192
"""Elements that a function goes over at once if it takes memory on the way."""


def shape_of(operands: Sequence[View]) -> tuple[int, ...]:
    """The shape of an elementwise result: in a reduction's body the shape of whole arrays, which its type does not say."""
    return np.broadcast_shapes(*(view.shape for view in operands))


def single(function: Callable[..., object]) -> Lowering:
    """One call that writes an element when it has read those at its place, so that it may write over an operand."""

    def lower(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
        out = r.result(op, shape=shape_of(operands), reuse=operands)
        r.emit(function, *operands, out)
        return [out]

    return lower


def several(function: Callable[..., object]) -> Lowering:
    """A function that goes over its operands more than once, so that it may not write over them."""

    def lower(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
        out = r.result(op, shape=shape_of(operands))
        r.emit(in_blocks(function, out.size), *operands, out)
        return [out]

    return lower


def in_blocks(function: Callable[..., object], size: int) -> Callable[..., object]:
    """A function that computes a large result block by block: what NumPy takes on the way then has the size of a block.

    Arguments:
        function: of arrays, each element from those at its place, and last the array that it writes.
        size: elements of the result.
    """
    if size <= BLOCK:
        return function

    @functools.wraps(function)
    def blocked(*arguments: Any) -> None:
        *operands, out = arguments
        spread = [np.broadcast_to(x, out.shape) if isinstance(x, np.ndarray) else x for x in operands]
        for place in blocks_of(out.shape):
            function(*(x[place] if isinstance(x, np.ndarray) else x for x in spread), out[place])

    return blocked


def blocks_of(shape: Sequence[int], most: int = BLOCK) -> Iterator[tuple[int | slice, ...]]:
    """The places of blocks of at most so many elements, which together are an array of a shape that is not empty."""
    if not shape:
        yield ()
        return
    axis = next(axis for axis in range(len(shape)) if math.prod(shape[axis + 1 :]) <= most)
    step = max(1, most // math.prod(shape[axis + 1 :]))
    for outer in np.ndindex(*shape[:axis]):
        for first in range(0, shape[axis], step):
            yield (*outer, slice(first, first + step))


def by_type(**functions: Callable[..., object]) -> Lowering:
    """One function for each kind of element type: `b`, `i`, `u`, `f` and `c` as NumPy has them, `other` for the rest.

    A name with `_` behind it stands for a function that goes over its operands more than once.
    """
    table = {key[0]: (several if key.endswith("_") else single)(f) for key, f in functions.items()}

    def lower(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
        kind = kind_of(operands[0].dtype)
        chosen = table.get(kind) or table.get("o")
        if chosen is None:
            raise refused(op, f"it has no form of it for elements of {operands[0].dtype}")
        return chosen(r, op, operands)

    return lower


def kind_of(dtype: "np.dtype[Any]") -> str:
    """The kind of a type as NumPy has it; what ml_dtypes adds are floats, or integers of few bits."""
    if dtype.kind != "V":
        return dtype.kind
    return dtype.name[0] if dtype.name.startswith(("int", "uint")) else "f"


def maximum(x: Array, y: Array, out: Array) -> None:
    """The larger; NaN where one is."""
    np.maximum(x, y, out=out)


def minimum(x: Array, y: Array, out: Array) -> None:
    """The smaller; NaN where one is."""
    np.minimum(x, y, out=out)


def select(predicate: Array, yes: Array, no: Array, out: Array) -> None:
    """Of two elements the one that the predicate says."""
    np.copyto(out, no)
    np.copyto(out, yes, where=predicate)


def _lower_select(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    predicate, yes, no = operands
    shape = shape_of(operands)
    out = r.result(op, shape=shape, reuse=[no] if predicate.storage is not no.storage else ())
    if out.storage in (yes.storage, predicate.storage) and out != no:
        out = r.new(shape, no.dtype)
    if out == no and yes.storage is out.storage and yes != no:
        out = r.new(shape, no.dtype)
    if out == no:
        r.emit(_put, out, yes, predicate, writes=(0,))
    else:
        r.emit(select, predicate, yes, no, out)
    return [out]


def _put(out: Array, values: Array, predicate: Array) -> None:
    np.copyto(out, values, where=predicate)


def clamp(low: Array, x: Array, high: Array, out: Array) -> None:
    """Between two bounds; NaN stays."""
    np.maximum(x, low, out=out)
    np.minimum(out, high, out=out)


def _divide_integers(x: Array, y: Array, out: Array) -> None:
    """Towards zero; by 0 all bits are 1, as XLA has it."""
    safe = np.where(y == 0, y.dtype.type(1), y)
    quotient = np.floor_divide(x, safe)
    if x.dtype.kind == "i":
        inexact = (np.remainder(x, safe) != 0) & ((x < 0) != (safe < 0))
        quotient = quotient + inexact.astype(x.dtype)
    np.copyto(out, np.where(y == 0, ~x.dtype.type(0), quotient))


def _remainder_integers(x: Array, y: Array, out: Array) -> None:
    """With the sign of x; by 0 it is x."""
    safe = np.where(y == 0, y.dtype.type(1), y)
    np.copyto(out, np.where(y == 0, x, np.fmod(x, safe)))


def _power_integers(x: Array, y: Array, out: Array) -> None:
    """By squaring; a negative exponent leaves 1 and -1 what they are or become, and else 0."""
    negative = y < 0
    powered = np.power(x, np.where(negative, y.dtype.type(0), y))
    sign = np.where((y & 1) == 1, x, x.dtype.type(1))
    one = np.isin(x, [1, -1] if x.dtype.kind == "i" else [1])
    np.copyto(out, np.where(negative, np.where(one, sign, x.dtype.type(0)), powered))


def power(x: Array, y: Array, out: Array) -> None:
    """Of floats and complex numbers."""
    if x.dtype.kind != "V":
        np.power(x, y, out=out)
    else:
        np.copyto(out, np.power(x.astype(np.float32), y.astype(np.float32)), casting="unsafe")


def _sign(x: Array, out: Array) -> None:
    np.copyto(out, np.copysign(np.sign(x), x))


def _sign_complex(x: Array, out: Array) -> None:
    size = np.abs(x)
    np.copyto(out, np.where(size == 0, 0, x / np.where(size == 0, 1, size)))


def rsqrt(x: Array, out: Array) -> None:
    """1 / sqrt(x)."""
    np.sqrt(x, out)
    np.divide(out.dtype.type(1), out, out)


def logistic(x: Array, out: Array) -> None:
    """1 / (1 + exp(-x))."""
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, out.dtype.type(1), out)
    np.divide(out.dtype.type(1), out, out)


def _cbrt_complex(x: Array, out: Array) -> None:
    np.copyto(out, np.power(x, 1 / 3))


def _round_away(x: Array, out: Array) -> None:
    whole = np.trunc(x)
    np.copyto(out, whole + np.copysign(np.abs(x - whole) >= 0.5, x).astype(x.dtype), casting="unsafe")


def _shift(function: Callable[..., Any]) -> Callable[..., object]:
    """A shift whose amounts of as many bits as there are, or more, shift everything out."""

    def shift(x: Array, y: Array, out: Array) -> None:
        bits = 8 * x.dtype.itemsize
        wide = (y < 0) | (y >= bits)
        amount = np.where(wide, y.dtype.type(0), y)
        if function is np.left_shift:
            np.copyto(out, np.where(wide, x.dtype.type(0), np.left_shift(x, amount)))
            return
        name = f"{'u' if function is _LOGICAL else 'i'}{x.dtype.itemsize}"
        typed = x.view(name)
        filled = typed < 0
        shifted = np.right_shift(typed, amount.astype(name)).view(x.dtype)
        np.copyto(out, np.where(wide, np.where(filled, ~x.dtype.type(0), x.dtype.type(0)), shifted))

    return shift


def _LOGICAL() -> None: ...


def _compare(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    function = COMPARISONS[comparison_direction(op)]
    if "compare_type" in op.attributes and "TOTALORDER" in str(op.attributes["compare_type"]):

        def in_total_order(x: Array, y: Array, out: Array) -> None:
            function(total_order(x), total_order(y), out)

        return several(in_total_order)(r, op, operands)
    return single(function)(r, op, operands)


def _convert(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    (x,) = operands
    dtype = spec_of(op.results[0].type).dtype.numpy
    if x.dtype == dtype:
        return [x]
    source, target = kind_of(x.dtype), kind_of(dtype)
    out = r.result(op, shape=x.shape)
    if target == "b":
        r.emit(np.not_equal, x, r.constant(np.zeros((), x.dtype)), out)
    elif source == "c" and target != "c":
        function = _saturated if target in "iu" else narrowed
        r.emit(in_blocks(function, out.size), x.part(np.empty(0, x.dtype).real.dtype, 0), out)
    elif source == "f" and target in "iu":
        r.emit(in_blocks(_saturated, out.size), x, out)
    else:
        r.emit(in_blocks(narrowed, out.size), x, out)
    return [out]


def narrowed(x: Array, out: Array) -> None:
    """Numbers of another type, each rounded."""
    if "V" in (x.dtype.kind, out.dtype.kind) and out.dtype.kind in "cV" and x.dtype.kind in "cV":
        x = x.astype(np.float32)
    np.copyto(out, x, casting="unsafe")


def _saturated(x: Array, out: Array) -> None:
    """To the nearest integer towards zero that the type holds; 0 for NaN."""
    wide = x.astype(np.float64)
    if out.dtype.kind == "V":
        bits = int(out.dtype.name.removeprefix("u").removeprefix("int"))
        low, high = (
            (0, 2**bits - 1) if out.dtype.name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
    else:
        low, high = int(np.iinfo(out.dtype).min), int(np.iinfo(out.dtype).max)
    above, below = wide >= float(high), wide <= float(low)
    inside = np.where(above | below | np.isnan(wide), 0.0, wide)
    whole = np.trunc(inside).astype(np.uint64 if low == 0 and high > 2**62 else np.int64)
    np.copyto(out, whole.astype(out.dtype))
    np.copyto(out, np.asarray(high).astype(out.dtype), where=above)
    np.copyto(out, np.asarray(low).astype(out.dtype), where=below)


def _complex(real: Array, imag: Array, out: Array) -> None:
    out.real, out.imag = real, imag


def _part(which: int) -> Lowering:
    def lower(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
        del op
        (x,) = operands
        if x.dtype.kind != "c":
            return [x if which == 0 else r.constant(np.zeros((), x.dtype)).broadcast(x.shape)]
        half = np.empty(0, x.dtype).real.dtype
        return [x.part(half, which * half.itemsize)]

    return lower


def _popcnt(x: Array, out: Array) -> None:
    np.copyto(out, np.bitwise_count(x.view(f"u{x.dtype.itemsize}")), casting="unsafe")


def _reduce_precision(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    widths = [integer_of(op.attributes[name]) for name in ("exponent_bits", "mantissa_bits")]
    out = r.result(op, shape=operands[0].shape)
    r.emit(in_blocks(reduce_precision, out.size), operands[0], *widths, out)
    return [out]


def _atan2_complex(x: Array, y: Array, out: Array) -> None:
    """-i log((y + ix) / sqrt(x^2 + y^2)), where x is the first operand."""
    np.copyto(out, -1j * np.log((y + 1j * x) / np.sqrt(x * x + y * y)))


LOWERINGS: dict[str, Lowering] = {
    "add": by_type(b=np.logical_or, other=np.add),
    "subtract": by_type(b=np.logical_xor, other=np.subtract),
    "multiply": by_type(b=np.logical_and, other=np.multiply),
    "divide": by_type(i_=_divide_integers, u_=_divide_integers, other=np.divide),
    "remainder": by_type(i_=_remainder_integers, u_=_remainder_integers, other=np.fmod),
    "power": by_type(i_=_power_integers, u_=_power_integers, other_=power),
    "maximum": single(maximum),
    "minimum": single(minimum),
    "atan2": by_type(c_=_atan2_complex, other=np.arctan2),
    "and": by_type(b=np.logical_and, other=np.bitwise_and),
    "or": by_type(b=np.logical_or, other=np.bitwise_or),
    "xor": by_type(b=np.logical_xor, other=np.bitwise_xor),
    "not": by_type(b=np.logical_not, other=np.bitwise_not),
    "shift_left": several(_shift(np.left_shift)),
    "shift_right_arithmetic": several(_shift(np.right_shift)),
    "shift_right_logical": several(_shift(_LOGICAL)),
    "negate": single(np.negative),
    "abs": single(np.abs),
    "sign": by_type(f_=_sign, c_=_sign_complex, other=np.sign),
    "exponential": single(np.exp),
    "exponential_minus_one": single(np.expm1),
    "log": single(np.log),
    "log_plus_one": single(np.log1p),
    "sqrt": single(np.sqrt),
    "rsqrt": single(rsqrt),
    "cbrt": by_type(c_=_cbrt_complex, other=np.cbrt),
    "sine": single(np.sin),
    "cosine": single(np.cos),
    "tan": single(np.tan),
    "tanh": single(np.tanh),
    "logistic": single(logistic),
    "floor": single(np.floor),
    "ceil": single(np.ceil),
    "round_nearest_even": single(np.rint),
    "round_nearest_afz": several(_round_away),
    "is_finite": single(np.isfinite),
    "popcnt": several(_popcnt),
    "count_leading_zeros": several(count_leading_zeros),
    "compare": _compare,
    "select": _lower_select,
    "clamp": several(clamp),
    "convert": _convert,
    "reduce_precision": _reduce_precision,
    "real": _part(0),
    "imag": _part(1),
    "complex": several(_complex),
}
