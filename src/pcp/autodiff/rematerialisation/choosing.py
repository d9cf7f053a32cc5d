"""Rematerialisation: values of the forward pass that the backward pass makes again instead of keeping them.

What is made again must not be merged with what was made first, nor be made early. A barrier that says so does not survive
XLA's compiler for processors, so the dependence is a real one: a value that everything made again starts from is chosen by a
condition that reads the newest cotangent and always holds, which no compiler knows. It costs one comparison for each burst
of recomputation, and a copy where the value goes into a product.

Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, 2008, chapter 12 (checkpointing); Chen, Xu, Zhang and
Guestrin, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174.
"""

from pcp.autodiff.rematerialisation.budget import cheapest_within
from pcp.autodiff.rematerialisation.checkpointing import CHECKPOINT, may_be_kept, saved_in_blocks
from pcp.autodiff.rematerialisation.joint_graph import JointGraph
from pcp.autodiff.rematerialisation.policy import ByteBudget, Remat, policy_of
from pcp.ir import Builder, DType
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import COMPOSITE
from pcp.ir.toolkit.editing import substitute
from pcp.ir.toolkit.functions import entry_block
from pcp.ops.elementwise import bitcast, bitwise_or, convert, not_equal, real, where
from pcp.ops.movement import reshape, slice_, zeros
from pcp.tensor import Tensor, building

_BOUNDARY = "pcp.backward_begins"


def mark_boundary(builder: Builder) -> None:
    """Say that the backward pass begins here; passes leave the mark where it stands."""
    attributes = {"call_target_name": _BOUNDARY, "has_side_effect": True}
    builder.emit("stablehlo.custom_call", [], [], attributes)


def rematerialise(module: ir.Module, remat: Remat | None) -> None:
    """Make values again in the backward pass of `main` where a policy, or the blocks that the user marked, say so.

    Arguments:
        module: a differentiated program whose boundary is marked; the mark is taken away.
        remat: which values are kept; None keeps all but those of marked blocks.

    Raises:
        UnknownPolicy, InvalidByteBudget: `remat` is no policy.
        BudgetUnreachable: no choice of values fits in the budget.
    """
    block = entry_block(module)
    *operations, _ = (op.operation for op in block.operations)
    forward = next(index for index, op in enumerate(operations) if _is_boundary(op))
    operations.pop(forward).erase()
    graph = JointGraph(block, forward)
    allowed = saved_in_blocks(graph, operations)
    policy = policy_of(remat)
    if isinstance(policy, ByteBudget):
        kept = cheapest_within(graph, policy, allowed)
    else:
        kept = frozenset(
            value
            for value in graph.maker
            if graph.maker[value] < forward and may_be_kept(policy, graph, operations, value)
        )
    order = graph.schedule((kept & allowed).__contains__)
    if any(op < 0 for op in order):
        _Emission(module, block, graph, operations).run(order)


def _is_boundary(op: ir.Operation) -> bool:
    return op.name == "stablehlo.custom_call" and _BOUNDARY in str(op.attributes["call_target_name"])


class _Emission:
    """Writes a schedule into the module: copies of forward operations stand before what reads them first."""

    def __init__(
        self, module: ir.Module, block: ir.Block, graph: JointGraph, operations: list[ir.Operation]
    ) -> None:
        self.graph = graph
        self.operations = operations
        self.builder = Builder(module, block)
        self.builder.pinned = ir.Location.unknown()
        self.values: list[Value] = list(block.arguments)
        for op in operations:
            self.values += op.results
        self.remade: dict[int, Value] = {}
        self.composites: dict[int, ir.Operation] = {}  # that were made again, by their places
        self.front: Value | None = self._first_front()
        self.depth = dict.fromkeys(range(len(graph.specs)), 0)
        self._conditions: dict[Value, Tensor] = {}
        self._tied: dict[tuple[int, Value], Value] = {}

    def run(self, order: list[int]) -> None:
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
        made = [
            v for v in self.graph.returned if self.graph.maker.get(v, self.graph.forward) < self.graph.forward
        ]
        arguments = reversed(range(self.graph.argument_count))
        return next((self.values[v] for v in (*made, *arguments) if self._can_tie(v)), None)

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
        if CHECKPOINT in copy.attributes:
            del copy.attributes[CHECKPOINT]
        substitute(copy, {self.values[v]: new for v, new in changed.items()})
        self.remade.update(zip(graph.results[index], copy.results, strict=False))
        if op.name == COMPOSITE:
            self.composites[index] = copy

    def _tie(self, value: int, front: Value) -> Value:
        """The value, but not before `front` is known."""
        known = self._tied.get((value, front))
        if known is None:
            tensor = Tensor(self.values[value], self.builder)
            known = self._tied[value, front] = where(
                self._condition(front), tensor, zeros(tensor.shape, tensor.dtype)
            ).value
        return known

    def _condition(self, front: Value) -> Tensor:
        """True, computed from an element of a cotangent: its bits with the last one set are not zero."""
        known = self._conditions.get(front)
        if known is None:
            tensor = Tensor(front, self.builder)
            element = reshape(slice_(tensor, [0] * tensor.ndim, [1] * tensor.ndim), ())
            bits = bitcast(
                convert(real(element) if element.dtype.kind == "complex" else element, DType.f32), DType.i32
            )
            known = self._conditions[front] = not_equal(bitwise_or(bits, 1), 0)
        return known
