"""SiLU of a gate times what it lets pass (SwiGLU) and the gradients of both, for NVIDIA GPUs, in Pallas by Triton.

XLA keeps the logistic function of the forward pass for the gradient, in float32; here it is computed again from what the
product wrote. The gradient of what passes is the SiLU of the gate times the cotangent: a site of the first family where the
gradient of the gate is not taken as well.

Source: Shazeer, "GLU Variants Improve Transformer", 2020, equation 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.kernels.activations.native import applies_to_floats
from pcp.kernels.activations.triton import LEAST, Elementwise
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.groups import parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named
from pcp.kernels.pallas import Array, is_numbered_in_32_bits, jnp
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.kernels.storage import BF16, F32, Storage, as_kept, widened
from pcp.ops.movement import reshape
from pcp.rewrite.terms import Pattern, Roots, Term, apply, either, full, value


def _exponential(x: Term) -> Term:
    return apply("exponential", apply("negate", x))


def _gated(x: Term, passed: Term) -> Term:
    return x * either(apply("logistic", x), apply("divide", 1.0, 1.0 + _exponential(x))) * passed


def _gradient() -> Roots:
    """As reverse mode differentiates the logistic function: of what passes, and of the gate."""
    x, cotangent = value("gate"), full("cotangent")
    logistic = either(apply("logistic", x), apply("divide", 1.0, 1.0 + _exponential(x)))
    passed = cotangent * value("up")
    return _gated(x, cotangent), passed * logistic + passed * x * (logistic * (1.0 - logistic))


def _gradient_of_quotient() -> Roots:
    """As reverse mode differentiates 1 / (1 + exp(-x)): of what passes, and of the gate."""
    x, cotangent = value("gate"), full("cotangent")
    exponential = _exponential(x)
    below = 1.0 + exponential
    logistic, passed = apply("divide", 1.0, below), cotangent * value("up")
    of_gate = passed * logistic - apply("negate", passed * x / below * logistic) * exponential
    return _gated(x, cotangent), of_gate


GATED = Pattern("pcp.gated_silu", {"product": (_gated(value("gate"), full("up")),)})
GRADIENT = Pattern(
    "pcp.gated_silu_gradient",
    {
        f"{which} {form}": roots[first:]
        for form, roots in (("of logistic", _gradient()), ("of quotient", _gradient_of_quotient()))
        for which, first in (("both", 0), ("gate", 1))
    },
)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Gated(Elementwise):
    """From gate and up to SiLU(gate) * up; with a cotangent as well, to the cotangent of gate, or of both."""

    def computed(self, *operands: Array) -> Sequence[Array]:
        """Of gate, what passes and perhaps a cotangent, each (n,)."""
        x, passed, *more = operands
        logistic = 1.0 / (1.0 + jnp.exp(-x))
        if not more:
            return (x * logistic * passed,)
        of_gate = more[0] * passed * (logistic * (1.0 + x * (1.0 - logistic)))
        return (more[0] * (x * logistic), of_gate)[-self.results :]


def _describe(op: ir.Operation, storage: Storage) -> Application:
    (part,) = parts_of(op)
    operands = [part.inputs[name] for name in ("gate", "up", "cotangent") if name in part.inputs]
    shape = operands[0].shape
    return Application(
        Gated(storage is BF16, len(op.results)),
        [reshape(as_kept(each), (-1,)) for each in operands],
        lambda results: [reshape(widened(each), shape) for each in results],
    )


def _applies(op: ir.Operation) -> bool:
    fits = applies_to_floats(op) and is_numbered_in_32_bits(op)
    return fits and Named.of(op).results[0].size % LEAST == 0


for _name, _about, _pattern in (
    ("gated_silu", "SiLU of a gate times what it lets pass", GATED),
    ("gated_silu_gradient", "the gradients of the gate and of what it lets pass", GRADIENT),
):
    register_family(
        Family(
            _name,
            _about,
            is_named(_pattern.name),
            gradient="gated_silu_gradient" if _name == "gated_silu" else "",
            pattern=_pattern,
        )
    )
    register_kernel(
        Kernel(
            f"{_name}.triton",
            "read once",
            _applies,
            Lowered(_describe, "cuda"),
            requires=("sm_80",),
            storages=(F32, BF16),
            keeps="the results",
        )
    )
