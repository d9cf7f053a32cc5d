"""Kernels for `pcp.softmax`, `pcp.log_softmax` and their gradients."""

from pcp.ir.bindings import ir
from pcp.ir.composites.records import LOG_SOFTMAX, SOFTMAX
from pcp.kernels.artifact import StableHLO
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, applies_to_f32, is_named, tensors
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.ops.elementwise import exp, log
from pcp.ops.reductions.primitives import largest_along, sum_
from pcp.tensor import Tensor


def _shifted(op: ir.Operation) -> tuple[Named, int, Tensor]:
    """The composite, its axis, and x minus its maximum, which stands for the maximum in all that follows."""
    named, x = Named.of(op), tensors(op)[0]
    axis = named.attributes["axis"]
    return named, axis, x - largest_along(x, axis)


def _by_reciprocal(op: ir.Operation) -> list[Tensor]:
    """One division for each row instead of one for each element."""
    named, axis, shifted = _shifted(op)
    weights = exp(shifted)
    sums = sum_(weights, axis, keepdims=True)
    return [shifted - log(sums) if named.name == "log_softmax" else weights * (1 / sums)]


def _gradient(op: ir.Operation) -> list[Tensor]:
    """y (g - sum(g y)) for y = softmax(x);  g - e^y sum(g) for y = log softmax(x)."""
    named, axis, shifted = _shifted(op)
    weights, g = exp(shifted), tensors(op)[1]
    softmax = weights * (1 / sum_(weights, axis, keepdims=True))
    if named.name == "log_softmax":
        cotangent = g - softmax * sum_(g, axis, keepdims=True)
    else:
        cotangent = softmax * (g - sum_(g * softmax, axis, keepdims=True))
    return named.cotangents(op, {0: cotangent})


register_family(
    Family(
        "softmax",
        "e^x divided by its sum along an axis, or the logarithm of that",
        is_named(SOFTMAX.name, LOG_SOFTMAX.name),
        gradient="softmax_gradient",
    )
)
register_family(
    Family(
        "softmax_gradient",
        "the gradient of softmax or of its logarithm",
        is_named(SOFTMAX.gradient_name, LOG_SOFTMAX.gradient_name),
    )
)
# Exponentials in bfloat16 are no kernels: XLA drops the conversions there and back, and computes what it did before.
for _name, _about, _build in (
    ("softmax.reciprocal", "one division for each row", _by_reciprocal),
    (
        "softmax_gradient.fused",
        "y (g - sum(g y)) instead of the derivative of each operation",
        _gradient,
    ),
):
    register_kernel(Kernel(_name, _about, applies_to_f32, StableHLO(_build)))
