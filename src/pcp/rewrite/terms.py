"""Patterns as terms: what a value is computed from, found in programs whatever moves, spreads or reorders elements in between.

    x, bias = value("x"), vector("bias")
    apply("tanh", x + bias)

A term takes a view of a value and what is found so far, and yields what is found then, once for every way to match. Views,
numbers and axes are found under names. A term or a name that stands in two places is one value, perhaps computed twice.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE, composite_attributes, composite_name
from pcp.ir.toolkit.attributes import comparison_direction
from pcp.ir.toolkit.dataflow import defining_op, operations_between, result_owner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.rewrite.pattern import is_beyond_rows
from pcp.rewrite.view import View

Bindings = dict[Any, Any]
"""Views by names and by terms without one; numbers and axes by names. `rank` is that of the whole."""
Operand = Union["Term", float]

_COMMUTATIVE = ("add", "multiply", "maximum", "and")
_MIRRORED = {"EQ": "EQ", "NE": "NE", "LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


@dataclass(frozen=True, eq=False, slots=True)
class Term:
    """A part of a pattern, or all of it.

    Arguments:
        ways: of a view to be it; a generator that yields what is found then.
        kind: `value`, `vector`, `scalar`, or what computes it: an elementwise operation or composites, with `|`.
        name: of an input.
        operands: terms that it is made of.
        made_by: kinds of the operations that make it; none if any may. Most values are told from a term by this alone.
    """

    ways: Callable[[View, Bindings], Iterator[Bindings]]
    kind: str = ""
    name: str = ""
    operands: tuple["Term", ...] = ()
    made_by: frozenset[str] = frozenset()

    def __call__(self, view: View, bindings: Bindings) -> Iterator[Bindings]:
        """Every way in which it matches a view; where it was found before, that must be the same value."""
        key = self.name or self
        known = bindings.get(key)
        if known is not None:
            yield from (bindings,) if known.is_same(view) else ()
        else:
            kept = {key: view} if self.name or self.operands else {}
            yield from ({**each, **kept} for each in self.ways(view, bindings))

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
    """Any value; of the shape of the results where it is an input of a `Pattern`."""
    return Term(lambda _, bindings: iter((bindings,)), "value", name)


def full(name: str) -> Term:
    """An input that runs along all axes: it is no smaller tensor that was spread."""

    def fits(view: View, bindings: Bindings) -> Iterator[Bindings]:
        if spec_of(view.source().value.type).size == spec_of(view.value.type).size:
            yield bindings

    return Term(fits, "value", name)


def vector(name: str) -> Term:
    """An input that runs along the last axis only; other axes that it has are of size 1."""

    def fits(view: View, bindings: Bindings) -> Iterator[Bindings]:
        if [axis for axis in view.source().axes if axis is not None] == [len(view.axes) - 1]:
            yield bindings

    return Term(fits, "vector", name)


def scalar(name: str) -> Term:
    """An input of one element, constant or not."""

    def fits(view: View, bindings: Bindings) -> Iterator[Bindings]:
        if spec_of(view.source().value.type).size == 1:
            yield bindings

    return Term(fits, "scalar", name)


def number(*numbers: float) -> Term:
    """One of these numbers, everywhere."""
    return Term(lambda view, bindings: iter((bindings,) if view.is_number(*numbers) else ()))


def constant(name: str) -> Term:
    """Any one number, everywhere."""

    def any_number(view: View, bindings: Bindings) -> Iterator[Bindings]:
        known = view.number()
        if known is not None:
            yield {**bindings, name: known}

    return Term(any_number)


def either(*terms: Operand) -> Term:
    """What any of the terms matches."""
    choices = _terms_of(terms)
    made_by = [choice.made_by for choice in choices]
    return Term(
        lambda view, bindings: (each for choice in choices for each in choice(view, bindings)),
        operands=choices,
        made_by=frozenset().union(*made_by) if all(made_by) else frozenset(),
    )


def apply(kind: str, *operands: Operand) -> Term:
    """An elementwise operation by its name, in either order where that is the same; or a composite, by its first operands."""
    terms = _terms_of(operands)

    def elementwise(view: View, bindings: Bindings) -> Iterator[Bindings]:
        views = view.operands(kind)
        if views is not None and len(views) == len(terms):
            yield from _all_match(terms, views, bindings)
            if kind in _COMMUTATIVE:
                yield from _all_match(terms, views[::-1], bindings)

    def composite(view: View, bindings: Bindings) -> Iterator[Bindings]:
        source = view.source()
        op = defining_op(source.value)
        if op is not None and _is_made_by(op, kind) and _is_whole(source):
            yield from _all_match(terms, tuple(map(View.of, op.operands))[: len(terms)], bindings)

    if "." in kind:
        return Term(composite, kind, operands=terms)
    return Term(elementwise, kind, operands=terms, made_by=frozenset({kind}))


def product(left: Operand, right: Operand) -> Term:
    """A `dot_general` over any axes, whose result has all axes. Operands are seen with their own axes."""
    terms = _terms_of((left, right))

    def multiplied(view: View, bindings: Bindings) -> Iterator[Bindings]:
        source = view.source()
        op = defining_op(source.value)
        if op is not None and op.name == "stablehlo.dot_general" and _is_whole(source):
            yield from _all_match(terms, tuple(map(View.of, op.operands)), bindings)

    return Term(multiplied, "dot_general", operands=terms, made_by=frozenset({"dot_general"}))


def compare(direction: str, left: Operand, right: Operand) -> Term:
    """A comparison, in either order."""
    terms = _terms_of((left, right))

    def compared(view: View, bindings: Bindings) -> Iterator[Bindings]:
        op, sides = view.made_by("compare"), view.operands("compare")
        if op is not None and sides is not None:
            if comparison_direction(op) == direction:
                yield from _all_match(terms, sides, bindings)
            if comparison_direction(op) == _MIRRORED[direction]:
                yield from _all_match(terms, sides[::-1], bindings)

    return Term(compared, operands=terms)


def total(kind: str, term: Term) -> Term:
    """A term combined (`add`, `maximum`) along `axis`, which has `size` elements."""

    def combined(view: View, bindings: Bindings) -> Iterator[Bindings]:
        inner = view.reduced(kind, bindings["rank"], bindings.get("axis"))
        if inner is not None and len(inner[1]) == 1 and bindings.get("axis", inner[1][0]) == inner[1][0]:
            (axis,) = inner[1]
            yield from term(inner[0], {**bindings, "axis": axis, "size": inner[0].shape[axis]})

    return Term(combined, operands=(term,))


def total_beside(term: Term) -> Term:
    """The sum of a term along all axes but `axis`, over `size` elements each."""

    def combined(view: View, bindings: Bindings) -> Iterator[Bindings]:
        inner = view.reduced("add", bindings["rank"])
        kept = set(range(bindings["rank"])).difference(() if inner is None else inner[1])
        if inner is not None and len(kept) == 1 and bindings.get("axis", min(kept)) == min(kept):
            size = math.prod(inner[0].shape[axis] for axis in inner[1])
            yield from term(inner[0], {**bindings, "axis": min(kept), "size": size})

    return Term(combined, operands=(term,))


def mean(term: Term, beside: bool = False) -> Term:
    """The mean of a term along `axis`, or along all axes beside it."""
    summed = total_beside(term) if beside else total("add", term)
    size = Term(lambda view, known: number(known["size"])(view, known))
    part = Term(lambda view, known: number(1 / known["size"] if known["size"] else math.nan)(view, known))
    return either(summed / size, summed * part)


def square(term: Term) -> Term:
    """The square of a term."""
    return either(apply("square", term), apply("power", term, 2), term * term)


def _terms_of(operands: tuple[Operand, ...]) -> tuple[Term, ...]:
    return tuple(each if isinstance(each, Term) else number(each) for each in operands)


def _all_match(terms: tuple[Term, ...], views: tuple[View, ...], bindings: Bindings) -> Iterator[Bindings]:
    """Every way in which views match terms, one by one."""
    if not terms:
        yield bindings
    elif all(not term.made_by or view.kind in term.made_by for term, view in zip(terms, views, strict=False)):
        for each in terms[0](views[0], bindings):
            yield from _all_match(terms[1:], views[1:], each)


def matches(term: Term, view: View, **known: Any) -> Iterator[Bindings]:
    """Every way in which a term matches a value that has all axes, where some names are known."""
    return term(view, {"rank": len(view.axes), **known})


def match(term: Term, view: View, **known: Any) -> Bindings | None:
    """The first of them."""
    return next(matches(term, view, **known), None)


Roots = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Several operations that are one site.

    Arguments:
        name: of the composite that they become where a kernel is to stand, `pcp.residual_norm`.
        forms: ways in which they are written, by name, the more particular ones first. Each is the terms of its results; from
            the last one a match begins, and the others are parts of it, or are made of inputs that it has.
        joins: whether all matches in a block together are one site.
        drops: whether results but the last of a form are left out where only the group itself uses them.
    """

    name: str
    forms: Mapping[str, Roots]
    joins: bool = False
    drops: bool = False

    @property
    def ends(self) -> set[str]:
        """The kinds of operations that a form can end with."""
        return {kind for roots in self.forms.values() for kind in roots[-1].kind.split("|")}


@dataclass(frozen=True, slots=True)
class Match:
    """Where a pattern stands.

    Arguments:
        form: which of its forms.
        inputs: by name, in order of the form; then operands of a composite that the form does not name, as `operand1`.
        results: values, in the order of the form's roots.
        attributes: those of the composites in it, which agree.
    """

    form: str
    inputs: Mapping[str, Value]
    results: tuple[Value, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


def matched(pattern: Pattern, op: ir.Operation, view: View | None = None) -> Match | None:
    """The match of the first form that ends with an operation; None if there is none.

    Arguments:
        view: of its result, if it was looked at before: what was found out of it then is not sought again.
    """
    if len(op.results) != 1 or is_beyond_rows(op):
        return None
    view = View.of(op.results[0]) if view is None else view
    known: dict[Term, list[Bindings]] = {}  # several forms may end alike
    for form, roots in pattern.forms.items():
        last = roots[-1]
        if not _is_made_by(op, last.kind):
            continue
        if last not in known:
            known[last] = list(matches(last, view))
        for ended in known[last]:
            bindings = _with_others(roots, ended)
            if bindings is None:
                continue
            inputs = [bindings[term.name] for term in _terms(roots, bindings) if term.kind == "value"]
            if all(map(_is_whole, inputs)) and all(_is_a_result(bindings[root]) for root in roots):
                candidate = _match(form, roots, bindings)
                if candidate is not None and not _has_marks(candidate):
                    return candidate
    return None


def _with_others(roots: Roots, bindings: Bindings) -> Bindings | None:
    """What is found, with the results that are no parts of the last one: they are looked for among the users of inputs."""
    for root in roots:
        if root in bindings:
            continue
        views = [each for each in bindings.values() if isinstance(each, View)]
        values = dict.fromkeys(each for view in views for each in (view.value, view.source().value))
        users = dict.fromkeys(use.owner.operation for value in values for use in value.uses)
        ways = (
            each
            for user in users
            if len(user.results) == 1 and _is_made_by(user, root.kind)
            for each in root(View.of(user.results[0]), bindings)
        )
        more = next(ways, None)
        if more is None:
            return None
        bindings = more
    return bindings


def _match(form: str, roots: Roots, bindings: Bindings) -> Match | None:
    # None where composites in it say different things.
    inputs: dict[str, Value] = {}
    attributes: dict[str, Any] = {}
    more: dict[str, Value] = {}
    for term in _terms(roots, bindings):
        view = bindings[term.name or term]
        if term.name:
            inputs[term.name] = view.value if term.kind == "value" else view.source().value
        elif "." in term.kind:
            own = composite_attributes(op := result_owner(view.source().value))
            if any(attributes.get(key, said) != said for key, said in own.items()):
                return None
            attributes |= own | {"computes": composite_name(op)}
            rest = range(len(term.operands), len(op.operands))
            more |= {f"operand{place}": op.operands[place] for place in rest}
    return Match(form, inputs | more, tuple(bindings[root].source().value for root in roots), attributes)


def _terms(roots: Roots, bindings: Bindings) -> list[Term]:
    """The terms of some that are found, in order, each once."""
    terms: dict[Term, None] = {}
    waiting = list(roots)[::-1]
    while waiting:
        term = waiting.pop()
        if term not in terms and (term.name or term) in bindings:
            terms[term] = None
            waiting += term.operands[::-1]
    return list(terms)


def kind_of(op: ir.Operation) -> str:
    """What a term calls an operation: the name of a composite, or of an operation without its dialect."""
    return composite_name(op) if op.name == COMPOSITE else op.name.partition(".")[2]


def _is_made_by(op: ir.Operation, kind: str) -> bool:
    return kind_of(op) in kind.split("|")


def _is_whole(view: View) -> bool:
    """Whether a value has all axes, in order."""
    return view.axes == tuple(range(len(view.axes)))


def _is_a_result(view: View) -> bool:
    """Whether a value is all that an operation returns, seen as it is, perhaps rounded."""
    op, source = defining_op(view.source().value), view.source()
    return op is not None and len(op.results) == 1 and source.axes == view.axes and _is_whole(view)


def _has_marks(match: Match) -> bool:
    """Whether any operation of a match bears a mark that no pattern knows."""
    return any(map(is_beyond_rows, operations_between(match.inputs.values(), match.results)))
