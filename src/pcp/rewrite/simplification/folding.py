"""Operations on constants are computed here, by those of NumPy that IEEE 754 defines to the last bit.

Exponentials and the like stay: every library rounds them in its own way. So do results of more than 1,024 different numbers,
because MLIR keeps every constant for ever. A tensor of one repeated number is folded at any size.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import comparison_direction, integer_of
from pcp.ir.toolkit.constants import splat_number
from pcp.rewrite.pattern import (
    LARGEST_CONSTANT,
    Array,
    defined_by,
    elements,
    filled,
    is_default_accuracy,
    numbers,
    spec,
)
from pcp.rewrite.row import Effect, Replace, Row
from pcp.rewrite.simplification.conversion import holds
from pcp.rewrite.simplification.reshaping import Found
from pcp.tensor import as_tensor

Fold = Callable[..., Any]
_COMPARE: dict[str, Fold] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _divided(x: Array, y: Array) -> Array:
    """Floats by IEEE 754; integers rounded towards zero. XLA ends the process where it divides constants by 0 itself."""
    if x.dtype.kind not in "iub":
        return np.asarray(np.divide(x, y))
    divisor = np.where(y == 0, np.ones_like(y), y)
    quotient = np.floor_divide(
        x - np.fmod(x, divisor), divisor
    )  # no size is taken: the least integer has none
    return np.asarray(
        np.where(y == 0, ~np.zeros_like(x), quotient)
    )  # all bits are ones, as XLA's programs have it


def _rest(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iub":
        return np.asarray(np.fmod(x, y))
    return np.asarray(np.where(y == 0, x, np.fmod(x, np.where(y == 0, np.ones_like(y), y))))


def _extreme(chosen: Fold) -> Fold:
    def fold(x: Array, y: Array) -> Array | None:
        """Which of 0.0 and -0.0 is the larger depends on who is asked."""
        return None if ((x == 0) & (y == 0)).any() and x.dtype.kind not in "iub" else np.asarray(chosen(x, y))

    return fold


def _converted(x: Array, dtype: DType, own: DType) -> Array | None:
    if dtype.kind == "complex" or own.kind == "complex":
        return None
    if dtype is DType.bool:
        return np.asarray(x != 0)
    if own.is_float and dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        inside = np.isfinite(x) & (x > float(limits.min)) & (x < float(limits.max))
        return np.asarray(x.astype(dtype.numpy)) if inside.all() else None
    rounds_twice = dtype in (DType.bf16, DType.f16) and not holds(DType.f32, own)
    if rounds_twice and (x.astype(np.float32).astype(x.dtype) != x).any():
        return None  # NumPy goes by way of float32
    return np.asarray(x.astype(dtype.numpy))


# name -> the function of elements
ELEMENTWISE: dict[str, Fold] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "ceil": np.ceil,
    "compare": lambda x, y, op: _COMPARE[comparison_direction(op)](x, y),
    "convert": lambda x, op: _converted(x, spec(op.results[0]).dtype, spec(op.operands[0]).dtype),
    "divide": _divided,
    "floor": np.floor,
    "maximum": _extreme(np.maximum),
    "minimum": _extreme(np.minimum),
    "multiply": np.multiply,
    "negate": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "remainder": _rest,
    "round_nearest_even": np.rint,
    "sqrt": np.sqrt,
    "subtract": np.subtract,
    "xor": np.bitwise_xor,
}
_WITH_ATTRIBUTES = ("compare", "convert")

# name -> the function of elements and the operation
MOVING: dict[str, Fold] = {
    "broadcast_in_dim": lambda *_: None,  # of one repeated number only
    "concatenate": lambda *parts: np.concatenate(parts[:-1], integer_of(parts[-1].attributes["dimension"])),
    "reshape": lambda x, op: x.reshape(spec(op.results[0]).shape),
    "reverse": lambda x, op: np.flip(x, numbers(op, "dimensions")),
    "select": lambda p, x, y, _: np.where(p, x, y),
    "slice": lambda x, op: x[
        tuple(
            slice(*bounds)
            for bounds in zip(
                *(numbers(op, n) for n in ("start_indices", "limit_indices", "strides")), strict=True
            )
        )
    ],
    "transpose": lambda x, op: x.transpose(numbers(op, "permutation")),
}


def _elementwise(name: str) -> Replace:
    compute = ELEMENTWISE[name]

    def replace(op: ir.Operation) -> Found:
        whole = spec(op.results[0])
        if any(
            defined_by(value, "constant", "broadcast_in_dim") is None for value in op.operands
        ) or not is_default_accuracy(op):
            return None
        values = [splat_number(value) for value in op.operands]
        if None not in values:
            arrays = [np.array(n, spec(v).dtype.numpy) for n, v in zip(values, op.operands, strict=True)]
        else:
            arrays = [found for value in op.operands if (found := elements(value)) is not None]
            if len(arrays) < len(op.operands):
                return None
        with np.errstate(all="ignore"):
            result = compute(*arrays, op) if name in _WITH_ATTRIBUTES else compute(*arrays)
        if result is None:
            return None
        result = np.asarray(result).astype(whole.dtype.numpy)
        return [as_tensor(result) if result.shape == whole.shape else filled(whole, result)]

    return replace


def _moving(name: str) -> Replace:
    compute = MOVING[name]

    def replace(op: ir.Operation) -> Found:
        whole = spec(op.results[0])
        if any(defined_by(value, "constant", "broadcast_in_dim") is None for value in op.operands):
            return None
        values = [splat_number(value) for value in op.operands]
        if values[0] is not None and len(values) == 1 and spec(op.operands[0]).shape:
            return [filled(whole, values[0])]
        arrays = [found for value in op.operands if (found := elements(value)) is not None]
        if len(arrays) < len(op.operands) or whole.size > LARGEST_CONSTANT:
            return None
        result = compute(*arrays, op)
        return None if result is None else [as_tensor(np.ascontiguousarray(result).reshape(whole.shape))]

    return replace


ROWS: tuple[Row, ...] = (
    *(Row(f"fold_{name}", f"stablehlo.{name}", Effect.exact, _elementwise(name)) for name in ELEMENTWISE),
    *(Row(f"fold_{name}", f"stablehlo.{name}", Effect.exact, _moving(name)) for name in MOVING),
)  # 2 + 3 = 5
