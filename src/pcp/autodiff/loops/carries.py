"""What the carries of a loop are to its derivative."""

from collections.abc import Sequence

from pcp.autodiff.engine import active_carries
from pcp.autodiff.loops.trips import is_invariant, known_integer, steps_of
from pcp.autodiff.loops.writes import is_written_once
from pcp.ir.bindings import Value
from pcp.ops.derivative import Cotangent, Primal
from pcp.ops.elementwise import convert
from pcp.tensor import Tensor, as_tensor, current_builder


class LoopCarries:
    """The carries of a `while`, by their places.

    Arguments:
        primal: the loop.
        cotangents: of its results.
        trips: how often it runs, if that is known.

    Attributes:
        initial: every carry before the loop.
        changing: those that differ from trip to trip in a way that only running the loop tells.
        moving: those of them whose cotangents go from trip to trip.
        written: the cotangents of those that trips only write to, each its own place: they go to what was written there.
        outside: values from outside that have cotangents; an invariant carry is one, as what the body captures.
    """

    def __init__(self, primal: Primal, cotangents: Sequence[Cotangent], trips: int | None) -> None:
        op = primal.op
        self.initial = list(primal.op.operands)
        everyone = range(len(self.initial))
        self.invariant = [is_invariant(op, k) for k in everyone]
        self._steps = steps_of(op)
        self.changing = [k for k in everyone if not self.invariant[k] and k not in self._steps]
        active = active_carries(op, list(primal.active), set(primal.captured))
        changing = [k for k in self.changing if active[k]]
        written = {
            k
            for k in changing
            if trips is not None and not primal.active[k] and is_written_once(op, k, trips)
        }
        self.moving = [k for k in changing if k not in written]
        incoming = ((k, cotangents[k]) for k in sorted(written))
        self.written = {k: g for k, g in incoming if g is not None}
        fixed = [self.initial[k] for k in everyone if active[k] and self.invariant[k]]
        self.outside = list(dict.fromkeys([*fixed, *primal.captured]))

    def values(self, trip: int | Tensor, changing: dict[int, Value]) -> list[Value]:
        """Every carry before a trip, of which some are given."""
        return [changing[k] if k in changing else self.known(k, trip).value for k in range(len(self.initial))]

    def known(self, index: int, trip: int | Tensor) -> Tensor:
        """A carry that does not change, or to which every trip adds a constant, before a trip."""
        start = Tensor(self.initial[index], current_builder())
        if self.invariant[index]:
            return start
        step = self._steps[index]
        moved = as_tensor(trip, start.dtype) if isinstance(trip, int) else convert(trip, start.dtype)
        moved = moved if abs(step) == 1 else moved * abs(step)
        if step > 0 and known_integer(start.value) == 0:
            return moved
        return start + moved if step > 0 else start - moved
