"""Forward mode on StableHLO: one walk over the operations of a block, from the first to the last.

There is no second table of rules. A pull-back is linear in the cotangents that it is given, so its own transpose, which
reverse mode makes of it, takes tangents of the operands to tangents of the results. Where that detour is needless, because
an operation is linear itself, works on each element alone or is computed anew from others, the tangent is written down
directly. Only control flow has functions of its own (`forward_control`).

Source: Radul, Paszke, Frostig, Johnson and Maclaurin, "You Only Linearize Once", 2023, section 2 (linear maps and their
transposes); Griewank and Walther, "Evaluating Derivatives", 2nd edition, 2008, section 3.1 (tangents).
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import zip_longest

from pcp.autodiff import rules as rules
from pcp.autodiff.engine import Reverse, apply_rule, is_differentiable, operations_of_expansion, rule_of
from pcp.ir import Builder
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.dataflow import is_used, operations_between
from pcp.ir.toolkit.regions import combiner, values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.derivative import Captured, Cotangent, Expanded, InvalidRule, Primal, Rule, rule_name
from pcp.ops.movement import zeros
from pcp.ops.movement.shape import STOP_GRADIENT
from pcp.ops.record import RECORDS, is_shipped
from pcp.tensor import Tensor

Tangent = Tensor | None
"""The derivative of one value along a direction; None is zero."""

OWN: dict[str, Callable[["Forward", ir.Operation], None]] = {}
"""Functions that set the tangents of an operation's results, by its full name, where the detour would be worse or none."""


class Forward:
    """The forward sweep over the operations of one module.

    Arguments:
        builder: where the operations on tangents are added.
        main: the outermost block. It gets further arguments, which stand for cotangents while pull-backs are transposed;
            nothing uses them once dead operations are gone.
    """

    def __init__(self, builder: Builder, main: ir.Block) -> None:
        self.builder = builder
        self.tangents: dict[Value, Tensor] = {}
        self.placeholders: list[str] = []
        self._main = main
        self._instead_of: dict[Value, Value] = {}
        self._returned: set[Value] = set()

    def push(self, operations: Sequence[ir.Operation], returned: Sequence[Value] = ()) -> None:
        """Add the tangents of what the operations make, from those of what they use.

        Arguments:
            operations: of one block, one after another; the builder stands behind the last.
            returned: values whose tangents are wanted though no operation uses them yet.
        """
        pinned = self.builder.pinned
        self._returned.update(returned)
        for op, following in zip_longest(operations, operations[1:]):
            self.builder.pinned = op.location
            # Each right behind its operation, so that control flow with tangents can take the place of control flow without.
            with nullcontext() if following is None else self.builder.before(following):
                own = OWN.get(op.name) if is_shipped(op.name) else None
                (own or Forward._push)(self, op)
        self.builder.pinned = pinned

    def tangent_or_zeros(self, value: Value) -> Tensor:
        """The tangent of a value, written out where it is zero."""
        known = self.tangents.get(value)
        spec = spec_of(value.type)
        return zeros(spec.shape, spec.dtype) if known is None else known

    def current(self, value: Value) -> Value:
        """What stands for a value whose operation was replaced."""
        return self._instead_of.get(value, value)

    def replace(self, old: Value, new: Value) -> None:
        """Let another value stand for one in every operation."""
        old.replace_all_uses_with(new)
        self._instead_of[old] = new

    def _push(self, op: ir.Operation) -> None:
        incoming = [self.tangents.get(value) for value in op.operands]
        captured = [v for v in values_from_outside(op) if v in self.tangents] if len(op.regions) else []
        reached = captured or any(t is not None for t in incoming)
        if not reached or STOP_GRADIENT in op.attributes or not any(map(is_differentiable, op.results)):
            return
        rule = rule_of(op)
        if rule is None:
            return
        for result, tangent in zip(op.results, self._outgoing(op, rule, incoming, captured), strict=True):
            if tangent is not None:
                if tangent.value.type != result.type:
                    raise InvalidRule(
                        f"the rule of {rule_name(op)} gave a tangent of {tangent.spec} for a value of {spec_of(result.type)}"
                    )
                self.tangents[result] = self.tangents[self.current(result)] = tangent

    def _outgoing(
        self, op: ir.Operation, rule: Rule, incoming: Sequence[Tangent], captured: Sequence[Value]
    ) -> Sequence[Tangent]:
        record = RECORDS.get(op.name)
        if record is not None and record.tangents is not None and is_shipped(op.name):
            primal = Primal(op, Reverse(self.builder), [t is not None for t in incoming], captured)
            return record.tangents(primal, *incoming)
        if not captured and is_shipped(op.name):
            linear = _linear_operands(op)
            if linear:
                return [self._on_tangents(op, {place: incoming[place] for place in linear})]
            if record is not None and record.is_bilinear:
                return [
                    _sum([self._on_tangents(op, {i: t}) for i, t in enumerate(incoming) if t is not None])
                ]
        is_elementwise = record is not None and record.is_elementwise
        if is_elementwise and isinstance(rule, tuple) and self._is_diagonal(op, incoming):
            inputs, y = [Tensor(v, self.builder) for v in op.operands], Tensor(op.results[0], self.builder)
            pairs = zip(rule, incoming, strict=True)
            return [_sum([row(t, y, *inputs) for row, t in pairs if row is not None and t is not None])]
        return self._by_pull_back(op, rule, incoming, captured)

    def _on_tangents(self, op: ir.Operation, tangents: dict[int, Tangent]) -> Tensor:
        """The same operation on tangents in the place of some operands."""
        values = {place: self.tangent_or_zeros(op.operands[place]).value for place in tangents}
        copy = op.clone(ip=self.builder.insertion)
        for place, value in values.items():
            copy.operands[place] = value
        return Tensor(copy.results[0], self.builder)

    @staticmethod
    def _is_diagonal(op: ir.Operation, incoming: Sequence[Tangent]) -> bool:
        """Whether every tangent has the type of the result: its row then multiplies each element alone."""
        return all(t is None or t.value.type == op.results[0].type for t in incoming)

    def _by_pull_back(
        self, op: ir.Operation, rule: Rule, incoming: Sequence[Tangent], captured: Sequence[Value]
    ) -> Sequence[Tangent]:
        """The tangents through what the rule computes anew; else the transpose of its pull-back, applied to tangents."""
        # A rule may refuse cotangents of results that nothing uses.
        cotangents = [
            self._placeholder(op, r) if is_differentiable(r) and (is_used(r) or r in self._returned) else None
            for r in op.results
        ]
        if not any(g is not None for g in cotangents):
            return cotangents
        reverse = _PullBack(self)
        primal = Primal(op, reverse, [t is not None for t in incoming], captured)
        pulled = apply_rule(rule, primal, cotangents)
        if isinstance(pulled, Expanded):
            return self._through(op, pulled, cotangents)
        pairs: list[tuple[Tangent, Tangent]] = list(
            zip(pulled.operands if isinstance(pulled, Captured) else pulled, incoming, strict=True)
        )
        if isinstance(pulled, Captured):
            pairs += [(g, self.tangents.get(value)) for value, g in pulled.values.items()]
        chosen = [(g.value, t) for g, t in pairs if g is not None and t is not None]
        wanted = [g.value for g in cotangents if g is not None]
        outputs = [value for value, _ in chosen]
        known = [*wanted, *op.operands, *op.results, *captured]
        tangents = iter(
            reverse.gradients(operations_between(known, outputs), outputs, [t for _, t in chosen], wanted)
        )
        return [None if g is None else next(tangents) for g in cotangents]

    def _through(
        self, op: ir.Operation, expanded: Expanded, cotangents: Sequence[Cotangent]
    ) -> Sequence[Tangent]:
        outputs = [r.value for r, g in zip(expanded.results, cotangents, strict=True) if g is not None]
        self.push(operations_of_expansion(op, expanded, outputs), outputs)
        return [
            None if g is None else self.tangents.get(r.value)
            for r, g in zip(expanded.results, cotangents, strict=True)
        ]

    def _placeholder(self, op: ir.Operation, result: Value) -> Tensor:
        self.placeholders.append(rule_name(op))
        return Tensor(self._main.add_argument(result.type, self.builder.location), self.builder)


class _PullBack(Reverse):
    """Reverse mode for one operation of a forward sweep, which must know what stands for its values."""

    def __init__(self, forward: Forward) -> None:
        super().__init__(forward.builder)
        self._forward = forward

    def replace(self, old: Value, new: Value) -> None:
        """Let another value stand for one in every operation."""
        self._forward.replace(old, new)


def _linear_operands(op: ir.Operation) -> Sequence[int]:
    """The operands in which an operation of one result is linear; none if it is not."""
    record = RECORDS.get(op.name)
    linear = record.linear if record is not None else None
    if (
        linear is None
        or len(list(op.results)) != 1
        or (linear.if_adding and combiner(op.regions[0]) != "add")
    ):
        return ()
    return range(len(list(op.operands))) if linear.operands is None else linear.operands


def _sum(terms: Sequence[Tensor]) -> Tangent:
    total: Tangent = None
    for term in terms:
        total = term if total is None else total + term
    return total
