"""Softmax and its logarithm, written out, become `pcp.softmax` and `pcp.log_softmax`, and log sum(exp x) `pcp.log_sum_exp`.

Operand: x. Attribute: `axis`, which the last of these adds up. The function is the matched form itself, so no number changes.
"""

from collections.abc import Iterator
from math import inf

from pcp.ir.bindings import ir
from pcp.ir.composites import composite_name, known_attributes
from pcp.ir.composites.records import LOG_SOFTMAX, LOG_SUM_EXP, SOFTMAX, CompositeRecord
from pcp.rewrite.outline import outlined
from pcp.rewrite.row import Effect, Row
from pcp.rewrite.terms import Bindings, Term, apply, either, match, total, value
from pcp.rewrite.view import View
from pcp.tensor import Tensor

Softmax = tuple[View, int]
"""What softmax is taken of, and along which axis."""


def _composite(name: str) -> Term:
    """A composite of x that has all axes of the pattern, perhaps in another order."""

    def named(view: View, bindings: Bindings) -> Iterator[Bindings]:
        source = view.source()
        op = source.made_by("composite")
        axes = source.axes
        if op is not None and composite_name(op) == name and {*axes} - {None} == {*range(bindings["rank"])}:
            yield {**bindings, "x": View(op.operands[0], axes), "axis": axes[known_attributes(op)["axis"]]}

    return Term(named)


_X = value("x")
_MOST = total("maximum", _X)
_BOUNDED = either(apply("maximum", -inf, _MOST), _MOST)
LARGEST = either(apply("select", apply("is_finite", _BOUNDED), _BOUNDED, 0), _BOUNDED)
"""max x, perhaps at least -inf, and 0 in the place of infinities."""
SHIFTED = _X - LARGEST
"""x - max x."""
_E = apply("exponential", SHIFTED)
_SUM = total("add", _E)
_LOG_SUM = apply("log", either(apply("abs", _SUM), _SUM))
"""log sum(exp(x - max x))."""
TOTAL = _LOG_SUM + LARGEST
"""log sum(exp x), in the form that does not overflow."""
SOFTMAX_FORM = either(_E / _SUM, _composite(SOFTMAX.name))
LOG_SOFTMAX_FORM = either(SHIFTED - _LOG_SUM, _composite(LOG_SOFTMAX.name))


def softmax_of(view: View) -> Softmax | None:
    """What a value is the softmax of: e / sum(e), e = exp(x - max x)."""
    return _operand(match(SOFTMAX_FORM, view))


def log_softmax_of(view: View) -> Softmax | None:
    """What a value is the logarithm of the softmax of: d - log sum(exp d), d = x - max x."""
    return _operand(match(LOG_SOFTMAX_FORM, view))


def _operand(bindings: Bindings | None) -> Softmax | None:
    return None if bindings is None else (bindings["x"], bindings["axis"])


def raise_softmax(last: ir.Operation) -> list[Tensor] | None:
    """e / sum(e) with e = exp(x - max x)  =  softmax(x)."""
    return _outlined(SOFTMAX, last, softmax_of(View.of(last.results[0])))


def raise_log_softmax(last: ir.Operation) -> list[Tensor] | None:
    """d - log sum(exp d) with d = x - max x  =  log softmax(x)."""
    return _outlined(LOG_SOFTMAX, last, log_softmax_of(View.of(last.results[0])))


def raise_log_sum_exp(last: ir.Operation) -> list[Tensor] | None:
    """log sum(exp(x - max x)) + max x, of each row  =  log sum(exp x)."""
    sums = View.of(last.results[0])
    shape = sums.shape
    for rank in (len(shape) + 1, len(shape)) if shape and shape[-1] == 1 else (len(shape) + 1,):
        for bindings in TOTAL(sums, {"rank": rank, "axis": rank - 1}):
            x = bindings["x"] if bindings["x"].has_shape(bindings["x"].shape) else bindings["x"].source()
            if x.has_shape(x.shape) and x.shape[:-1] == shape[: rank - 1]:
                return outlined(LOG_SUM_EXP, last, [x.value], {"axis": rank - 1})
    return None


def _outlined(record: CompositeRecord, last: ir.Operation, softmax: Softmax | None) -> list[Tensor] | None:
    if softmax is None or not softmax[0].has_shape(View.of(last.results[0]).shape):
        return None
    return outlined(record, last, [softmax[0].value], {"axis": softmax[1]})


RAISE_SOFTMAX = Row("raise_softmax", "stablehlo.divide", Effect.exact, raise_softmax)
RAISE_LOG_SUM_EXP = Row("raise_log_sum_exp", "stablehlo.add", Effect.exact, raise_log_sum_exp)
RAISE_LOG_SOFTMAX = Row("raise_log_softmax", "stablehlo.subtract", Effect.exact, raise_log_softmax)
