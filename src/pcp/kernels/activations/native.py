"""Native kernels for activations with the bias that is added before them, for gated ones, and for the gradients of both.

An activation is x times a weight of x: GELU by tanh, by erf, or by the logistic function; SiLU; and the square of ReLU.
"""

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.composites.records import ACTIVATION
from pcp.kernels.artifact import Native
from pcp.kernels.groups import Part, attributes_of, parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.ops import movement
from pcp.ops.movement import reshape
from pcp.rewrite.terms import Pattern, Roots, Term, apply, full, value, vector
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["activations"]
NUMBERED = ("none", "tanh_gelu", "exact_gelu", "silu", "relu", "quick_gelu", "squared_relu")
"""Activations in the order in which handlers number them."""


def activated(x: Term) -> Term:
    """Any activation of x."""
    return apply(ACTIVATION.name, x)


def _gradient(x: Term, cotangent: Term) -> Term:
    return apply(ACTIVATION.gradient_name, x, cotangent)


_X, _BIASED, _COTANGENT = value("x"), value("x") + vector("bias"), value("cotangent")
_GATE, _GIVEN = value("gate"), full("cotangent")
_OF_GATE = _gradient(_GATE, _GIVEN * value("up"))
_BOTH: Roots = (activated(_GATE) * _GIVEN, _OF_GATE)
PATTERNS = {
    "gelu": Pattern("pcp.biased_gelu", {"biased": (activated(_BIASED),), "plain": (activated(_X),)}),
    "gelu_gradient": Pattern(
        "pcp.biased_gelu_gradient",
        {"biased": (_gradient(_BIASED, _COTANGENT),), "plain": (_gradient(_X, _COTANGENT),)},
    ),
    "gated_silu": Pattern("pcp.gated_silu", {"product": (activated(_GATE) * full("up"),)}),
    "gated_silu_gradient": Pattern("pcp.gated_silu_gradient", {"both": _BOTH, "gate": (_OF_GATE,)}),
}
"""By family."""


def applies_to_floats(op: ir.Operation) -> bool:
    """Whether it is of float32, with at least one number."""
    named = Named.of(op)
    return named.is_f32 and len(named.results[0].shape) > 0 and 0 not in named.results[0].shape


def with_earlier(part: Part, cotangent: Tensor) -> Tensor:
    """A cotangent, added to what other uses of x gave."""
    earlier = part.inputs.get("operand2")
    return cotangent if earlier is None else earlier + cotangent


def bias_of(part: Part, width: int) -> Tensor:
    """The bias, or what leaves every number as it is."""
    bias = part.inputs.get("bias")
    return movement.full((width,), -0.0, DType.f32) if bias is None else reshape(bias, (-1,))


def _numbered(op: ir.Operation) -> dict[str, int]:
    return {"activation": NUMBERED.index(attributes_of(op)["function"])}


def _biased(op: ir.Operation) -> list[Tensor]:
    (part,) = parts_of(op)
    x, width = part.inputs["x"], part.inputs["x"].shape[-1]
    rows = reshape(x, (-1, width))
    operands = [rows, bias_of(part, width)]
    if "cotangent" in part.inputs:
        operands.append(reshape(part.inputs["cotangent"], (-1, width)))
    handler = "gelu" if len(operands) == 2 else "gelu_gradient"
    (y,) = native_call(_LIBRARY, handler, operands, (rows.spec,), _numbered(op))
    return [with_earlier(part, reshape(y, x.shape))]


def _gated(op: ir.Operation) -> list[Tensor]:
    (part,) = parts_of(op)
    operands = [part.inputs[name] for name in ("gate", "up", "cotangent") if name in part.inputs]
    handler = "gated" if len(operands) == 2 else "gated_gradient"
    *others, last = native_call(
        _LIBRARY, handler, operands, [operands[0].spec] * len(op.results), _numbered(op)
    )
    return [*others, with_earlier(part, last)]


def _applies_to_both(op: ir.Operation) -> bool:
    """Whether it is of float32; of gradients, whether both are asked for."""
    return applies_to_floats(op) and len(op.results) == (
        2 if is_named(PATTERNS["gated_silu_gradient"].name)(op) else 1
    )


for _name, _about in (
    ("gelu", "an activation (GELU, SiLU, squared ReLU), of a product and its bias"),
    ("gelu_gradient", "the gradient of an activation"),
    ("gated_silu", "an activation of a gate times what it lets pass"),
    ("gated_silu_gradient", "the gradients of the gate and of what it lets pass"),
):
    _pattern, _is_gated = PATTERNS[_name], _name.startswith("gated")
    register_family(
        Family(
            _name,
            _about,
            is_named(_pattern.name),
            gradient=f"{_name}_gradient" if f"{_name}_gradient" in PATTERNS else "",
            pattern=_pattern,
        )
    )
    register_kernel(
        Kernel(
            f"{_name}.native",
            "read once, with one exponential for each element",
            _applies_to_both if _is_gated else applies_to_floats,
            Native(_LIBRARY, _gated if _is_gated else _biased),
            version=1 if _is_gated else 2,
        )
    )
