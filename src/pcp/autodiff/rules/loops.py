"""The derivative of loops: another loop, from the last trip to the first.

A loop whose number of trips is a constant keeps residuals of every trip in stacks, one row each. Any other has no bound for
the size of stacks, so it keeps a fixed number of checkpoints (the carries that a trip begins with), spread over its trips when
their number is known, and computes the trips between two of them again, a segment at a time. A constant number of trips may be
differentiated in segments, too, for its memory.

Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, 2008, chapter 12 (checkpointing schedules).
"""

from math import inf

from pcp.autodiff.loops.body import Carries, LoopBody
from pcp.autodiff.loops.emission import counted
from pcp.autodiff.loops.trips import static_trips, trips_before
from pcp.ir.toolkit.walking import named_operations
from pcp.ops.derivative import Captured, Cotangent, Primal
from pcp.ops.elementwise import maximum, minimum
from pcp.ops.indexing.blocks import row_at, with_row
from pcp.ops.movement import zeros
from pcp.ops.record import supply_derivatives
from pcp.tensor import Tensor, current_builder


def _while(primal: Primal, *cotangents: Cotangent) -> Captured:
    trips = static_trips(primal.op)
    if trips == inf:
        primal.refuse("this loop never ends: its condition stays true until a counter overflows")
    if trips == 0:
        return Captured(cotangents, {})
    known = trips if isinstance(trips, int) else None
    body = LoopBody(primal, cotangents, known)
    first = body.first_cotangents()
    cotangents_before = _unknown(body, first) if known is None else _known(body, known, first)
    body.erase()
    return body.outgoing(cotangents_before)


def _known(body: LoopBody, trips: int, cotangents: list[Tensor]) -> list[Tensor]:
    """The cotangents before a loop with a constant number of trips."""
    builder, segment = current_builder(), body.memory.segment(trips)
    if segment >= trips or body.keeps_nothing:
        with builder.before(body.op):
            ends, stacks = body.forward(trips, 0, trips, body.start)
            body.replace_results(ends, trips)
        return body.backward(trips, 0, stacks, cotangents)
    _require_repeatable(body)
    segments = -(-trips // segment)
    with builder.before(body.op):
        ends, slots = _checkpointed(body, trips, segment, segments + 1, body.start)
        body.replace_results(ends, trips)

    def one_segment(done: Tensor, following: list[Tensor]) -> list[Tensor]:
        number = (segments - 1) - done
        first = number * segment
        rows = segment if trips % segment == 0 else minimum(trips - first, segment)
        _, stacks = body.forward(rows, first, segment, _at(slots, number))
        return body.backward(rows, first, stacks, following)

    return counted(segments, cotangents, one_segment)


def _unknown(body: LoopBody, cotangents: list[Tensor]) -> list[Tensor]:
    """The cotangents before a loop with any number of trips."""
    builder, slot_count = current_builder(), body.memory.slots
    segment = slot_count
    with builder.before(body.op):
        before = trips_before(body.op)
        trips = body.count_trips() if before is None else before
    if body.keeps_nothing:
        return body.backward(trips, 0, [], cotangents)
    _require_repeatable(body)
    with builder.before(body.op):
        segments = (trips + (segment - 1)) // segment
        between = maximum((segments + (slot_count - 1)) // slot_count, 1)  # segments between two checkpoints
        start = body.needed if before is None else body.start
        ends, slots = _checkpointed(body, trips, between * segment, slot_count + 1, start)
        if before is not None:
            body.replace_results(ends, trips)

    def one_segment(done: Tensor, following: list[Tensor]) -> list[Tensor]:
        number = (segments - 1) - done
        slot = number // between
        kept = slot * between
        begin = body.advance((number - kept) * segment, kept * segment, _at(slots, slot))
        first = number * segment
        rows = minimum(trips - first, segment)
        _, stacks = body.forward(rows, first, segment, begin)
        return body.backward(rows, first, stacks, following)

    return counted(segments, cotangents, one_segment)


def _require_repeatable(body: LoopBody) -> None:
    """Refuse a loop between whose checkpoints something comes out otherwise when it is computed again."""
    if named_operations(body.op, "stablehlo.rng"):
        body.primal.refuse(
            "a trip that draws from stablehlo.rng cannot be computed again; draw from rng_bit_generator with a state that is "
            "carried along, or give the loop a constant number of trips and keep all its residuals (loops='residuals')"
        )


def _checkpointed(
    body: LoopBody, trips: int | Tensor, spacing: int | Tensor, slot_count: int, start: Carries
) -> tuple[Carries, Carries]:
    """Run a loop and keep the carries of every `spacing`-th trip that computing a trip again needs.

    Returns:
        The carries at the end, and for each the stack of those kept.
    """
    empty = [zeros((slot_count, *t.shape), t.dtype) for t in body.needed.values()]

    def trip(done: Tensor, values: list[Tensor]) -> list[Tensor]:
        now, slots = dict(zip(start, values, strict=False)), values[len(start) :]
        # Of the trips after a checkpoint each takes the place of the one before, up to the next checkpoint.
        slot = (done + (spacing - 1)) // spacing
        kept = [with_row(stack, slot, now[k]) for k, stack in zip(body.needed, slots, strict=True)]
        return [*body.trip(done, now).values(), *kept]

    ends = counted(trips, [*start.values(), *empty], trip)
    return dict(zip(start, ends, strict=False)), dict(zip(body.needed, ends[len(start) :], strict=True))


def _at(slots: Carries, index: Tensor) -> Carries:
    return {k: row_at(stack, index) for k, stack in slots.items()}


supply_derivatives({"while": _while})
