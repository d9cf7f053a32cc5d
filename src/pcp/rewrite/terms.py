"""Patterns as terms: what several operations compute, written down once and found in programs, whatever was moved or spread.

    x, bias = value("x"), vector("bias")
    Pattern("pcp.biased", {"bias": (x + bias,)})

A term becomes a pattern of `matching`, so broadcasts, reshapes and copies of one value are seen through, and sums and products
are tried both ways round.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE, composite_attributes, composite_name
from pcp.ir.toolkit.dataflow import defining_op, operations_between, result_owner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.rewrite import matching
from pcp.rewrite.matching import Found
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
        if not _is_made_by(op, roots[-1].kind):
            continue
        for found in matching.matches(_pattern(roots[-1]), View.of(op.results[0])):
            if all(_is_a_result(found[_key(root)]) for root in roots):
                match = _match(form, roots, found)
                if not _has_marks(match):
                    return match
    return None


def _match(form: str, roots: Roots, found: Found) -> Match:
    inputs: dict[str, Value] = {}
    attributes: dict[str, Any] = {}
    more: dict[str, Value] = {}
    for term in _terms(roots):
        if term.name:
            view = found[term.name]
            inputs[term.name] = view.value if term.kind == "value" else view.source().value
        elif "." in term.kind:
            op = result_owner(found[_key(term)].source().value)
            attributes |= composite_attributes(op) | {"computes": composite_name(op)}
            rest = range(len(term.operands), len(op.operands))
            more |= {f"operand{place}": op.operands[place] for place in rest}
    return Match(form, inputs | more, tuple(found[_key(root)].value for root in roots), attributes)


def _terms(roots: Roots) -> list[Term]:
    """The terms of some, in order, each once."""
    found: dict[Term, None] = {}
    waiting = list(roots)[::-1]
    while waiting:
        term = waiting.pop()
        if term not in found:
            found[term] = None
            waiting += term.operands[::-1]
    return list(found)


def _key(term: Term) -> str:
    """What the view of a term is found under."""
    return term.name or f"term {id(term)}"


@functools.cache
def _pattern(term: Term) -> matching.Pattern:
    """The pattern of one term; where it was found before, it is the same value."""
    if term.kind == "number":
        return matching.number(term.number)
    operands = tuple(map(_pattern, term.operands))
    computed = _composite(term.kind, operands) if "." in term.kind else matching.op(term.kind, *operands)

    def once(view: View, found: Found) -> Iterator[Found]:
        known = found.get(_key(term))
        if known is not None:
            yield from (found,) if known.is_same(view) else ()
        elif not term.name:
            for each in computed(view, found):
                yield {**each, _key(term): view}
        elif _fits(term.kind, view):
            yield {**found, term.name: view}

    return once


def _composite(kind: str, operands: tuple[matching.Pattern, ...]) -> matching.Pattern:
    """The result of a composite whose first operands match."""

    def computed(view: View, found: Found) -> Iterator[Found]:
        source = view.source()
        op = defining_op(source.value)
        if op is not None and _is_made_by(op, kind) and _is_whole(source):
            yield from matching.all_match(operands, tuple(map(View.of, op.operands))[: len(operands)], found)

    return computed


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
