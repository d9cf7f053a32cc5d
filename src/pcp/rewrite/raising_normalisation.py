"""Layer and RMS normalisation, written out, become `pcp.layer_norm` and `pcp.rms_norm`.

Operands: x, then the scale and the bias where there are any, each of one axis longer than 1 at most. Attributes: `axis`,
`epsilon`, and whether there is a `scale` and a `bias`. The function is the matched form itself, so no number changes.
"""

from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.ir.toolkit.dataflow import users_of
from pcp.rewrite.outline import outlined
from pcp.rewrite.row import Effect, Row
from pcp.rewrite.view import View
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Normalised:
    """A normalisation without its bias.

    Arguments:
        name: of the composite.
        x: what is normalised.
        scale: the other factor, or None.
        axis: along which.
        epsilon: added to the mean square.
    """

    name: str
    x: View
    scale: View | None
    axis: int
    epsilon: float


def raise_normalisation(op: ir.Operation) -> list[Tensor] | None:
    """(x - mean x) / sqrt(mean (x - mean x)^2 + epsilon) * scale (+ bias), or the same without the mean."""
    whole = View.of(op.results[0])
    terms = whole.operands("add")
    if terms is None:
        found = _normalised(whole)
        return None if found is None or _is_scaled_next(op, found) else _outlined(op, found, None)
    for product, bias in (terms, terms[::-1]):
        found = _normalised(product)
        if found is not None and _runs_along(bias, found.axis):
            return _outlined(op, found, bias)
    return None


def _is_scaled_next(op: ir.Operation, found: Normalised) -> bool:
    """Whether the one operation that takes an unscaled normalisation scales it: then that is the whole pattern."""
    users = list(users_of(op))
    if found.scale is not None or len(users) != 1 or users[0].name != "stablehlo.multiply":
        return False
    product = users[0]
    others = [operand for operand in product.operands if operand != op.results[0]]
    return len(others) == 1 and _runs_along(View.of(others[0]), found.axis)


def _outlined(op: ir.Operation, found: Normalised | None, bias: View | None) -> list[Tensor] | None:
    if found is None:
        return None
    operands = [found.x.value, *(each.source().value for each in (found.scale, bias) if each is not None)]
    if len(set(operands)) < len(operands):  # a function of fewer arguments would be needed
        return None
    attributes = {
        "axis": found.axis,
        "epsilon": found.epsilon,
        "scale": found.scale is not None,
        "bias": bias is not None,
    }
    return outlined(found.name, op, operands, attributes)


def _normalised(product: View) -> Normalised | None:
    factors = _factors(product)
    divided = product.operands("divide")
    if divided is not None:  # c / sqrt(variance + epsilon)
        return _with_deviation(divided[0], divided[1], None, "sqrt")
    for i, deviation in enumerate(factors):
        if deviation.made_by("rsqrt", "divide") is None:
            continue
        others = factors[:i] + factors[i + 1 :]
        for centred in others:
            scales = [other for other in others if other is not centred]
            if len(scales) > 1:
                continue
            if deviation.made_by("rsqrt") is not None:
                found = _with_deviation(centred, deviation, scales[0] if scales else None, "rsqrt")
            else:  # c / sqrt(variance + epsilon) * scale
                found = _normalised(deviation) if len(others) == 1 else None
                if found is not None:
                    found = _scaled(found, centred)
            if found is not None:
                return found
    return None


def _scaled(found: Normalised, scale: View) -> Normalised | None:
    if found.scale is not None or not _runs_along(scale, found.axis):
        return None
    return Normalised(found.name, found.x, scale, found.axis, found.epsilon)


def _with_deviation(centred: View, deviation: View, scale: View | None, root: str) -> Normalised | None:
    """The normalisation of `centred` by a deviation, which is the root (or its reciprocal) of a variance and epsilon."""
    inside = deviation.operands(root)
    terms = inside and inside[0].operands("add")
    if not terms:
        return None
    variance, small = terms if terms[1].number() is not None else terms[::-1]
    epsilon = small.number()
    found = _moments(centred, variance)
    if found is None or epsilon is None or not epsilon >= 0:
        return None
    name, x, axis = found
    if scale is not None and not _runs_along(scale, axis):
        return None
    return Normalised(name, x, scale, axis, epsilon)


def _moments(centred: View, variance: View) -> tuple[str, View, int] | None:
    """Which normalisation it is, of what, along which axis, where `centred` is divided by the root of `variance`."""
    rank = len(centred.axes)
    parts = centred.operands("subtract")
    if parts is not None:
        mean = _mean(parts[1], rank)
        if mean is not None and mean[0].is_same(parts[0]):
            x, axis = mean
            second = _mean_square(variance, rank)
            if second is not None:
                if second[0].is_same(centred) and second[1] == axis:
                    return "pcp.layer_norm", x, axis
                return None
            if _is_difference_of_moments(variance, x, axis, rank):
                return "pcp.layer_norm", x, axis
    second = _mean_square(variance, rank)
    x = parts[0] if parts is not None and parts[1].is_number(0) else centred
    if second is not None and second[0].is_same(x):
        return "pcp.rms_norm", x, second[1]
    return None


def _is_difference_of_moments(variance: View, x: View, axis: int, rank: int) -> bool:
    """Whether it is mean(x^2) - mean(x)^2, perhaps no less than 0."""
    bounded = variance.operands("maximum")
    if bounded is not None:
        zero, variance = bounded if bounded[0].is_number(0) else bounded[::-1]
        if not zero.is_number(0):
            return False
    parts = variance.operands("subtract")
    if parts is None:
        return False
    second, squared = _mean_square(parts[0], rank), _square_root(parts[1])
    first = None if squared is None else _mean(squared, rank)
    return (
        second is not None
        and first is not None
        and second[0].is_same(x)
        and first[0].is_same(x)
        and second[1] == first[1] == axis
    )


def _mean(value: View, rank: int) -> tuple[View, int] | None:
    """What a value is the mean of, and along which axis."""
    parts = value.operands("divide", "multiply")
    if parts is None:
        return None
    for total, count in (parts, parts[::-1]):
        found = total.reduced("add", rank)
        if found is not None and len(found[1]) == 1:
            size = found[0].shape[found[1][0]]
            divided = value.made_by("divide") is not None
            if count.is_number(size if divided else 1 / size) and (not divided or count is parts[1]):
                return found[0], found[1][0]
    return None


def _mean_square(value: View, rank: int) -> tuple[View, int] | None:
    """What a value is the mean of the squares of, and along which axis."""
    found = _mean(value, rank)
    root = found and _square_root(found[0])
    return (root, found[1]) if found and root else None


def _square_root(value: View) -> View | None:
    """The x in x * x."""
    square = value.operands("square")  # of CHLO
    if square is not None:
        return square[0]
    power = value.operands("power")
    if power is not None:
        return power[0] if power[1].is_number(2) else None
    factors = value.operands("multiply")
    return factors[0] if factors is not None and factors[0].is_same(factors[1]) else None


def _factors(value: View) -> list[View]:
    """The three factors, at most, of a product of products."""
    parts = value.operands("multiply")
    if parts is None:
        return [value]
    for whole, other in (parts, parts[::-1]):
        inner = whole.operands("multiply")
        if inner is not None and not inner[0].is_same(inner[1]):
            return [*inner, other]
    return list(parts)


def _runs_along(value: View, axis: int) -> bool:
    """Whether a value is the same along all axes but one."""
    return all(place in (None, axis) for place in value.source().axes)


RAISE_BIASED_NORMALISATION = Row(
    "raise_biased_normalisation", "stablehlo.add", Effect.exact, raise_normalisation
)
RAISE_NORMALISATION = Row("raise_normalisation", "stablehlo.multiply", Effect.exact, raise_normalisation)
RAISE_UNSCALED_NORMALISATION = Row(
    "raise_unscaled_normalisation", "stablehlo.divide", Effect.exact, raise_normalisation
)
