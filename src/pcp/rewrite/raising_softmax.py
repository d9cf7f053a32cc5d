"""Softmax and its logarithm, written out, become `pcp.softmax` and `pcp.log_softmax`.

Operand: x. Attribute: `axis`. The function is the matched form itself, so no number changes.
"""

from pcp.ir.bindings import ir
from pcp.ir.composites import composite_attributes, composite_name
from pcp.rewrite.outline import outlined
from pcp.rewrite.row import Effect, Row
from pcp.rewrite.view import View
from pcp.tensor import Tensor

Softmax = tuple[View, int]
"""What softmax is taken of, and along which axis."""


def softmax_of(value: View) -> Softmax | None:
    """What a value is the softmax of: e / sum(e), e = exp(x - max x)."""
    parts = value.operands("divide")
    if parts is None:
        return _named_softmax_of(value, "pcp.softmax")
    total = parts[1].reduced("add", len(value.axes))
    shifted = parts[0].operands("exponential")
    if total is None or shifted is None or not total[0].is_same(parts[0]) or len(total[1]) != 1:
        return None
    x = shifted_of(shifted[0], total[1])
    return None if x is None else (x, total[1][0])


def _named_softmax_of(value: View, name: str) -> Softmax | None:
    """What a composite is taken of, if it has all axes of the pattern in their order."""
    source = value.source()
    op = source.made_by("composite")
    if op is None or composite_name(op) != name or source.axes != tuple(range(len(value.axes))):
        return None
    return View.of(op.operands[0]), composite_attributes(op)["axis"]


def log_softmax_of(value: View) -> Softmax | None:
    """What a value is the logarithm of the softmax of: d - log sum(exp d), d = x - max x."""
    parts = value.operands("subtract")
    if parts is None:
        return _named_softmax_of(value, "pcp.log_softmax")
    total = log_sum_exp_of(parts[1], len(value.axes))
    if total is None or not total[0].is_same(parts[0]):
        return None
    x = shifted_of(parts[0], total[1])
    return None if x is None else (x, total[1][0])


def log_sum_exp_of(value: View, rank: int) -> tuple[View, tuple[int, ...]] | None:
    """The d in log sum(exp d), and the axis of the sum."""
    logarithm = value.operands("log")
    if logarithm is None:
        return None
    positive = logarithm[0].operands("abs")
    total = (positive or logarithm)[0].reduced("add", rank)
    if total is None or len(total[1]) != 1:
        return None
    exponent = total[0].operands("exponential")
    return None if exponent is None else (exponent[0], total[1])


def shifted_of(value: View, axes: tuple[int, ...]) -> View | None:
    """The x in x - max x."""
    parts = value.operands("subtract")
    if parts is None:
        return None
    largest = largest_of(parts[1], len(value.axes), axes[0])
    return parts[0] if largest is not None and largest.is_same(parts[0]) else None


def largest_of(value: View, rank: int, axis: int) -> View | None:
    """What a value is the largest of along an axis, perhaps at least -inf, and 0 in the place of infinities."""
    guarded = value.operands("select")
    if guarded is not None and guarded[2].is_number(0):
        finite = guarded[0].operands("is_finite")
        if finite is None or not finite[0].is_same(guarded[1]):
            return None
        value = guarded[1]
    bounded = value.operands("maximum")
    if bounded is not None:
        low, high = bounded if bounded[0].is_number(float("-inf")) else bounded[::-1]
        if not low.is_number(float("-inf")):
            return None
        value = high
    found = value.reduced("maximum", rank, axis)
    return found and found[0]


def raise_softmax(op: ir.Operation) -> list[Tensor] | None:
    """e / sum(e) with e = exp(x - max x)  =  softmax(x)."""
    found = softmax_of(View.of(op.results[0]))
    return found and outlined("pcp.softmax", op, [found[0].value], {"axis": found[1]})


def raise_log_softmax(op: ir.Operation) -> list[Tensor] | None:
    """d - log sum(exp d) with d = x - max x  =  log softmax(x)."""
    found = log_softmax_of(View.of(op.results[0]))
    return found and outlined("pcp.log_softmax", op, [found[0].value], {"axis": found[1]})


RAISE_SOFTMAX = Row("raise_softmax", "stablehlo.divide", Effect.exact, raise_softmax)
RAISE_LOG_SOFTMAX = Row("raise_log_softmax", "stablehlo.subtract", Effect.exact, raise_log_softmax)
