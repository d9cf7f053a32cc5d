"""Which operations of a program each device computes a part of, where some of its arguments are cut over the devices.

A value is whole on every device, or cut along an axis, or a sum to which each device has its part. What is cut because examples
are is a batch; what is cut because state is, is gathered wherever the two meet.
"""

from collections.abc import Mapping

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.dataflow import has_single_use
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
from pcp.rewrite.memory.axes import Cut
from pcp.rewrite.memory.cutting import Cutting, Rule

_JOINING = frozenset({"stablehlo.add", "stablehlo.subtract"})
_MOVING = frozenset({"stablehlo.reshape", "stablehlo.transpose", "stablehlo.negate"})
_SCALING = frozenset({"stablehlo.multiply", "stablehlo.divide"})


class Spreading(Cutting):
    """As `Cutting`, of parts that are computed at once: what is made of sums over all parts may be cut again.

    Arguments:
        block: of the program.
        batch: along which axes values are cut because examples are.
        state: the same of state, and of copies of it.
        parts: how many devices.
        rule: says how operations are cut.
        gathered: shapes of state that is cut, and along which axis: a sum of such a shape is cut like it.

    Attributes:
        sums: values to which every device has its part.
        whole: the operations that read a batch and are computed by every device.
    """

    def __init__(
        self,
        block: ir.Block,
        batch: Mapping[Value, int],
        state: Mapping[Value, int],
        parts: int,
        rule: Rule,
        gathered: Mapping[tuple[int, ...], int],
    ) -> None:
        self.sums: set[Value] = set()
        self.whole: list[ir.Operation] = []
        self._held = set(state)
        self._gathered = gathered
        super().__init__(block, {**batch, **state}, parts, rule)

    def axis(self, value: Value) -> int | None:
        """Along which axis a device has a value by itself, or after the sum."""
        if value in self.sums:
            return self._gathered.get(spec_of(value.type).shape)
        return self.axes.get(value)

    def _visit(self, op: ir.Operation) -> None:
        operands = list(op.operands)
        if len(op.regions) and values_from_outside(op):
            if any(self._is_batch(value) for value in (*operands, *values_from_outside(op))):
                self.whole.append(op)
            return
        if self._stays_sum(op):
            self.cuts.append((op, Cut((None,) * len(operands), (None,))))
            self.sums.update(op.results)
            return
        along = [self.axis(value) for value in operands]
        batch = [axis if self._is_batch(value) else None for axis, value in zip(along, operands, strict=True)]
        is_batch = any(axis is not None for axis in batch)
        for axes in [along, batch] if is_batch and batch != along else [along]:
            cut = self._cut(op, axes)
            if cut is not None and (is_batch or _stays_small(op, cut)):
                self._note(op, cut, is_batch)
                return
        if is_batch:
            self.whole.append(op)

    def _is_batch(self, value: Value) -> bool:
        return value in self.axes and value not in self._held

    def _cut(self, op: ir.Operation, along: list[int | None]) -> Cut | None:
        if all(axis is None for axis in along):
            return None
        cut = self._rule(op, along, self.parts)
        return cut if cut is not None and self._divides(op, cut) else None

    def _note(self, op: ir.Operation, cut: Cut, is_batch: bool) -> None:
        self.cuts.append((op, cut))
        for value, axis in zip(op.results, cut.results, strict=True):
            if axis is None:
                self.sums.add(value)
            else:
                self.axes[value] = axis
                if not is_batch:
                    self._held.add(value)

    def _stays_sum(self, op: ir.Operation) -> bool:
        """Whether an operation maps parts of a sum, which nothing else reads, to parts of its result."""
        parts = [value in self.sums and has_single_use(value) for value in op.operands]
        if not any(parts) or len(op.results) != 1:
            return False
        new = spec_of(op.results[0].type).dtype
        if op.name == "stablehlo.convert":  # of integers, a sum may have wrapped where its parts have not
            old = spec_of(op.operands[0].type).dtype
            return old.kind == new.kind and new.bits >= old.bits and new.is_differentiable
        if op.name in _SCALING:
            place = parts.index(True)
            other = op.operands[1 - place]
            is_whole = other not in self.axes and other not in self.sums
            is_linear = op.name == "stablehlo.multiply" or (
                place == 0 and new.is_differentiable
            )  # 3 // 2 + 3 // 2 < 6 // 2
            return is_whole and is_linear
        if op.name in _JOINING:
            return all(
                part or splat_number(value) == 0 for part, value in zip(parts, op.operands, strict=True)
            )
        return op.name in _MOVING


def _stays_small(op: ir.Operation, cut: Cut) -> bool:
    """Whether what state becomes is no larger than that: else it is less to gather the state."""
    sizes = [
        spec_of(value.type).bytes
        for value, axis in zip(op.operands, cut.operands, strict=True)
        if axis is not None and spec_if_tensor(value.type) is not None
    ]
    return all(spec_of(value.type).bytes <= max(sizes) for value in op.results)
