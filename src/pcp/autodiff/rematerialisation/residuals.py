"""Which values of a trip of a loop are kept for its derivative, and which are made again."""

from pcp.autodiff.rematerialisation.min_cut import INFINITE, Network
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.record import RECORDS

Place = tuple[int, int]
"""A value of a block by numbers that hold in every copy: operation (-1 for the arguments), result."""


def residuals_of(block: ir.Block, carries: range, recompute: bool) -> list[Place]:
    """The values to keep: those of the least size from which the backward part of a trip can be computed.

    Arguments:
        block: a trip of a loop followed by its derivative. Of its arguments, what comes before the carries is known in both
            passes and what comes after them is cotangents; it returns carries and then cotangents.
        carries: the places of the carries among its arguments.
        recompute: whether all of the forward part may be computed again, or only what is cheap.
    """
    trip = _Trip(block, carries, recompute)
    for number, op in enumerate(block_operations(block)):
        trip.visit(number, op)
    for value in returned_by(block)[len(carries) :]:
        trip.need(value)
    behind = trip.network.behind_cut("source", "sink")
    return sorted(
        where for where in trip.varying.values() if ("out", where) in behind and ("in", where) not in behind
    )


class _Trip:
    """The network whose minimum cut is what to keep: an arc of a value's size through it, others without limit."""

    def __init__(self, block: ir.Block, carries: range, recompute: bool) -> None:
        arguments = list(block.arguments)
        self.network = Network()
        self.network.connect("source", "sink", 0)
        self.varying: dict[
            Value, Place
        ] = {}  # what differs from trip to trip and is not known in both passes
        self._counted: set[Value] = set(arguments[: carries.start])  # what the number of the trip tells
        self._backward: set[Value] = set(arguments[carries.stop :])
        self._recompute = recompute
        for index in carries:
            self._enter(arguments[index], (-1, index), recomputable=False)

    def need(self, value: Value) -> None:
        """The backward part of the trip reads a value."""
        if value in self.varying:
            self.network.connect(("out", self.varying[value]), "sink", INFINITE)

    def visit(self, number: int, op: ir.Operation) -> None:
        """Take an operation up, after those before it."""
        reads = [*op.operands, *(values_from_outside(op) if len(op.regions) else ())]
        if any(value in self._backward for value in reads):
            self._backward.update(op.results)
            for value in reads:
                self.need(value)
            return
        record = RECORDS.get(op.name)
        once = record is not None and record.has_effect
        recomputable = not once and (self._recompute or (record is not None and record.is_cheap))
        changing = [value for value in reads if value in self.varying]
        counts = any(value in self._counted for value in reads)
        if not changing and not once and (recomputable or not counts):
            self._counted.update(op.results if counts else ())
            return
        for index, value in enumerate(op.results):
            where = (number, index)
            self._enter(value, where, recomputable)
            for read in changing:
                self.network.connect(("out", self.varying[read]), ("in", where), INFINITE)

    def _enter(self, value: Value, where: Place, recomputable: bool) -> None:
        self.varying[value] = where
        self.network.connect(("in", where), ("out", where), max(1, spec_of(value.type).bytes))
        if not recomputable:
            self.network.connect("source", ("in", where), INFINITE)
