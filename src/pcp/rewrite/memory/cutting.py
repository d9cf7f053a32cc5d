"""Which operations of a block are computed in parts, if some of what they read is cut."""

from collections.abc import Callable, Mapping

from pcp.ir import DType
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
from pcp.rewrite.memory.axes import Axes, Cut, cut_of

Rule = Callable[[ir.Operation, Axes, int], Cut | None]
"""How an operation is computed from operands that are cut, in so many parts."""


class Cutting:
    """Which operations of a block are computed in parts if some of its arguments are cut.

    Arguments:
        seeds: along which axes arguments are cut.
        parts: how many.
        rule: says how operations are cut.

    Attributes:
        axes: along which values are cut.
        cuts: of the operations in the loop, in order.
        bytes: of all values that are cut.
        after: values of what comes after all parts, sums over these among them.
    """

    def __init__(self, block: ir.Block, seeds: Mapping[Value, int], parts: int, rule: Rule = cut_of) -> None:
        self.parts = parts
        self.axes: dict[Value, int] = dict(seeds)
        self.cuts: list[tuple[ir.Operation, Cut]] = []
        self.operations = block_operations(block)
        self.returned = returned_by(block)
        self.after: set[Value] = set()
        self._rule = rule
        for op in self.operations:
            self._visit(op)
        self.bytes = sum(spec_of(value.type).bytes for value in self.axes if value not in seeds)

    def _visit(self, op: ir.Operation) -> None:
        read = [*op.operands, *(values_from_outside(op) if len(op.regions) else ())]
        along = [self.axes.get(value) for value in op.operands]
        is_after = any(value in self.after for value in read)
        if not is_after and not any(value in self.axes for value in read):
            return
        cut = None if is_after or len(read) > len(op.operands) else self._rule(op, along, self.parts)
        if cut is None or not self._divides(op, cut):
            self.after.update(op.results)
            return
        self.cuts.append((op, cut))
        for value, axis in zip(op.results, cut.results, strict=True):
            if axis is None:
                self.after.add(value)
            else:
                self.axes[value] = axis

    def cut_for(self, op: ir.Operation, axis: int) -> Cut | None:
        """How an operation of whole operands is computed in parts so that its result is cut along an axis."""
        for place, operand in enumerate(op.operands):
            spec = spec_if_tensor(operand.type)
            for along in range(0 if spec is None else len(spec.shape)):
                axes = [along if i == place else None for i in range(len(op.operands))]
                cut = cut_of(op, axes, self.parts)
                if cut is not None and cut.results == (axis,) and self._divides(op, cut):
                    return cut
        return None

    def _divides(self, op: ir.Operation, cut: Cut) -> bool:
        """Whether all that is cut has a size that the number of parts divides, and all that is added up is a number."""
        pairs = zip((*op.operands, *op.results), (*cut.operands, *cut.results), strict=True)
        specs = [(spec_if_tensor(value.type), axis) for value, axis in pairs]
        if any(spec is None or (axis is not None and spec.shape[axis] % self.parts) for spec, axis in specs):
            return False
        sums = (spec for spec, axis in specs[len(op.operands) :] if axis is None)
        return all(spec is not None and spec.dtype is not DType.bool for spec in sums)

    @property
    def leaving(self) -> list[Value]:
        """The values that what comes after the loop reads, those that are cut and those that are sums."""
        inside = {op for op, _ in self.cuts}
        computed = {value for op in inside for value in op.results}
        read = [
            value
            for op in self.operations
            if op not in inside
            for value in (*op.operands, *values_from_outside(op))
        ]
        return [value for value in dict.fromkeys((*read, *self.returned)) if value in computed]

    def needed_before(self) -> list[ir.Operation]:
        """The operations outside of the loop that it reads, and those that these read, in order."""
        inside = {op for op, _ in self.cuts}
        needed: set[ir.Operation] = set()
        for op in reversed(self.operations):
            if op in inside or op in needed:
                for value in (*op.operands, *values_from_outside(op)):
                    maker = defining_op(value)
                    if maker is not None and maker not in inside:
                        needed.add(maker)
        return [op for op in self.operations if op in needed]
