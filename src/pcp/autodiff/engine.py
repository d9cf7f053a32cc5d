"""Reverse mode on StableHLO: one walk over the operations of a block, from the last to the first.

Cotangents are added where the operations that use a value meet. Values of the forward pass are used where they are, by SSA;
the operations of the backward pass are added behind them in the same block. Only values that depend on what is differentiated
for (the active ones) are visited, and a cotangent that is zero is None throughout, so no zero is ever computed.

Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, 2008, section 3.2 (the incremental reverse sweep) and
section 6.2 (activity).
"""

from collections.abc import Iterable, Sequence
from functools import cmp_to_key
from typing import Any

from pcp.autodiff.coverage import reason_against
from pcp.autodiff.loops.memory import LoopMemory
from pcp.ir import Builder, DType, InvalidProgram, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.dataflow import operations_between
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.derivative import (
    REFUSED,
    Captured,
    Cotangent,
    Expanded,
    Expansion,
    InvalidRule,
    Outgoing,
    Primal,
    Rule,
    no_derivative,
    rule_name,
    rule_or,
)
from pcp.ops.movement.shape import STOP_GRADIENT
from pcp.tensor import Tensor

_MISSING: Any = object()


class Reverse:
    """The reverse sweep over blocks of one module.

    Arguments:
        builder: where the operations of the backward pass are added.
        loops: what loops keep of their forward pass.
    """

    def __init__(self, builder: Builder, loops: LoopMemory | None = None) -> None:
        self.builder = builder
        self.loops = loops or LoopMemory()
        self.composites: dict[tuple[object, ...], tuple[str, tuple[int, ...]]] = {}
        self._cotangents: dict[Value, Tensor] = {}

    def gradients(
        self,
        operations: Sequence[ir.Operation],
        outputs: Iterable[Value],
        cotangents: Iterable[Cotangent],
        wanted: Sequence[Value],
    ) -> list[Cotangent]:
        """The cotangents of `wanted`, from those of `outputs`.

        Arguments:
            operations: what computes the outputs from the wanted values, in order.
            outputs: values that the operations make, or wanted values.
            cotangents: one for each output.
            wanted: distinct values from before the operations.
        """
        outer, self._cotangents = self._cotangents, {}
        pinned = self.builder.pinned
        try:
            active = set(wanted)
            captured = propagate_activity(operations, active)
            for value, cotangent in zip(outputs, cotangents, strict=True):
                if cotangent is not None and value in active:
                    self._add(value, cotangent)
            for op in reversed(operations):
                if any(result in self._cotangents for result in op.results):
                    self._pull_back(op, active, captured.get(op, ()))
            return [self._cotangents.get(value) for value in wanted]
        finally:
            self._cotangents = outer
            self.builder.pinned = pinned

    def _through(
        self, primal: Primal, expanded: Expanded, cotangents: Sequence[Cotangent]
    ) -> list[Cotangent]:
        """The cotangents of an operation's operands by way of what computes its results anew."""
        operands = list(primal.op.operands)
        moving = [value for value, active in zip(operands, primal.active, strict=True) if active]
        wanted = dict.fromkeys([*moving, *primal.captured])
        outputs = [tensor.value for tensor in expanded.results]
        operations = operations_of_expansion(primal.op, expanded, outputs)
        gradients = dict(
            zip(wanted, self.gradients(operations, outputs, cotangents, list(wanted)), strict=True)
        )
        outgoing = [gradients.pop(value, None) for value in operands]
        for value, cotangent in gradients.items():  # what the regions use from outside
            if cotangent is not None:
                self._add(value, cotangent, primal.op)
        return outgoing

    def take_accumulated(self, value: Value) -> Cotangent:
        """Take away and return the cotangent that a value has so far."""
        return self._cotangents.pop(value, None)

    def replace(self, old: Value, new: Value) -> None:
        """Let another value stand for one in every operation."""
        old.replace_all_uses_with(new)

    def _pull_back(self, op: ir.Operation, active: set[Value], captured: Sequence[Value]) -> None:
        rule = rule_of(op)
        self.builder.pinned = op.location
        operands = list(op.operands)
        incoming = [self._cotangents.pop(result, None) for result in op.results]
        primal = Primal(op, self, [value in active for value in operands], captured)
        pulled = apply_rule(rule, primal, incoming)
        if isinstance(pulled, Expanded):
            pulled = self._through(primal, pulled, incoming)
        outgoing = pulled.operands if isinstance(pulled, Captured) else pulled
        if len(outgoing) != len(operands):
            raise InvalidRule(
                f"the rule of {rule_name(op)} returned {len(outgoing)} cotangents for {len(operands)} operands"
            )
        for value, cotangent in zip(operands, outgoing, strict=True):
            if cotangent is not None and value in active:
                self._add(value, cotangent, op)
        for value, cotangent in pulled.values.items() if isinstance(pulled, Captured) else ():
            self._add(value, cotangent, op)

    def _add(self, value: Value, cotangent: Tensor, op: ir.Operation | None = None) -> None:
        if cotangent.value.type != value.type:
            name = "the caller" if op is None else f"the rule of {rule_name(op)}"
            raise InvalidRule(
                f"{name} gave a cotangent of {cotangent.spec} for a value of {spec_of(value.type)}; expected the same"
            )
        known = self._cotangents.get(value)
        self._cotangents[value] = cotangent if known is None else _sum(known, cotangent)


def _sum(x: Tensor, y: Tensor) -> Tensor:
    """The sum of two cotangents; in f32 where their type is one of storage, in which nothing is computed."""
    if x.dtype.is_differentiable:
        return x + y
    return (x.astype(DType.f32) + y.astype(DType.f32)).astype(x.dtype)


def apply_rule(rule: Rule, primal: Primal, cotangents: Sequence[Cotangent]) -> Outgoing | Captured:
    """What a rule makes of the cotangents of an operation's results."""
    if isinstance(rule, tuple):
        inputs, y, g = primal.inputs, primal.output(), cotangents[0]
        if len(rule) != len(inputs):
            raise InvalidRule(
                f"the rule of {rule_name(primal.op)} has {len(rule)} functions for {len(inputs)} operands"
            )
        return [
            function(g, y, *inputs) if active and function is not None else None
            for function, active in zip(rule, primal.active, strict=True)
        ]
    if isinstance(rule, Expansion):
        return Expanded(rule.results(primal))
    if rule is None:
        return [None] * len(primal.active)
    return rule(primal, *cotangents)


def rule_of(op: ir.Operation) -> Rule:
    """The rule of an operation.

    Raises:
        NoDerivative: there is none.
    """
    rule: Rule = rule_or(op, _MISSING)
    if rule is _MISSING:
        raise no_derivative(op, reason_against(rule_name(op)))
    return rule


def propagate_activity(
    operations: Iterable[ir.Operation], active: set[Value]
) -> dict[ir.Operation, list[Value]]:
    """Add to `active` the results that depend on active values and have a derivative.

    Returns:
        For every operation whose regions use active values from outside, these values.

    Raises:
        NoDerivative: one has no derivative, and returns nothing by which it shows whether that matters.
    """
    captured: dict[ir.Operation, list[Value]] = {}
    for op in operations:
        reached = any(value in active for value in op.operands)
        if len(op.regions):
            outside = [value for value in values_from_outside(op) if value in active]
            if outside:
                captured[op] = outside
                reached = True
        if reached and rule_or(op, _MISSING) is not None and STOP_GRADIENT not in op.attributes:
            results = [result for result in op.results if is_differentiable(result)]
            if not results and rule_name(op) in REFUSED:  # what it returns cannot be followed to the loss
                raise no_derivative(op, REFUSED[rule_name(op)])
            active.update(results)
    return captured


def active_carries(op: ir.Operation, active: list[bool], outside: set[Value]) -> list[bool]:
    """Which carries of a loop depend, in any trip, on those that begin active, or on active values from outside."""
    body = op.regions[1].blocks[0]
    arguments, returned, operations = list(body.arguments), returned_by(body), block_operations(body)
    while True:
        reached = outside | {a for a, is_active in zip(arguments, active, strict=True) if is_active}
        propagate_activity(operations, reached)
        wider = [
            was or (value in reached and is_differentiable(value))
            for was, value in zip(active, returned, strict=True)
        ]
        if wider == active:
            return active
        active = wider


def is_differentiable(value: Value) -> bool:
    """Whether a value is of floating-point or complex numbers, those of storage too."""
    try:
        spec: TensorSpec = spec_of(value.type)
    except InvalidProgram:  # a token or a tuple
        return False
    return spec.dtype.is_inexact


def operations_of_expansion(
    op: ir.Operation, expanded: Expanded, outputs: Sequence[Value]
) -> list[ir.Operation]:
    """The operations that compute some results of an operation anew, in the order of their block."""
    constants = [*op.results, *(tensor.value for tensor in expanded.constants)]
    operations = operations_between([*op.operands, *values_from_outside(op), *constants], outputs)

    def order(first: ir.Operation, second: ir.Operation) -> int:
        return -1 if first.is_before_in_block(second) else 1

    return sorted(operations, key=cmp_to_key(order))
