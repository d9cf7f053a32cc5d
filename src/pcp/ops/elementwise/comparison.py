"""Elementwise operations that compare and choose.

Kinks follow JAX: equal operands of a maximum share the cotangent, and bounds of a clamp pass nothing on.
"""

from typing import Any

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import comparison_direction
from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.elementwise.bits import bitwise_and
from pcp.ops.elementwise.forms import ANY, ORDERED, REAL, binary, by_numpy, comparison, elementwise, unary
from pcp.ops.movement import broadcast_to
from pcp.ops.promotion import broadcast_shape, promoted
from pcp.ops.record import Cost, Linear
from pcp.tensor import (
    OPERATIONS,
    DTypeMismatch,
    Tensor,
    TensorLike,
    WrongArgument,
    as_tensor,
    emit,
    export_operations,
    operation,
)

Array = np.ndarray[Any, Any]

COMPARISONS: dict[str, Any] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
"""Functions of NumPy, by the directions in which StableHLO compares."""


elementwise(
    "compare",
    functions=("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    types=ANY,
    cost=Cost.arithmetic,
    rounds=False,
    derivative=None,
    fold=lambda op, x, y: COMPARISONS[comparison_direction(op)](x, y),
)
equal = comparison("equal", "EQ", ANY, "x == y")
not_equal = comparison("not_equal", "NE", ANY, "x != y")
less = comparison("less", "LT", ORDERED, "x < y")
less_equal = comparison("less_equal", "LE", ORDERED, "x <= y")
greater = comparison("greater", "GT", ORDERED, "x > y")
greater_equal = comparison("greater_equal", "GE", ORDERED, "x >= y")


def _larger_gets(g: Tensor, x: Tensor, other: Tensor) -> Tensor:
    """g where x > other, half of it where they are equal, 0 elsewhere."""
    return where(greater(x, other), g, where(equal(x, other), 0.5 * g, 0))


def _extreme(chosen: Any) -> Any:
    def fold(_: ir.Operation, x: Array, y: Array) -> Array | None:
        """Which of 0.0 and -0.0 is the larger depends on who is asked."""
        return None if ((x == 0) & (y == 0)).any() and x.dtype.kind not in "iub" else np.asarray(chosen(x, y))

    return fold


maximum = binary(
    "maximum",
    "maximum",
    ANY,
    "the larger; NaN if either is",
    cost=Cost.arithmetic,
    rounds=False,
    derivative=(lambda g, y, a, b: _larger_gets(g, a, b), lambda g, y, a, b: _larger_gets(g, b, a)),
    fold=_extreme(np.maximum),
)
minimum = binary(
    "minimum",
    "minimum",
    ANY,
    "the smaller; NaN if either is",
    cost=Cost.arithmetic,
    rounds=False,
    derivative=(lambda g, y, a, b: _larger_gets(g, b, a), lambda g, y, a, b: _larger_gets(g, a, b)),
    fold=_extreme(np.minimum),
)

elementwise(
    "select",
    functions=("where",),
    cost=Cost.arithmetic,
    rounds=False,
    linear=Linear((1, 2)),
    scalars=(0,),
    derivative=(None, lambda g, y, p, a, b: where(p, g, 0), lambda g, y, p, a, b: where(p, 0, g)),
    fold=by_numpy(np.where),
)


@operation
def where(
    condition: TensorLike,
    x: TensorLike | None = None,
    y: TensorLike | None = None,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Tensor:
    """x where `condition` holds, else y, elementwise; shapes broadcast. Without x and y a tuple: `nonzero(condition)`.

    Arguments:
        size, fill_value: without x and y alone: as of `nonzero`.

    Raises:
        DTypeMismatch: the condition is not boolean.
        WrongArgument: one of x and y is missing, or both and a size.
    """
    if x is None or y is None:
        if x is not y:
            raise WrongArgument(
                "where: a condition was given with one of x and y alone; expected where(condition, x, y)"
            )
        if size is None:
            raise WrongArgument(
                "where: no size was given; expected where(..., size=n): how many elements there are must be known"
            )
        return OPERATIONS["nonzero"](condition, size=size, fill_value=fill_value)
    chosen = as_tensor(condition)
    if chosen.dtype is not DType.bool:
        raise DTypeMismatch(
            f"where: the condition has element type {chosen.dtype}; expected bool; compare it with something"
        )
    left, right = promoted(x, y)
    shape = broadcast_shape("where", chosen.shape, left.shape, right.shape)
    operands = (broadcast_to(chosen, shape), broadcast_to(left, shape), broadcast_to(right, shape))
    return emit("select", operands, (TensorSpec(shape, left.dtype),))


def _clamp(primal: Primal, g: Tensor) -> list[Cotangent]:
    low, x, high = primal.inputs
    chosen = (less(x, low), bitwise_and(greater(x, low), less(x, high)), greater(x, high))
    parts = [
        where(mask, g, 0) if active else None for mask, active in zip(chosen, primal.active, strict=True)
    ]
    # A bound may be a scalar for a tensor of any shape.
    return [
        None if p is None else p.sum() if bound.shape == () else p
        for p, bound in zip(parts, primal.inputs, strict=True)
    ]


elementwise("clamp", cost=Cost.arithmetic, rounds=False, scalars=(0, 2), derivative=_clamp)


@operation
def clip(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """x limited to min <= x <= max, elementwise; None is no limit; shapes broadcast."""
    tensor = as_tensor(x)
    above = tensor if min is None else maximum(tensor, min)
    return above if max is None else minimum(above, max)


is_finite = unary(
    "is_finite",
    "is_finite",
    REAL,
    "whether x is neither infinite nor NaN",
    cost=Cost.arithmetic,
    rounds=False,
    derivative=None,
)
for _name in ("chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf"):
    elementwise(_name, cost=Cost.arithmetic, rounds=False, derivative=None)

export_operations(__name__)
