"""Cotangents of keys add up to zero over the keys, which rounding spoils; where a program adds them up, that matters.

What is added to all keys changes no weight of attention. An optimizer that divides by the size of a gradient makes as much of
what rounding leaves in the bias of the keys as of any other gradient.
"""

from pcp.ir import DType
from pcp.ir.bindings import Value
from pcp.ir.composites import COMPOSITE
from pcp.ir.toolkit.dataflow import defining_op, result_owner, users_of
from pcp.kernels.storage import as_kept
from pcp.ops.elementwise import convert, is_finite, maximum, where
from pcp.ops.movement import reshape
from pcp.ops.reductions.primitives import mean, sum_
from pcp.rewrite import terms
from pcp.rewrite.outline import SHAPES
from pcp.rewrite.view import View
from pcp.tensor import Tensor, current_builder

_SAME_NUMBERS = frozenset(
    {*SHAPES, *(f"stablehlo.{name}" for name in ("add", "concatenate", "convert", "pad", "slice"))}
)

_LEFT = terms.mean(terms.value("of_keys"))
_WITHOUT_MEAN = terms.value("of_keys") - terms.apply("select", terms.apply("is_finite", _LEFT), _LEFT, 0.0)
"""What `without_mean` makes of the cotangent of keys."""

_SUMS = frozenset({"stablehlo.reduce", COMPOSITE})
"""What adds up, or may."""


def without_mean(of_keys: Tensor, axis: int, count: Tensor | None = None) -> Tensor:
    """The cotangent of keys without what rounding leaves of its sum over them; arguments as of `mean_of`."""
    return of_keys - mean_of(of_keys, axis, count)


def mean_of(x: Tensor, axis: int, count: Tensor | None = None) -> Tensor:
    """The mean over an axis, which stays with size 1; 0 where it is no number.

    Arguments:
        axis: of the keys.
        count: how many keys count, where not all do; others have to be 0.
    """
    counted = None if count is None else convert(maximum(count, 1), x.dtype)
    left = mean(x, axis, keepdims=True) if counted is None else sum_(x, axis, keepdims=True) / counted
    return where(is_finite(left), left, 0.0)


def with_mean(x: Tensor) -> Tensor | None:
    """The cotangent of keys (batch, keys, heads, width) in bfloat16 of which `without_mean` took the mean off, in the shape of
    x; None if x is none.
    """
    op = defining_op(x.value)
    if op is not None and op.name == "stablehlo.reshape":
        before = with_mean(Tensor(op.operands[0], current_builder()))
        return None if before is None else reshape(before, x.shape)
    bindings = terms.match(_WITHOUT_MEAN, View.of(x.value))
    if bindings is None or (x.ndim, bindings["axis"]) != (4, 1):
        return None
    kept = as_kept(Tensor(bindings["of_keys"].value, current_builder()))
    return kept if kept.dtype is DType.bf16 else None


def are_added_up(of_keys: Value) -> bool:
    """Whether a program sums the cotangent of keys, as for a bias; what only moves, joins or converts numbers may be between.

    Behind a rotary embedding or a norm of keys nothing adds up to zero, so what other operations make of it is not looked at.
    """
    seen, waiting = {of_keys}, [of_keys]
    while waiting:
        value = waiting.pop()
        for user in users_of(result_owner(value)):
            if value not in user.operands:
                continue
            if user.name in _SUMS:
                return True
            if user.name in _SAME_NUMBERS and user.results[0] not in seen:
                seen.add(user.results[0])
                waiting.append(user.results[0])
    return False
