"""Native kernels for GELU by tanh with the bias that is added before it, and for its gradient."""

import math

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.kernels.artifact import Native
from pcp.kernels.groups import parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.ops.movement import reshape, zeros
from pcp.rewrite.terms import Pattern, Term, apply, value, vector
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["activations"]
ROOT, CUBIC = math.sqrt(2 / math.pi), 0.044715


def _before(biased: bool) -> Term:
    return value("x") + vector("bias") if biased else value("x")


def gelu_forms(x: Term) -> tuple[Term, Term]:
    """x / 2 (1 + tanh(r (x + k x^3))), and x ((1 + tanh ...) / 2)."""
    more = 1.0 + apply("tanh", ROOT * (x + CUBIC * (x * x * x)))
    return 0.5 * x * more, x * (0.5 * more)


def _gradient(x: Term) -> tuple[Term, ...]:
    """As reverse mode differentiates the first form."""
    g, square = value("cotangent"), x * x
    tanh = apply("tanh", ROOT * (x + CUBIC * (square * x)))
    of_tanh = g * (0.5 * x)
    of_inner = (of_tanh + of_tanh * tanh) * (1.0 - tanh) * ROOT
    of_cube = of_inner * CUBIC
    twice = of_cube * x * x
    return (g * (1.0 + tanh) * 0.5 + of_inner + of_cube * square + twice + twice,)


GELU = Pattern(
    "pcp.biased_gelu",
    {
        f"{'biased' if biased else 'plain'}, {which} halved": (form,)
        for biased in (True, False)
        for which, form in zip(("x", "probability"), gelu_forms(_before(biased)), strict=True)
    },
)  # fmt: skip
GRADIENT = Pattern(
    "pcp.biased_gelu_gradient", {"biased": _gradient(_before(True)), "plain": _gradient(_before(False))}
)


def applies_to_floats(op: ir.Operation) -> bool:
    """Whether it is of float32, with at least one number."""
    named = Named.of(op)
    return named.is_f32 and len(named.results[0].shape) > 0 and 0 not in named.results[0].shape


def _build(op: ir.Operation) -> list[Tensor]:
    (part,) = parts_of(op)
    x, width = part.inputs["x"], part.inputs["x"].shape[-1]
    rows = reshape(x, (-1, width))
    bias = part.inputs.get("bias")
    operands = [rows, zeros((width,), DType.f32) if bias is None else reshape(bias, (-1,))]
    if "cotangent" in part.inputs:
        operands.append(reshape(part.inputs["cotangent"], (-1, width)))
    handler = "gelu" if len(operands) == 2 else "gelu_gradient"
    (y,) = native_call(_LIBRARY, handler, operands, (rows.spec,), {})
    return [reshape(y, x.shape)]


for _name, _about, _pattern in (
    ("gelu", "GELU by tanh, of a product and its bias", GELU),
    ("gelu_gradient", "the gradient of GELU by tanh", GRADIENT),
):
    _of_it = "gelu_gradient" if _name == "gelu" else ""
    register_family(
        Family(
            _name,
            _about,
            is_named(_pattern.name),
            gradient=_of_it,
            pattern=_pattern,
        )
    )
    register_kernel(
        Kernel(
            f"{_name}.native",
            "bias and activation together, with one exponential for each element",
            applies_to_floats,
            Native(_LIBRARY, _build),
        )
    )
