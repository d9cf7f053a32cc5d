"""Patterns as terms: what several operations compute, written down once and found in programs, whatever was moved or spread.

    x, bias = value("x"), vector("bias")
    Pattern("pcp.biased", {"bias": (x + bias,)})

A term is matched against a `View`, so broadcasts, reshapes and copies of one value are seen through. Sums and products are
tried both ways round.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE, composite_attributes, composite_name
from pcp.ir.toolkit.dataflow import defining_op, operations_between
from pcp.ir.toolkit.regions import COMMUTATIVE
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.rewrite.pattern import is_beyond_rows
from pcp.rewrite.view import View

Operand = Union["Term", float]


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """A part of a pattern; the same object in two places is the same value.

    Arguments:
        kind: `value`, `vector`, `scalar`, `number`, or what computes it: elementwise operations or composites, with `|`.
        name: of an input.
        number: that every element of a constant is.
        operands: terms.
    """

    kind: str
    name: str = ""
    number: float = 0.0
    operands: tuple["Term", ...] = ()

    def __add__(self, other: Operand) -> "Term":
        return apply("add", self, other)

    def __radd__(self, other: Operand) -> "Term":
        return apply("add", other, self)

    def __sub__(self, other: Operand) -> "Term":
        return apply("subtract", self, other)

    def __rsub__(self, other: Operand) -> "Term":
        return apply("subtract", other, self)

    def __mul__(self, other: Operand) -> "Term":
        return apply("multiply", self, other)

    def __rmul__(self, other: Operand) -> "Term":
        return apply("multiply", other, self)

    def __truediv__(self, other: Operand) -> "Term":
        return apply("divide", self, other)


def value(name: str) -> Term:
    """An input of the shape of the pattern's result."""
    return Term("value", name)


def vector(name: str) -> Term:
    """An input that runs along the last axis only."""
    return Term("vector", name)


def scalar(name: str) -> Term:
    """An input of one element, constant or not."""
    return Term("scalar", name)


def apply(kind: str, *operands: Operand) -> Term:
    """An elementwise operation by its name, or a composite by its own; of a composite the first operands may be given."""
    return Term(
        kind, operands=tuple(each if isinstance(each, Term) else _constant(each) for each in operands)
    )


def _constant(number: float) -> Term:
    return Term("number", number=float(number))


Roots = tuple[Term, ...]
Bound = dict[Term, View]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Several operations that are one site.

    Arguments:
        name: of the composite that they become where a kernel is to stand, `pcp.residual_norm`.
        forms: ways in which they are written, by name, the more particular ones first. Each is the terms of its results; from
            the last one a match begins, and the others are parts of it.
        joins: whether all matches in a block together are one site.
    """

    name: str
    forms: Mapping[str, Roots]
    joins: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """Where a pattern stands.

    Arguments:
        form: which of its forms.
        inputs: by name, in order of the form; then operands of a composite that the form does not name, as `operand1`.
        results: values, in the order of the form's roots.
        attributes: those of a composite in it.
    """

    form: str
    inputs: Mapping[str, Value]
    results: tuple[Value, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


def matched(pattern: Pattern, op: ir.Operation) -> Match | None:
    """The match of the first form that ends with an operation; None if there is none."""
    if len(op.results) != 1 or is_beyond_rows(op):
        return None
    for form, roots in pattern.forms.items():
        last = roots[-1]
        if not _is_made_by(op, last.kind):
            continue
        for bound in _matches(last, View.of(op.results[0]), {}):
            found = _match(form, roots, bound)
            if all(_is_a_result(bound[root]) for root in roots) and not _has_marks(found):
                return found
    return None


def _match(form: str, roots: Roots, bound: Bound) -> Match:
    seen = {
        term.name: view.value if term.kind == "value" else view.source().value for term, view in bound.items()
    }
    inputs = {name: seen[name] for name in names_of(roots)}
    attributes: dict[str, Any] = {}
    for term, view in bound.items():
        op = defining_op(view.source().value)
        if op is not None and "." in term.kind:
            attributes |= composite_attributes(op) | {"computes": composite_name(op)}
            rest = range(len(term.operands), len(op.operands))
            inputs |= {f"operand{place}": op.operands[place] for place in rest}
    return Match(form, inputs, tuple(bound[root].value for root in roots), attributes)


def names_of(roots: Sequence[Term]) -> list[str]:
    """The names of the inputs of terms, in order."""
    found: dict[str, None] = {}
    waiting = list(roots)[::-1]
    while waiting:
        term = waiting.pop()
        if term.name:
            found.setdefault(term.name)
        waiting += term.operands[::-1]
    return list(found)


def _matches(term: Term, view: View, bound: Bound) -> Iterator[Bound]:
    """Every way in which a term is a value, with what is bound already."""
    known = bound.get(term)
    if known is not None:
        if known.is_same(view):
            yield bound
        return
    if term.kind == "number":
        if view.is_number(term.number):
            yield bound
        return
    if term.name:
        if _fits(term.kind, view):
            yield {**bound, term: view}
        return
    operands = _operands(term, view)
    if operands is None or len(operands) < len(term.operands):
        return
    orders = [operands]
    if term.kind in COMMUTATIVE:
        orders.append(operands[::-1])
    for order in orders:
        for inner in _all_match(term.operands, order, bound):
            yield {**inner, term: view}


def _all_match(terms: Sequence[Term], views: Sequence[View], bound: Bound) -> Iterator[Bound]:
    if not terms:
        yield bound
        return
    for inner in _matches(terms[0], views[0], bound):
        yield from _all_match(terms[1:], views[1:], inner)


def _operands(term: Term, view: View) -> Sequence[View] | None:
    if "." not in term.kind:
        return view.operands(*term.kind.split("|"))
    source = view.source()
    op = defining_op(source.value)
    if op is None or not _is_made_by(op, term.kind) or not _is_whole(source):
        return None
    return [View.of(operand) for operand in op.operands]


def _is_made_by(op: ir.Operation, kind: str) -> bool:
    name = composite_name(op) if op.name == COMPOSITE else op.name.partition(".")[2]
    return name in kind.split("|")


def _is_whole(view: View) -> bool:
    """Whether a value has all axes, in order."""
    return view.axes == tuple(range(len(view.axes)))


def _fits(kind: str, view: View) -> bool:
    if kind == "value":
        return _is_whole(view)
    source = view.source()
    if kind == "scalar":
        return spec_of(source.value.type).size == 1
    rank = len(view.axes)
    return rank > 0 and source.axes == (rank - 1,)


def _is_a_result(view: View) -> bool:
    """Whether a value is all that an operation returns, seen as it is."""
    op = defining_op(view.value)
    return op is not None and len(op.results) == 1 and view.source() == view and _is_whole(view)


def _has_marks(match: Match) -> bool:
    """Whether any operation of a match bears a mark that no pattern knows."""
    return any(map(is_beyond_rows, operations_between(match.inputs.values(), match.results)))
