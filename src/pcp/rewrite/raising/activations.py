"""Activations, written out, become `pcp.activation`, and what differentiates one becomes the gradient of that.

They are written in too many ways for patterns: by tanh or the logistic function, with a cube by products or by a power, with
erf or erfc, halved here or there. So what a program computes from one value is evaluated at some points, and named by its
numbers. Operations that are followed are analytic, but for choices; two such functions that agree at these points are one.
A cotangent is a factor: what is linear in another value has the slope for it. A composite's function is what stood there, so no
number changes.

Operand: x. Attribute: `function`, a name of `ACTIVATIONS`.

Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, section 2, of all but the last; So et al., "Primer", 2021, of
that.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pcp.ir import Builder, Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.composites.records import ACTIVATION
from pcp.ir.toolkit.attributes import comparison_direction
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.rewrite.outline import outlined
from pcp.rewrite.pattern import is_beyond_rows
from pcp.rewrite.raising.normalisation import is_relu_of_jax
from pcp.rewrite.view import View
from pcp.tensor import building

Array = np.ndarray[Any, Any]

_MAGNITUDES = np.geomspace(1e-6, 12, 24)
POINTS = np.concatenate([-_MAGNITUDES, _MAGNITUDES, np.random.default_rng(0).uniform(-6, 6, 32)])
"""Where functions are evaluated, in float64; nothing that activations are made of overflows there."""
FOLLOWED = 256
"""Operations, at most, that are followed from one value."""
BEFORE = 12
"""Values, at most, before a root that may be what an activation is taken of."""


_erf, _erfc = (np.vectorize(each, otypes=[np.float64]) for each in (math.erf, math.erfc))


def _logistic(x: Array) -> Array:
    below: Array = 1 + np.exp(-x)
    return 1 / below


@dataclass(frozen=True)
class Activation:
    """x times a weight of x.

    Arguments:
        weight, slope: of points; the slope is that of the weight.
        roots: kinds of operations that it is made of, one of which it must have.
        linear, cubic: where the weight is the logistic function of linear x + cubic x^3.
    """

    weight: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    roots: tuple[str, ...]
    linear: float = 0.0
    cubic: float = 0.0

    @cached_property
    def values(self) -> tuple[Array, Array]:
        """At the points: the activation, and what differentiates it."""
        with np.errstate(all="ignore"):
            weight = self.weight(POINTS)
            return POINTS * weight, weight + POINTS * self.slope(POINTS)


def _by_logistic(linear: float, cubic: float = 0.0) -> Activation:
    def weight(x: Array) -> Array:
        return _logistic(linear * x + cubic * x**3)

    def slope(x: Array) -> Array:
        derivative: Array = weight(x) * (1 - weight(x)) * (linear + 3 * cubic * x**2)
        return derivative

    return Activation(weight, slope, ("tanh", "logistic", "exponential"), linear, cubic)


_TWICE = 2 * math.sqrt(2 / math.pi)
ACTIVATIONS: dict[str, Activation] = {
    # x / 2 (1 + tanh u) is x times the logistic function of 2 u.
    "tanh_gelu": _by_logistic(_TWICE, _TWICE * 0.044715),
    "exact_gelu": Activation(
        lambda x: _erfc(x * -math.sqrt(0.5)) / 2,
        lambda x: np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
        ("erf", "erfc"),
    ),
    "silu": _by_logistic(1.0),
    "quick_gelu": _by_logistic(1.702),
    "squared_relu": Activation(
        lambda x: np.maximum(x, 0), lambda x: np.where(x > 0, 1.0, 0.0), ("maximum", "compare", "relu")
    ),
}
"""By the name that the composite has in its attribute."""


_COMPARED: dict[str, Callable[..., Array]] = {
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _compare(op: ir.Operation, a: Array, b: Array) -> Array | None:
    """A question of the sign of the points; NaN for any other, which may have another answer between two points."""
    if a.dtype == bool or b.dtype == bool:  # truths have no sign
        return None
    compared, side = _COMPARED.get(comparison_direction(op)), a if np.any(a) else b
    has_zero = not (np.any(a) and np.any(b))
    is_sign = has_zero and abs(np.sum(np.sign(side) * np.sign(POINTS))) == len(POINTS)
    return None if compared is None else compared(a, b) if is_sign else np.full(POINTS.shape, np.nan)


def _select(_: ir.Operation, chosen: Array, a: Array, b: Array) -> Array | None:
    """One of two functions; where it is not known which, they have to be one."""
    if not np.isnan(chosen).any():
        return np.where(chosen, a, b)
    return a if np.allclose(a, b, rtol=1e-9, atol=1e-15) else None


_EVALUATED: dict[str, Callable[..., Any]] = {
    "add": lambda _, a, b: a + b,
    "subtract": lambda _, a, b: a - b,
    "multiply": lambda _, a, b: a * b,
    "divide": lambda _, a, b: a / b,
    "reshape": lambda _, a: a,
    "convert": lambda op, a: a if spec_of(op.results[0].type).dtype.is_float else None,
    "negate": lambda _, a: -a,
    "abs": lambda _, a: np.abs(a),
    "power": lambda _, a, b: np.power(a, b),
    "square": lambda _, a: a * a,
    "tanh": lambda _, a: np.tanh(a),
    "logistic": lambda _, a: _logistic(a),
    "exponential": lambda _, a: np.exp(a),
    "erf": lambda _, a: _erf(a),
    "erfc": lambda _, a: _erfc(a),
    "maximum": lambda _, a, b: None if np.any(a) and np.any(b) else np.maximum(a, b),
    "compare": _compare,
    "select": _select,
    "relu": lambda _, a: np.maximum(a, 0),
}
"""What operations make of points; None of what is not followed."""
_ROOTS = tuple(dict.fromkeys(root for each in ACTIVATIONS.values() for root in each.roots))


@dataclass(frozen=True, slots=True)
class _Found:
    """The last operation of an activation, or of what differentiates one, and what it is made from."""

    op: ir.Operation
    function: str
    operands: tuple[Value, ...]


def name_activations(program: Program) -> Program:
    """The program with a composite in the place of every activation, and of every gradient of one, that is written out."""
    if not any(root.encode() in program.bytecode for root in _ROOTS):
        return program
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    activations = _all_found(list(walk_block(block)))
    if not activations:
        return program
    with context(), building(Builder(module, block)) as builder:
        for each in reversed(activations):  # so what one is made from stays as it was found
            _replace(each, builder)
        del activations, each  # no Python object may stand for what is erased now
        erase_dead(block)
    return Program.from_module(module)


def _all_found(operations: Sequence[ir.Operation]) -> list[_Found]:
    """The activations, and what differentiates them, in order of their ends."""
    order = {op: place for place, op in enumerate(operations)}
    done: dict[int, _Found] = {}
    for root in operations:
        if _kind(root) in _ROOTS:
            for x in _inputs(root, order):
                followed = _Followed(x, operations, order).found()
                if followed:
                    done = followed | done
                    break
    return [done[place] for place in sorted(done)]


def _replace(found: _Found, builder: Builder) -> None:
    attributes: dict[str, Any] = {"function": found.function}
    record = ACTIVATION
    if len(found.operands) > 1:
        record = replace(record, name=record.gradient_name)
        attributes |= {"wrt": (0,), "added": ()}
    (result,) = found.op.results
    with builder.before(found.op):
        builder.pinned = found.op.location
        # Others may use what is inside: it is computed for them once more, or shared again once both are written out.
        named = outlined(
            record, found.op, found.operands, attributes, largest_shared=spec_of(result.type).size
        )
        builder.pinned = None
    if named is not None:
        result.replace_all_uses_with(named[0].value)


def _inputs(root: ir.Operation, order: Mapping[ir.Operation, int]) -> Iterator[Value]:
    """What an activation may be taken of that has a root: values before it, the nearest first."""
    waiting, seen = [(-order[root], root)], set[Value]()
    while waiting and len(seen) < BEFORE:
        _, op = heapq.heappop(waiting)
        for x in op.operands:
            if x in seen or not spec_of(x.type).dtype.is_float or View.of(x).number() is not None:
                continue
            seen.add(x)
            yield x
            maker = defining_op(x)
            if maker is not None and maker in order and _kind(maker) in _EVALUATED:
                heapq.heappush(waiting, (-order[maker], maker))


class _Followed:
    """What operations compute from one value: functions of it, and multiples of other values by such functions."""

    def __init__(
        self, x: Value, operations: Sequence[ir.Operation], order: Mapping[ir.Operation, int]
    ) -> None:
        self._x, self._operations, self._order = x, operations, order
        self._spec = spec_of(x.type)
        self._functions: dict[Value, Array] = {x: POINTS}
        self._multiples: dict[Value, dict[Value, Array]] = {}

    def found(self) -> dict[int, _Found]:
        """The activations, and what differentiates them, by their places."""
        waiting, seen, kinds, activations = list[int](), set[int](), set[str](), dict[int, _Found]()
        self._push(self._x, waiting)
        while waiting and len(seen) < FOLLOWED:
            place = heapq.heappop(waiting)
            op = self._operations[place]
            if place in seen or not self._follow(op):
                continue
            seen.add(place)
            kinds.add(_kind(op))
            self._push(op.results[0], waiting)
            names = (name for name, each in ACTIVATIONS.items() if not kinds.isdisjoint(each.roots))
            fitting = (self._fitting(op, name) for name in names)
            first = next((each for each in fitting if each is not None), None)
            if first is not None:
                activations[place] = first
        return activations

    def _fitting(self, op: ir.Operation, name: str) -> _Found | None:
        """What an operation ends, if that is an activation of this name, or what differentiates it."""
        (result,) = op.results
        values, slopes = ACTIVATIONS[name].values
        if result.type != self._x.type:
            return None
        if result in self._functions and self._agree(self._functions[result], values, POINTS):
            return _Found(op, name, (self._x,))
        for factor, multiple in self._multiples.get(result, {}).items():
            if factor.type == self._x.type and self._agree(multiple, slopes, 1.0):
                return _Found(op, name, (self._x, factor))
        return None

    def _push(self, value: Value, waiting: list[int]) -> None:
        for use in value.uses:
            place = self._order.get(use.owner.operation)
            if place is not None:
                heapq.heappush(waiting, place)

    def _agree(self, found: Array, exact: Array, scale: Array | float) -> bool:
        """Whether numbers are those of a function, to the rounding of the program's constants."""
        error = 2e-6 if self._spec.dtype.bits >= 32 else 2**-7
        return bool(np.all(np.abs(found - exact) <= error * (np.abs(exact) + 0.05 * np.abs(scale))))

    def _follow(self, op: ir.Operation) -> bool:
        """Whether an operation makes one of the two, which is kept."""
        kind = _kind(op)
        if kind not in _EVALUATED or len(op.results) != 1 or is_beyond_rows(op):
            return False
        (result,) = op.results
        if spec_of(result.type).shape != self._spec.shape:
            return False
        with np.errstate(all="ignore"):
            known = [self._known(operand) for operand in op.operands]
            if all(each is not None for each in known):
                values = _EVALUATED[kind](op, *known)
                if values is not None:
                    self._functions[result] = np.broadcast_to(values, POINTS.shape)
                return values is not None
            multiples = self._multiplied(kind, list(op.operands), known)
        if multiples:
            self._multiples[result] = multiples
        return bool(multiples)

    def _known(self, value: Value) -> Array | None:
        return self._functions[value] if value in self._functions else _number(value)

    def _multiplied(
        self, kind: str, operands: Sequence[Value], known: Sequence[Array | None]
    ) -> dict[Value, Array]:
        """By which functions of the value the result of an operation is a multiple of others."""
        one = np.array(1.0)
        match kind, known:
            case ("negate", _) | ("reshape", _) | ("convert", _):
                return self._times(operands[0], -one if kind == "negate" else one)
            case "multiply", [None, by] if by is not None:
                return self._times(operands[0], by)
            case "multiply", [by, None] if by is not None:
                return self._times(operands[1], by)
            case "divide", [None, by] if by is not None:
                return self._times(operands[0], 1 / by)
            case (("add" | "subtract"), _):
                return self._summed(operands, known, (one, one if kind == "add" else -one))
            case "select", [chosen, *others] if chosen is not None:
                return self._summed(
                    operands[1:], others, (np.where(chosen, 1.0, 0.0), np.where(chosen, 0.0, 1.0))
                )
        return {}

    def _summed(
        self, operands: Sequence[Value], known: Sequence[Array | None], by: Sequence[Array]
    ) -> dict[Value, Array]:
        """The sum of two values, each times a function: of both what is a multiple of the same; a known one must be 0."""
        if any(each is not None and np.any(each) for each in known):
            return {}
        first, *more = (
            self._times(value, factor)
            for value, number, factor in zip(operands, known, by, strict=True)
            if number is None
        )
        for second in more:
            first = {factor: first[factor] + second[factor] for factor in first if factor in second}
        return first

    def _times(self, value: Value, by: Array) -> dict[Value, Array]:
        of = {**_scaled(value), **self._multiples.get(value, {})}
        return {factor: multiple * by for factor, multiple in of.items()}


def _scaled(value: Value, steps: int = 3) -> dict[Value, Array]:
    """What a value is a number times, and that number."""
    scale, of = 1.0, {value: np.ones_like(POINTS)}
    for _ in range(steps):
        op = defining_op(value)
        kind = "" if op is None else _kind(op)
        if op is None or kind not in ("multiply", "divide", "negate"):
            break
        sides = [(View.of(each).number(), each) for each in op.operands]
        numbers = [number for number, _ in sides if number is not None]
        if kind == "negate":
            scale, value = -scale, op.operands[0]
        elif kind == "multiply" and len(numbers) == 1:
            scale, value = scale * numbers[0], next(each for number, each in sides if number is None)
        elif kind == "divide" and len(numbers) == 1 and sides[1][0]:
            scale, value = scale / sides[1][0], op.operands[0]
        else:
            break
        of[value] = np.full_like(POINTS, scale)
    return of


def _number(value: Value, steps: int = 3) -> Array | None:
    """The number that every element is, also where it is computed from others."""
    known = View.of(value).number()
    if known is not None:
        return np.array(known)
    op = defining_op(View.of(value).source().value)
    if op is None or not steps or _kind(op) not in _EVALUATED:
        return None
    operands = [_number(each, steps - 1) for each in op.operands]
    number = None if any(each is None for each in operands) else _EVALUATED[_kind(op)](op, *operands)
    return None if number is None else np.array(number)


def _kind(op: ir.Operation) -> str:
    """The name of an operation without its dialect; of JAX's ReLU, `relu`."""
    name = op.name.partition(".")[2]
    return "relu" if name == "composite" and is_relu_of_jax(op) else name
