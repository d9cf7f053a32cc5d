"""Copies of operations written into a program, in front of what reads them first.

A copy must not be merged with its original, nor be made early. A barrier that says so does not survive XLA's compiler for
processors, so the dependence is a real one: a value that everything made again starts from is chosen by a condition that reads
the newest cotangent and always holds, which no compiler knows. It costs one comparison for each burst of recomputation, and a
copy where the value goes into a product.
"""

from collections.abc import Sequence

from pcp.autodiff.rematerialisation.checkpointing import CHECKPOINT
from pcp.autodiff.rematerialisation.joint_graph import JointGraph
from pcp.ir import Builder, DType
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE
from pcp.ir.toolkit.editing import substitute
from pcp.ops.elementwise import bitcast, bitwise_or, convert, not_equal, real, where
from pcp.ops.movement import broadcast_to, full, reshape, slice_, zeros
from pcp.ops.tapping import TAP
from pcp.tensor import Tensor, building


def write_schedule(
    module: ir.Module,
    block: ir.Block,
    graph: JointGraph,
    operations: Sequence[ir.Operation],
    order: Sequence[int],
) -> None:
    """Write a schedule into a block: copies of operations stand before what reads them first.

    Arguments:
        graph: of the block.
        operations: of the block, without its terminator.
        order: as `JointGraph.schedule` returns it.
    """
    if any(op < 0 for op in order):
        _Emission(module, block, graph, operations).run(order)


class _Emission:
    """Writes one schedule."""

    def __init__(
        self, module: ir.Module, block: ir.Block, graph: JointGraph, operations: Sequence[ir.Operation]
    ) -> None:
        self.graph = graph
        self.operations = operations
        self.builder = Builder(module, block)
        self.builder.pinned = ir.Location.unknown()
        self.values: list[Value] = [*block.arguments, *graph.outside]
        for op in operations:
            self.values += op.results
        self.remade: dict[int, Value] = {}
        self.composites: dict[int, ir.Operation] = {}  # that were made again, by their places
        self.front: Value | None = self._first_front()
        self.depth = dict.fromkeys(range(len(graph.specs)), 0)
        self._conditions: dict[Value, Tensor] = {}
        self._tied: dict[tuple[int, Value], Value] = {}

    def run(self, order: Sequence[int]) -> None:
        """Add the copies, and let the backward pass read them."""
        deepest = 0
        following = [op for op in order if op >= 0]
        place = 0
        with building(self.builder):
            for op in order:
                if op < 0:
                    with self.builder.before(self.operations[following[place]]):
                        self._make_again(~op)
                    continue
                place += 1
                known = {v: self.remade[v] for v in self.graph.reads[op] if v in self.remade}
                substitute(self.operations[op], {self.values[v]: new for v, new in known.items()})
                composite = self.composites.get(self.graph.composite_of.get(op, -1))
                if composite is not None:
                    # With its operands, nothing inside of the gradient is what it was in the forward pass.
                    for index, operand in enumerate(composite.operands):
                        self.operations[op].operands[index] = operand
                depth = 1 + max((self.depth[v] for v in self.graph.reads[op]), default=0)
                for value in self.graph.results[op]:
                    self.depth[value] = depth
                    # The chain of cotangents is the longest one; what else the backward pass computes may run early.
                    if depth >= deepest and self._can_tie(value):
                        deepest, self.front = depth, self.values[value]

    def _first_front(self) -> Value | None:
        """What stands for the newest cotangent before there is one: a result of the forward pass."""
        returned = [
            v for v in self.graph.returned if self.graph.maker.get(v, self.graph.forward) < self.graph.forward
        ]
        arguments = reversed(range(self.graph.argument_count))
        return next((self.values[v] for v in (*returned, *arguments) if self._can_tie(v)), None)

    def _can_tie(self, value: int) -> bool:
        spec = self.graph.specs[value]
        return (
            spec is not None
            and spec.dtype.is_differentiable
            and spec.size > 0
            and value not in self.graph.constant
        )

    def _make_again(self, index: int) -> None:
        op, graph = self.operations[index], self.graph
        changed = {v: self.remade[v] for v in graph.reads[index] if v in self.remade}
        if self.front is not None:
            # Of a composite, everything but what it makes of parameters depends on its first operand.
            first = graph.reads[index][:1] if op.name == COMPOSITE else ()
            if not changed or (first and first[0] not in changed):
                free = (v for v in first or graph.reads[index] if v not in graph.constant)
                leaf = min(free, key=graph.bytes)
                changed[leaf] = self._tie(leaf, self.front)
        copy = op.clone(ip=self.builder.insertion)
        for mark in (CHECKPOINT, TAP):
            if mark in copy.attributes:
                del copy.attributes[mark]
        substitute(copy, {self.values[v]: new for v, new in changed.items()})
        self.remade.update(zip(graph.results[index], copy.results, strict=False))
        if op.name == COMPOSITE:
            self.composites[index] = copy

    def _tie(self, value: int, front: Value) -> Value:
        known = self._tied.get((value, front))
        if known is None:
            if front not in self._conditions:
                self._conditions[front] = _holds(Tensor(front, self.builder))
            tensor = Tensor(self.values[value], self.builder)
            known = self._tied[value, front] = _if(self._conditions[front], tensor).value
        return known


def tied(value: Tensor, front: Tensor) -> Tensor:
    """The value, but not before `front` is known."""
    return _if(_holds(front), value)


def zeros_after(front: Tensor, shape: tuple[int, ...], dtype: DType) -> Tensor:
    """Zeros that are not there before `front` is known."""
    return broadcast_to(where(_holds(front), zeros((), dtype), full((), 1, dtype)), shape)


def _if(condition: Tensor, value: Tensor) -> Tensor:
    return where(condition, value, zeros(value.shape, value.dtype))


def _holds(front: Tensor) -> Tensor:
    """True, computed from an element of a cotangent: its bits with the last one set are not zero."""
    element = reshape(slice_(front, [0] * front.ndim, [1] * front.ndim), ())
    element = real(element) if element.dtype.kind == "complex" else element
    return not_equal(bitwise_or(bitcast(convert(element, DType.f32), DType.i32), 1), 0)
