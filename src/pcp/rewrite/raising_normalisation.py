"""Layer and RMS normalisation, written out, become `pcp.layer_norm` and `pcp.rms_norm`.

Operands: x, then the scale and the bias where there are any, each of one axis longer than 1 at most. Attributes: `axis`,
`epsilon`, and whether there is a `scale` and a `bias`. The function is the matched form itself, so no number changes.
"""

from pcp.ir.bindings import ir
from pcp.ir.toolkit.dataflow import users_of
from pcp.rewrite.outline import outlined
from pcp.rewrite.row import Effect, Row
from pcp.rewrite.terms import Found, Term, apply, constant, either, matches, mean, square, value
from pcp.rewrite.view import View
from pcp.tensor import Tensor


def _form(centred: Term, variance: Term) -> Term:
    """centred / sqrt(variance + epsilon), perhaps times a scale, perhaps plus a bias; factors in any order."""
    scale, bias = value("scale"), value("bias")
    inside = variance + constant("epsilon")
    reciprocal = apply("rsqrt", inside)
    normed = either(centred / apply("sqrt", inside), centred * reciprocal)
    scaled = either(normed * scale, centred * scale * reciprocal, reciprocal * scale * centred)
    return either(scaled, normed, scaled + bias, normed + bias)


_X = value("x")
_CENTRED = _X - mean(_X)
_MOMENTS = mean(square(_X)) - square(mean(_X))
FORMS = {
    "pcp.layer_norm": _form(
        _CENTRED, either(mean(square(_CENTRED)), _MOMENTS, apply("maximum", 0, _MOMENTS))
    ),
    "pcp.rms_norm": _form(either(_X - 0, _X), mean(square(_X))),
}


def _is_along(view: View, axis: int) -> bool:
    """Whether a value is the same along all axes but one."""
    return all(place in (None, axis) for place in view.source().axes)


def raise_normalisation(last: ir.Operation) -> list[Tensor] | None:
    """(x - mean x) / sqrt(mean (x - mean x)^2 + epsilon) * scale (+ bias), or the same without the mean."""
    for name, form in FORMS.items():
        for found in matches(form, View.of(last.results[0])):
            parameters: dict[str, View] = {kind: found[kind] for kind in ("scale", "bias") if kind in found}
            if found["epsilon"] >= 0 and all(_is_along(each, found["axis"]) for each in parameters.values()):
                return None if _is_scaled_next(last, found) else _outlined(name, last, found, parameters)
    return None


def _is_scaled_next(last: ir.Operation, found: Found) -> bool:
    """Whether the one operation that takes an unscaled normalisation scales it: then that is the whole pattern."""
    users = list(users_of(last))
    if "scale" in found or "bias" in found or len(users) != 1 or users[0].name != "stablehlo.multiply":
        return False
    others = [operand for operand in users[0].operands if operand != last.results[0]]
    return len(others) == 1 and _is_along(View.of(others[0]), found["axis"])


def _outlined(
    name: str, last: ir.Operation, found: Found, parameters: dict[str, View]
) -> list[Tensor] | None:
    x, operands = found["x"], [found["x"].value, *(each.source().value for each in parameters.values())]
    if len(set(operands)) < len(operands):  # a function of fewer arguments would be needed
        return None
    if not x.has_shape(View.of(last.results[0]).shape):
        return None
    held = {kind: kind in parameters for kind in ("scale", "bias")}
    return outlined(name, last, operands, {"axis": found["axis"], "epsilon": found["epsilon"], **held})


RAISE_BIASED_NORMALISATION, RAISE_NORMALISATION, RAISE_UNSCALED_NORMALISATION = (
    Row(f"raise_{kind}normalisation", f"stablehlo.{root}", Effect.exact, raise_normalisation)
    for kind, root in (("biased_", "add"), ("", "multiply"), ("unscaled_", "divide"))
)
