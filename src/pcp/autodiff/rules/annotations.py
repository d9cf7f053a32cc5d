"""Derivatives of custom calls and operations that say where or how a value is held, and compute nothing."""

from collections.abc import Sequence

from pcp.ops.derivative import RULES, Cotangent, Primal
from pcp.ops.record import supply_derivatives
from pcp.tensor import Tensor, current_builder

SAME_PLACE = ("custom_call.Sharding", "custom_call.LayoutConstraint", "sdy.sharding_constraint")
"""The cotangent is held as the value is."""

OF_MHLO = (
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cosh",
    "erf",
    "erf_inv",
    "sinh",
    "square",
    "tan",
    "topk",
)
"""Operations of CHLO that exported programs may hold as custom calls."""


def _held(primal: Primal, g: Tensor) -> Sequence[Cotangent]:
    builder = current_builder()
    op = builder.emit(primal.op.name, [g.value], [g.spec], dict(primal.op.attributes.items()))
    return [Tensor(op.results[0], builder)]


supply_derivatives(dict.fromkeys(SAME_PLACE, _held))
supply_derivatives({"custom_call.annotate_device_placement": (lambda g, y, x: g,)})
supply_derivatives(
    {f"custom_call.mhlo.{name}": RULES[f"chlo.{'top_k' if name == 'topk' else name}"] for name in OF_MHLO}
)
