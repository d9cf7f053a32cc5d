"""What a batching rule is: a field of the record of its operation, and what the rule is given.

A rule takes a `Batched` and returns the operation's results for all samples at once, each with the samples along a new first
axis; or `Mixed`, where some results are the same for every sample. An operation without a rule is run sample by sample.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pcp.ir import Builder, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Mixed:
    """Results of which only those flagged have an axis of samples."""

    results: Sequence[Tensor]
    flags: Sequence[bool]


def widened(spec: TensorSpec, size: int) -> TensorSpec:
    """The same with a first axis of samples."""
    return TensorSpec((size, *spec.shape), spec.dtype)


class BatchingSweep(Protocol):
    """The driver as rules see it; see `pcp.batching.engine.Batching`.

    Arguments:
        builder: where batched operations are added.
        size: the number of samples.
        batched: values that differ between samples, each with the samples along its first axis.
        functions: symbols of functions that were batched before.
    """

    builder: Builder
    size: int
    batched: dict[Value, Tensor]
    functions: dict[tuple[Any, ...], str]

    def push(self, operations: Sequence[ir.Operation]) -> None:
        """Batch operations of one block, one after another; the builder stands behind the last."""

    def lookup(self, value: Value) -> Tensor:
        """What a value is: batched, or the same for all samples."""

    def with_samples(self, value: Value) -> Tensor:
        """A value with samples along its first axis, repeated if it is the same for all."""

    def placeholder(self, type_: ir.Type) -> Value:
        """A value of one sample, for operations that are yet to be batched; the caller says what it is for all."""


class Batched:
    """An operation for one sample, as its rule sees it.

    Arguments:
        op: the operation.
        engine: the driver, for rules that batch regions.
        captured: values made outside that its regions use and that differ between samples.
    """

    __slots__ = ("captured", "engine", "flags", "op")

    def __init__(self, op: ir.Operation, engine: BatchingSweep, captured: Sequence[Value]) -> None:
        self.op = op
        self.engine = engine
        self.captured = captured
        self.flags = [value in engine.batched for value in op.operands]

    @property
    def size(self) -> int:
        """How many samples there are."""
        return self.engine.size

    @property
    def specs(self) -> list[TensorSpec]:
        """Shape and element type of the results for one sample."""
        return [spec_of(result.type) for result in self.op.results]

    def spec(self, index: int) -> TensorSpec:
        """Shape and element type of an operand for one sample."""
        return spec_of(self.op.operands[index].type)

    def operand(self, index: int) -> Tensor:
        """An operand: with samples along its first axis if it differs between them, else as it is."""
        return self.engine.lookup(self.op.operands[index])

    def operand_with_samples(self, index: int) -> Tensor:
        """An operand with samples along its first axis in any case."""
        return self.engine.with_samples(self.op.operands[index])

    def operands_with_samples(self) -> list[Tensor]:
        """All operands with samples along their first axes."""
        return [self.engine.with_samples(value) for value in self.op.operands]

    def integers(self, name: str) -> tuple[int, ...]:
        """An attribute that is an array of integers."""
        return integers_of(self.op.attributes[name])

    def widened(self) -> list[TensorSpec]:
        """The specs of the results for all samples."""
        return [widened(spec, self.size) for spec in self.specs]

    def clone_with(
        self,
        operands: Sequence[Tensor],
        attributes: Mapping[str, Any] | None = None,
        specs: Sequence[TensorSpec] | None = None,
    ) -> list[Tensor]:
        """The same operation on other operands.

        Arguments:
            attributes: those that differ.
            specs: of the results; by default those for all samples.
        """
        builder, op = self.engine.builder, self.op
        merged = dict(op.attributes.items()) | dict(attributes or {})
        count = len(op.regions)
        results = self.widened() if specs is None else list(specs)
        new = builder.emit(op.name, [t.value for t in operands], results, merged, regions=count)
        if count:
            shell = op.clone(ip=builder.insertion)
            for index in range(count):
                shell.regions[index].blocks[0].append_to(new.regions[index])
            shell.erase()
        return [Tensor(value, builder) for value in new.results]


BatchingRule = Callable[[Batched], Sequence[Tensor] | Mixed | None]
"""A rule; it returns None where it does not cover a case, which is then run sample by sample."""

BATCHING: dict[str, BatchingRule] = {}
"""The rules in force, by the full names of their operations; a record enters its own here."""


def register_batching(rows: Mapping[str, BatchingRule]) -> None:
    """Enter rules; a name without a dialect is one of StableHLO."""
    BATCHING.update({name if "." in name else f"stablehlo.{name}": row for name, row in rows.items()})
