"""Normalisation, written out, becomes a composite, whose function is the matched form itself, so no number changes.

`pcp.layer_norm` and `pcp.rms_norm`: their operands are x, then the scale and the bias where there are any, each of one axis
longer than 1 at most. Attributes: `axis`, `epsilon`, and whether there is a `scale` and a `bias`.

`pcp.batch_norm`, by the statistics of the batch, with the ReLU after it if there is one: its operands are x, scale and bias,
which have a number for each feature. Attributes: `axis`, that of the features, `epsilon`, and `relu`: where a cotangent passes
that, or an empty text. Statistics that are used elsewhere, too, as for running averages, stay beside it.
"""

from pcp.ir.bindings import ir
from pcp.ir.composites import composite_name, decomposition_of
from pcp.ir.composites.records import BATCH_NORM, LAYER_NORM, RMS_NORM, CompositeRecord
from pcp.ir.custom_derivatives import derivative_functions
from pcp.ir.toolkit.dataflow import users_of
from pcp.ir.toolkit.inlining import has_custom_derivative
from pcp.rewrite.outline import outlined
from pcp.rewrite.row import Effect, Row
from pcp.rewrite.terms import (
    Bindings,
    Term,
    apply,
    compare,
    constant,
    either,
    match,
    matches,
    mean,
    square,
    value,
)
from pcp.rewrite.view import View
from pcp.tensor import Tensor


def _form(centred: Term, variance: Term) -> Term:
    """centred / sqrt(variance + epsilon), perhaps times a scale, perhaps plus a bias; factors in any order."""
    scale, bias = value("scale"), value("bias")
    inside = variance + constant("epsilon")
    root = either(apply("sqrt", inside), apply("power", inside, 0.5))
    reciprocal = either(apply("rsqrt", inside), apply("power", inside, -0.5), apply("divide", 1, root))
    normed = either(centred / root, centred * reciprocal)
    scaled = either(normed * scale, centred * scale * reciprocal, reciprocal * scale * centred)
    return either(scaled, normed, scaled + bias, normed + bias)


_X = value("x")
_CENTRED = _X - mean(_X)
_MOMENTS = mean(square(_X)) - square(mean(_X))
FORMS = (
    (LAYER_NORM, _form(_CENTRED, either(mean(square(_CENTRED)), _MOMENTS, apply("maximum", 0, _MOMENTS)))),
    (RMS_NORM, _form(either(_X - 0, _X), mean(square(_X)))),
)


def _is_along(view: View, axis: int) -> bool:
    """Whether a value is the same along all axes but one."""
    return all(place in (None, axis) for place in view.source().axes)


def _is_of_root(view: View, steps: int = 3) -> bool:
    """Whether a value is made of a root by at most so many sums, products and quotients, one after another, as norms are."""
    if view.kind in ("rsqrt", "sqrt", "power"):
        return True
    operands = view.operands("add", "multiply", "divide") if steps else None
    return operands is not None and any(_is_of_root(each, steps - 1) for each in operands)


def raise_normalisation(last: ir.Operation) -> list[Tensor] | None:
    """(x - mean x) / sqrt(mean (x - mean x)^2 + epsilon) * scale (+ bias), or the same without the mean."""
    view = View.of(last.results[0])
    if not _is_of_root(view):  # so most values are told from a norm sooner
        return None
    for record, form in FORMS:
        for norm in matches(form, view):
            parameters: dict[str, View] = {kind: norm[kind] for kind in ("scale", "bias") if kind in norm}
            if norm["epsilon"] >= 0 and all(_is_along(each, norm["axis"]) for each in parameters.values()):
                return None if _is_scaled_next(last, norm) else _outlined(record, last, norm, parameters)
    return None


def _is_scaled_next(last: ir.Operation, norm: Bindings) -> bool:
    """Whether the one operation that takes an unscaled normalisation scales it: then that is the whole pattern."""
    users = list(users_of(last))
    if "scale" in norm or "bias" in norm or len(users) != 1 or users[0].name != "stablehlo.multiply":
        return False
    others = [operand for operand in users[0].operands if operand != last.results[0]]
    return len(others) == 1 and _is_along(View.of(others[0]), norm["axis"])


def _outlined(
    record: CompositeRecord, last: ir.Operation, norm: Bindings, parameters: dict[str, View]
) -> list[Tensor] | None:
    x, operands = norm["x"], [norm["x"].value, *(each.source().value for each in parameters.values())]
    if len(set(operands)) < len(operands):  # a function of fewer arguments would be needed
        return None
    if not x.has_shape(View.of(last.results[0]).shape):
        return None
    held = {kind: kind in parameters for kind in ("scale", "bias")}
    return outlined(record, last, operands, {"axis": norm["axis"], "epsilon": norm["epsilon"], **held})


RAISE_BIASED_NORMALISATION, RAISE_NORMALISATION, RAISE_UNSCALED_NORMALISATION = (
    Row(f"raise_{kind}normalisation", f"stablehlo.{root}", Effect.exact, raise_normalisation)
    for kind, root in (("biased_", "add"), ("", "multiply"), ("unscaled_", "divide"))
)


WHERE_ABOVE, WHERE_NOT_BELOW = "above 0", "not at or below 0"
"""Where a cotangent passes: as JAX's ReLU has it, and as PCP's own; of NaN only the second lets it pass."""


def _centred_by_feature() -> Term:
    """x less its mean, which JAX computes twice, in two shapes."""
    return _X - mean(_X, beside=True)


_MEAN_SQUARE = mean(square(_X), beside=True) - square(mean(_X, beside=True))
_VARIANCE = either(
    mean(square(_centred_by_feature()), beside=True), _MEAN_SQUARE, apply("maximum", 0, _MEAN_SQUARE)
)
_BATCH_NORM = _form(_centred_by_feature(), _VARIANCE)


def raise_batch_norm(last: ir.Operation) -> list[Tensor] | None:
    """(x - mean x) / sqrt(mean (x - mean x)^2 + epsilon) * scale + bias, means over all axes but one, and a ReLU of that."""
    before, passes = View.of(last.results[0]), ""
    if last.name != "stablehlo.add":
        rectified = _rectified(last)
        if rectified is None:
            return None
        before, passes = rectified
    for norm in matches(_BATCH_NORM, before):
        if not {"scale", "bias"} <= norm.keys():
            continue
        x, axis, parameters = norm["x"], norm["axis"], (norm["scale"], norm["bias"])
        along = all(each.source().shape == (x.shape[axis],) and _is_along(each, axis) for each in parameters)
        if norm["epsilon"] >= 0 and along and x.has_shape(before.shape):
            operands = [x.value, *(each.source().value for each in parameters)]
            if len(set(operands)) < len(operands):  # a function of fewer arguments would be needed
                return None
            attributes = {"axis": axis, "epsilon": norm["epsilon"], "relu": passes}
            return outlined(BATCH_NORM, last, operands, attributes, largest_shared=x.shape[axis])
    return None


def _rectified(last: ir.Operation) -> tuple[View, str] | None:
    """What a ReLU is taken of, and where a cotangent passes; None if it is another operation."""
    x = value("x")
    if last.name == "stablehlo.select":
        bindings = match(apply("select", compare("LE", x, 0), 0, x), View.of(last.results[0]))
        return None if bindings is None else (bindings["x"], WHERE_NOT_BELOW)
    return (View.of(last.operands[0]), WHERE_ABOVE) if is_relu_of_jax(last) else None


def is_relu_of_jax(relu: ir.Operation) -> bool:
    """Whether a composite of that name, which anyone can give, is JAX's own, and has the derivative of that."""
    if composite_name(relu) != "jax.relu" or not has_custom_derivative(relu):
        return False
    x, tangent = value("x"), value("tangent")
    forms = (apply("maximum", x, 0), apply("select", compare("GT", x, 0), tangent, 0))
    pushed = derivative_functions(relu).get("jvp")
    if pushed is None:
        return False
    for function, form in zip((decomposition_of(relu), pushed), forms, strict=True):
        block = function.regions[0].blocks[0]
        *_, end = (view.operation for view in block.operations)
        bindings = match(form, View.of(end.operands[0])) if len(end.operands) == 1 else None
        inputs = (
            []
            if bindings is None
            else [bindings[name].value for name in ("x", "tangent") if name in bindings]
        )
        if bindings is None or inputs != list(block.arguments):
            return False
    return True


RAISE_BATCH_NORM = Row("raise_batch_norm", "stablehlo.add", Effect.exact, raise_batch_norm)
RAISE_BATCH_NORM_AND_RELU = tuple(
    Row(f"raise_batch_norm_and_relu_{place}", root, Effect.exact, raise_batch_norm)
    for place, root in enumerate(("stablehlo.composite", "stablehlo.select"))
)
