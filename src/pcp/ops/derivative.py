"""What a derivative rule is: a field of the record of its operation, and what the rule is given.

A rule is one of four:

- a tuple with one function for each operand, `(g, y, *x) -> cotangent of that operand`, for operations with one result:
  `"multiply": (lambda g, y, a, b: g * b, lambda g, y, a, b: g * a)`. None stands for an operand without derivative;
- a function `(primal, *cotangents) -> cotangents of all operands`, where an operation has attributes, regions or several
  results. A cotangent that is None is zero, on both sides;
- an `Expansion`: a function `(primal) -> results` that computes the same from operations that have rules. A function of
  cotangents may return `Expanded`, with such results, where only some cases are computed so;
- None: the derivative is zero by definition, as that of `floor`.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar

from pcp.errors import PCPError
from pcp.ir import Builder
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import (
    describe_location,
    flag_of,
    integer_of,
    integers_of,
    string_of,
)
from pcp.ir.toolkit.inlining import has_custom_derivative
from pcp.tensor import Tensor

Cotangent = Tensor | None
"""The gradient of the loss with respect to one value; None is zero."""


class NoDerivative(PCPError):
    """An operation on the way from the arguments to the loss that cannot be differentiated."""


class InvalidRule(PCPError):
    """A rule that returned something other than one cotangent, of the right shape and type, for each operand."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What a rule of an operation with regions returns.

    Arguments:
        operands: the cotangent of each operand.
        values: cotangents of values that the regions use and that are made outside of them.
    """

    operands: Sequence[Cotangent]
    values: dict[Value, Tensor]


@dataclass(frozen=True, slots=True)
class Expanded:
    """What a rule returns that computed the operation's results anew, from operations that have rules.

    What the operation itself returned counts as constant there. So `results` may be the derivative of the operation as a
    linear map, applied to its own operands: each mode takes from it that map, or its transpose.

    Arguments:
        results: one for each result of the operation.
        constants: further values that count as constant.
    """

    results: Sequence[Tensor]
    constants: Sequence[Tensor] = ()


@dataclass(frozen=True, slots=True)
class Expansion:
    """A rule by way of other operations: `results` computes the operation's results from its inputs."""

    results: Callable[["Primal"], Sequence[Tensor]]


Outgoing = Sequence[Cotangent] | Expanded
"""What most rules of several lines return: the cotangents of the operands, or the way to them."""

Rule = tuple[Callable[..., Tensor] | None, ...] | Callable[..., Outgoing | Captured] | Expansion | None

RULES: dict[str, Rule] = {}
"""The rules in force, by the names of operations: `stablehlo.add`, `chlo.erf`, `custom_call.TARGET`, `composite.NAME`.

A record enters that of its operation here; `register_rule` adds others and replaces."""

REFUSED: dict[str, str] = {}
"""Why operations have no derivative, by their names; the error says so. A record enters its reason here."""

_R = TypeVar("_R", bound=Callable[..., Any])
_MISSING = object()


def register_rule(name: str, rule: Any = _MISSING) -> Any:
    """Give an operation its derivative, or another one.

    Arguments:
        name: `add` or `stablehlo.add`, `chlo.erf`, `custom_call.TARGET` for a custom call, or `composite.NAME`; a composite
            without a rule is differentiated by way of its function.
        rule: a row as `pcp.ops.derivative` describes; left out, the next function is it: `@register_rule("custom_call.mine")`.
    """
    if rule is _MISSING:
        return functools.partial(_registered, name)
    return _registered(name, rule)


def _registered(name: str, rule: _R) -> _R:
    RULES[name if "." in name else f"stablehlo.{name}"] = rule
    return rule


def rule_name(op: ir.Operation) -> str:
    """The name under which the rule of an operation stands."""
    if op.name == "stablehlo.custom_call":
        return f"custom_call.{string_of(op.attributes['call_target_name'])}"
    if op.name == "stablehlo.composite":
        return f"composite.{string_of(op.attributes['name'])}"
    return op.name


def rule_or(op: ir.Operation, default: Any) -> Any:
    """The rule of an operation: that of its name, else that of composites which bring their own derivative.

    Arguments:
        default: what is returned if there is none; None is a rule.
    """
    name = rule_name(op)
    if name not in RULES and has_custom_derivative(op):
        name = op.name
    return RULES.get(name, default)


def no_derivative(op: ir.Operation, reason: str) -> NoDerivative:
    """The error that an operation cannot be differentiated, with its place and what to do."""
    name = rule_name(op)
    place = describe_location(op.location)
    return NoDerivative(
        f"{name} cannot be differentiated: {reason}{place and f'{chr(10)}  at {place}'}\n"
        f"  give it a rule: pcp.autodiff.register_rule({name!r}, rule); or cut it off: pcp.stop_gradient"
    )


class ReverseSweep(Protocol):
    """The driver as rules see it; see `pcp.autodiff.engine.Reverse`.

    Arguments:
        builder: where the operations of the backward pass are added.
        loops: what loops keep of their forward pass.
        composites: the gradients of composites that were made before: symbols and which operands they are for.
    """

    builder: Builder
    loops: Any
    composites: dict[tuple[object, ...], tuple[str, tuple[int, ...]]]

    def gradients(
        self,
        operations: Sequence[ir.Operation],
        outputs: Iterable[Value],
        cotangents: Iterable[Cotangent],
        wanted: Sequence[Value],
    ) -> list[Cotangent]:
        """The cotangents of `wanted`, from those of `outputs`."""

    def take_accumulated(self, value: Value) -> Cotangent:
        """Take away and return the cotangent that a value has so far."""

    def replace(self, old: Value, new: Value) -> None:
        """Let another value stand for one in every operation."""


class Primal:
    """An operation of the forward pass, as its rule sees it.

    Arguments:
        op: the operation.
        engine: the driver, for rules that differentiate regions or expansions.
        active: for each operand, whether its cotangent is wanted; the others may be None.
        captured: active values made outside that the regions of the operation use.
    """

    __slots__ = ("active", "captured", "engine", "op")

    def __init__(
        self, op: ir.Operation, engine: ReverseSweep, active: Sequence[bool], captured: Sequence[Value] = ()
    ) -> None:
        self.op = op
        self.engine = engine
        self.active = active
        self.captured = captured

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The operands."""
        return tuple(Tensor(value, self.engine.builder) for value in self.op.operands)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The results."""
        return tuple(Tensor(value, self.engine.builder) for value in self.op.results)

    def input(self, index: int) -> Tensor:
        """One operand."""
        return Tensor(self.op.operands[index], self.engine.builder)

    def output(self, index: int = 0) -> Tensor:
        """One result."""
        return Tensor(self.op.results[index], self.engine.builder)

    def integers(self, name: str) -> tuple[int, ...]:
        """An attribute that is an array of integers; empty if it is absent."""
        return integers_of(self.op.attributes[name]) if name in self.op.attributes else ()

    def integer(self, name: str) -> int:
        """An attribute that is an integer."""
        return integer_of(self.op.attributes[name])

    def flag(self, name: str) -> bool:
        """An attribute that is a boolean; false if it is absent."""
        return name in self.op.attributes and flag_of(self.op.attributes[name])

    def take_accumulated(self, index: int) -> Cotangent:
        """Take over the cotangent that an operand has so far: the rule adds to it and returns the sum."""
        return self.engine.take_accumulated(self.op.operands[index])

    def refuse(self, reason: str) -> NoReturn:
        """Raise `NoDerivative` with a reason."""
        raise no_derivative(self.op, reason)
