"""Derivatives of control flow. Branches and loop bodies are run again in the backward pass, and differentiated there."""

from dataclasses import dataclass

from pcp.autodiff.engine import spread_activity
from pcp.autodiff.regions import copy_region, erase_dead, is_used, operations_of, returned_by
from pcp.autodiff.rule import Captured, Cotangent, Primal, register_rules, scalar_constant
from pcp.ir import DType
from pcp.ir.bindings import Value, ir
from pcp.ir.program import spec_of
from pcp.ops.elementwise import convert, less
from pcp.ops.indexing import dynamic_slice, dynamic_update_slice
from pcp.ops.movement import reshape, zeros
from pcp.tensor import Tensor, as_tensor, current_builder


def _branches(primal: Primal, *cotangents: Cotangent) -> Captured:
    """`case` and `if`: the same choice between the gradients of the branches."""
    builder, engine = current_builder(), primal.engine
    specs = [spec_of(value.type) for value in primal.captured]
    count = len(primal.op.regions)
    op = builder.emit(primal.op.name, list(primal.op.operands), specs, regions=count)
    for index in range(count):
        with builder.region(op, index, ()):
            operations, returned = copy_region(builder, primal.op, index, ())
            found = engine.gradients(operations, returned, cotangents, primal.captured)
            _return([zeros(s.shape, s.dtype) if g is None else g for g, s in zip(found, specs, strict=True)])
    results = (Tensor(value, builder) for value in op.results)
    return Captured([None], dict(zip(primal.captured, results, strict=True)))


def _return(values: list[Tensor]) -> None:
    current_builder().emit("stablehlo.return", [t.value for t in values], ())


@dataclass(frozen=True, slots=True)
class Trips:
    """How often a loop runs: `count` times, while carry `counter` goes from `start` by `step`."""

    count: int
    counter: int
    start: int
    step: int


def trips_of(op: ir.Operation) -> Trips | None:
    """The trips of a `while` that compares a counter with a constant and adds a constant to it; else None."""
    condition, body = (region.blocks[0] for region in op.regions)
    (chosen,) = returned_by(condition)
    if isinstance(chosen.owner, ir.Block) or chosen.owner.operation.name != "stablehlo.compare":
        return None
    arguments: list[Value] = list(condition.arguments)
    left, right = chosen.owner.operation.operands
    if left not in arguments:
        return None
    counter = arguments.index(left)
    bound = _known(op, right, arguments)
    start = scalar_constant(op.operands[counter])
    step = _step(body, counter)
    if bound is None or start is None or step is None:
        return None
    direction = str(chosen.owner.operation.attributes["comparison_direction"]).split()[-1].rstrip(">")
    count = _count(direction, int(start), int(bound), step)
    return None if count is None else Trips(count, counter, int(start), step)


def _known(op: ir.Operation, bound: Value, arguments: list[Value]) -> float | int | None:
    """The constant that a condition compares with: written there, or carried along unchanged."""
    if bound not in arguments:
        return scalar_constant(bound)
    index, body = arguments.index(bound), op.regions[1].blocks[0]
    return scalar_constant(op.operands[index]) if returned_by(body)[index] == body.arguments[index] else None


def _step(body: ir.Block, counter: int) -> int | None:
    """The constant that a body adds to a carry."""
    following = returned_by(body)[counter]
    if isinstance(following.owner, ir.Block):
        return None
    add = following.owner.operation
    operands = list(add.operands)
    if add.name not in ("stablehlo.add", "stablehlo.subtract") or body.arguments[counter] not in operands:
        return None
    place = operands.index(body.arguments[counter])
    step = scalar_constant(operands[1 - place])
    if step is None or (add.name == "stablehlo.subtract" and place == 1):
        return None
    return int(step) if add.name == "stablehlo.add" else -int(step)


def _count(direction: str, start: int, bound: int, step: int) -> int | None:
    if direction in ("LE", "GE"):
        bound += 1 if direction == "LE" else -1
    ascending = direction in ("LT", "LE") and step > 0
    descending = direction in ("GT", "GE") and step < 0
    exact = direction == "NE" and step != 0 and (bound - start) % step == 0 and (bound - start) // step >= 0
    return max(0, -((start - bound) // step)) if ascending or descending or exact else None


def _while(primal: Primal, *cotangents: Cotangent) -> Captured:
    trips = trips_of(primal.op)
    if trips is None:
        primal.refuse(
            "the number of trips of this loop is no constant of the program; use a loop with a fixed bound"
        )
    if not trips.count:
        return Captured(cotangents, {})
    return _Loop(primal, trips).pull_back(cotangents)


class _Loop:
    """The backward pass of a loop: another one, from the last trip to the first.

    Each of its trips runs the body once more, from the carries that a copy of the forward loop has stored, and differentiates
    it. Only those carries are stored that the gradient of the body reads. A carry that no trip changes (an invariant) is no
    carry at all but a value from outside, and so are the values that the body captures.
    """

    def __init__(self, primal: Primal, trips: Trips) -> None:
        self.primal = primal
        self.trips = trips
        self.op = primal.op
        self.initial = list(primal.op.operands)
        body = primal.op.regions[1].blocks[0]
        arguments, returned = list(body.arguments), returned_by(body)
        self.invariant = [a == r for a, r in zip(arguments, returned, strict=True)]
        active = self._active_carries(body, arguments, returned)
        everyone = range(len(arguments))
        self.moving = [k for k in everyone if active[k] and not self.invariant[k]]
        self.stored = [k for k in everyone if not self.invariant[k] and k != trips.counter]
        fixed = [self.initial[k] for k in everyone if active[k] and self.invariant[k]]
        self.outside = list(dict.fromkeys([*fixed, *primal.captured]))

    def _active_carries(self, body: ir.Block, arguments: list[Value], returned: list[Value]) -> list[bool]:
        """Which carries depend on what is differentiated for, in any trip."""
        active, operations = list(self.primal.active), operations_of(body)
        while True:
            reached = {a for a, is_active in zip(arguments, active, strict=True) if is_active} | set(
                self.primal.captured
            )
            spread_activity(operations, reached)
            wider = [was or value in reached for was, value in zip(active, returned, strict=True)]
            if wider == active:
                return active
            active = wider

    def pull_back(self, cotangents: tuple[Cotangent, ...]) -> Captured:
        builder, engine = current_builder(), self.primal.engine
        carried = [self._or_zeros(cotangents[k], self.initial[k]) for k in self.moving]
        carried += [self._or_zeros(None, value) for value in self.outside]
        first = [as_tensor(0, DType.i32), *carried]
        specs = [t.spec for t in first]
        held = [spec_of(self.initial[k].type) for k in self.stored]
        backward = builder.emit("stablehlo.while", [t.value for t in first], specs, regions=2)
        with builder.region(backward, 0, specs) as (done, *_):
            _return([less(Tensor(done, builder), self.trips.count)])
        # The stored carries of a trip are arguments of the body until it is known which of them are read.
        with builder.region(backward, 1, [*specs, *held]) as arguments:
            trip = (self.trips.count - 1) - Tensor(arguments[0], builder)
            incoming = [Tensor(value, builder) for value in arguments[1 : len(first)]]
            place = dict(zip(self.stored, arguments[len(first) :], strict=True))
            substitutes = [self._argument(k, place, trip) for k in range(len(self.initial))]
            operations, returned = copy_region(builder, self.op, 1, substitutes)
            # What reached the values from outside in earlier trips is their cotangent to begin with.
            outputs = [*(returned[k] for k in self.moving), *self.outside]
            wanted = [*(place[k] for k in self.moving), *self.outside]
            found = engine.gradients(operations, outputs, incoming, wanted)
            following = [self._or_zeros(g, value) for g, value in zip(found, wanted, strict=True)]
            _return([Tensor(arguments[0], builder) + 1, *following])
            body = backward.regions[1].blocks[0]
            del operations, returned, found, following
            erase_dead(body)
            self._read_stored(body, arguments[0], place)
        for index in reversed(range(len(first), len(first) + len(held))):
            body.erase_argument(index)
        return self._outgoing(cotangents, [Tensor(value, builder) for value in list(backward.results)[1:]])

    def _argument(self, index: int, place: dict[int, Value], trip: Tensor) -> Value:
        """What a carry is in a trip of the backward loop."""
        if self.invariant[index]:
            return self.initial[index]
        if index != self.trips.counter:
            return place[index]
        dtype = spec_of(self.initial[index].type).dtype
        count = convert(trip, dtype)
        scaled = count if self.trips.step == 1 else count * self.trips.step
        return (scaled if self.trips.start == 0 else scaled + self.trips.start).value

    def _read_stored(self, body: ir.Block, done: Value, place: dict[int, Value]) -> None:
        """Store in the forward loop the carries that the backward body uses, and read them there."""
        builder = current_builder()
        needed = [k for k in self.stored if is_used(place[k])]
        stacks = self._forward_with_stacks(needed) if needed else []
        with builder.before(body.operations[0].operation):
            trip = (self.trips.count - 1) - Tensor(done, builder)
            for k, stack in zip(needed, stacks, strict=True):
                shape = spec_of(place[k].type).shape
                row = dynamic_slice(Tensor(stack, builder), [trip, *[0] * len(shape)], (1, *shape))
                place[k].replace_all_uses_with(reshape(row, shape).value)

    def _forward_with_stacks(self, needed: list[int]) -> list[Value]:
        """Put a loop in the place of the forward one that also stores what the carries `needed` were in every trip."""
        builder = current_builder()
        with builder.before(self.op):
            rows = [spec_of(self.initial[k].type) for k in needed]
            empty = [zeros((self.trips.count, *row.shape), row.dtype) for row in rows]
            first = [as_tensor(0, DType.i32).value, *self.initial, *(t.value for t in empty)]
            specs = [spec_of(value.type) for value in first]
            forward = builder.emit("stablehlo.while", first, specs, regions=2)
            with builder.region(forward, 0, specs) as (trip, *_):
                _return([less(Tensor(trip, builder), self.trips.count)])
            with builder.region(forward, 1, specs) as (trip, *values):
                carries, stacks = values[: len(self.initial)], values[len(self.initial) :]
                _, returned = copy_region(builder, self.op, 1, carries)
                done = Tensor(trip, builder)
                stored = [
                    dynamic_update_slice(
                        Tensor(stack, builder),
                        reshape(Tensor(carries[k], builder), (1, *row.shape)),
                        [done, *[0] * len(row.shape)],
                    )
                    for k, stack, row in zip(needed, stacks, rows, strict=True)
                ]
                _return([done + 1, *(Tensor(value, builder) for value in returned), *stored])
        results: list[Value] = list(forward.results)
        for old, new in zip(self.op.results, results[1:], strict=False):
            old.replace_all_uses_with(new)
        return results[1 + len(self.initial) :]

    def _outgoing(self, cotangents: tuple[Cotangent, ...], found: list[Tensor]) -> Captured:
        outgoing: list[Cotangent] = [None] * len(self.initial)
        for k, g in zip(self.moving, found, strict=False):
            outgoing[k] = g
        for k, invariant in enumerate(self.invariant):
            if invariant:
                outgoing[k] = cotangents[k]
        return Captured(outgoing, dict(zip(self.outside, found[len(self.moving) :], strict=True)))

    @staticmethod
    def _or_zeros(cotangent: Cotangent, like: Value) -> Tensor:
        spec = spec_of(like.type)
        return zeros(spec.shape, spec.dtype) if cotangent is None else cotangent


register_rules({"case": _branches, "if": _branches, "while": _while})
