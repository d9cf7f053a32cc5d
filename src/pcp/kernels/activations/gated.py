"""SiLU of a gate times what it lets pass (SwiGLU) and the gradient of the gate, for NVIDIA GPUs, in Pallas by Triton.

XLA keeps the logistic function of the forward pass for the gradient, in float32; here it is computed again from what the
product wrote. The gradient of what passes is the SiLU of the gate times the cotangent, so it is a site of the first family.

Source: Shazeer, "GLU Variants Improve Transformer", 2020, equation 6.
"""

import itertools
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.kernels.activations.native import applies_to_floats
from pcp.kernels.activations.triton import LEAST, Elementwise
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.groups import parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named
from pcp.kernels.narrow import as_kept, widened
from pcp.kernels.pallas import Array, is_numbered_in_32_bits
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.ops.movement import reshape
from pcp.rewrite.row import Effect
from pcp.rewrite.terms import Pattern, Term, apply, either, full, value


def _exponential(x: Term) -> Term:
    return apply("exponential", apply("negate", x))


def _gated() -> Term:
    x = value("gate")
    return x * either(apply("logistic", x), apply("divide", 1.0, 1.0 + _exponential(x))) * full("up")


def _gradient() -> Term:
    """As reverse mode differentiates the logistic function."""
    x = value("gate")
    logistic = either(apply("logistic", x), apply("divide", 1.0, 1.0 + _exponential(x)))
    passed = full("cotangent") * value("up")
    return passed * logistic + passed * x * (logistic * (1.0 - logistic))


def _gradient_of_quotient() -> Term:
    """As reverse mode differentiates 1 / (1 + exp(-x))."""
    x = value("gate")
    exponential = _exponential(x)
    below = 1.0 + exponential
    logistic, passed = apply("divide", 1.0, below), full("cotangent") * value("up")
    return passed * logistic - apply("negate", passed * x / below * logistic) * exponential


GATED = Pattern("pcp.gated_silu", {"product": (_gated(),)})
GRADIENT = Pattern(
    "pcp.gated_silu_gradient",
    {"of logistic": (_gradient(),), "of quotient": (_gradient_of_quotient(),)},
)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Gated(Elementwise):
    """Gate and what passes to SiLU(gate) times that; with a cotangent as well, to the cotangent of the gate."""

    def computed(self, *operands: Array) -> Array:
        """Of gate, what passes and perhaps a cotangent, each (n,)."""
        import jax.numpy as jnp

        x, passed, *more = operands
        logistic = 1.0 / (1.0 + jnp.exp(-x))
        if not more:
            return x * logistic * passed
        return more[0] * passed * (logistic * (1.0 + x * (1.0 - logistic)))


def _build(rounded: bool) -> Lowered:
    def describe(op: ir.Operation) -> Application:
        (part,) = parts_of(op)
        operands = [part.inputs[name] for name in ("gate", "up", "cotangent") if name in part.inputs]
        shape = operands[0].shape
        return Application(
            Gated(rounded),
            [reshape(as_kept(each), (-1,)) for each in operands],
            lambda found: [reshape(widened(found[0]), shape)],
        )

    return Lowered(describe, "cuda")


def _applies(op: ir.Operation) -> bool:
    fits = applies_to_floats(op) and is_numbered_in_32_bits(op)
    return fits and Named.of(op).results[0].size % LEAST == 0


for _name, _about, _pattern in (
    ("gated_silu", "SiLU of a gate times what it lets pass", GATED),
    ("gated_silu_gradient", "the gradient of the gate", GRADIENT),
):
    register_family(
        Family(
            _name,
            _about,
            is_named(_pattern.name),
            gradient="gated_silu_gradient" if _name == "gated_silu" else "",
            everywhere=((f"{_name}.triton",), (f"{_name}.triton_bf16",)),
            pattern=_pattern,
        )
    )
for _name, _rounded in itertools.product(("gated_silu", "gated_silu_gradient"), (False, True)):
    register_kernel(
        Kernel(
            f"{_name}.triton{'_bf16' * _rounded}",
            Effect.lowers_precision if _rounded else Effect.reassociating,
            "read once" + ", the result rounded to bfloat16" * _rounded,
            _applies,
            _build(_rounded),
            requires=("sm_80",),
        )
    )
