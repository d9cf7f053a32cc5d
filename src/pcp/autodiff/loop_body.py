"""One trip of a loop together with its derivative, from which the loops of both passes are made."""

from collections.abc import Sequence

from pcp.autodiff.engine import spread_activity
from pcp.autodiff.loop_emission import counted, give_back, row, with_row
from pcp.autodiff.loop_trips import is_invariant, known_integer, steps_of
from pcp.autodiff.regions import copy_region, erase_dead, is_used, operations_of, returned_by
from pcp.autodiff.residuals import Arguments, residuals_of
from pcp.autodiff.rule import Captured, Cotangent, Primal
from pcp.ir import DType
from pcp.ir.bindings import Value, ir
from pcp.ir.program import spec_of
from pcp.ops.elementwise import convert
from pcp.ops.movement import zeros
from pcp.tensor import Tensor, as_tensor, current_builder


class LoopBody:
    """The body of a `while` and its derivative in one block, `(trip, carries, cotangents) -> (carries, cotangents)`.

    The forward loop runs what does not depend on the cotangents and keeps residuals, the backward loop runs the rest. A carry
    that no trip changes (an invariant) is no carry here but a value from outside, and so are the values that the body captures;
    one to which every trip adds a constant is computed from the number of the trip.

    Arguments:
        primal: the loop.
    """

    def __init__(self, primal: Primal) -> None:
        self.primal = primal
        self.op = primal.op
        self.memory = primal.engine.loops
        builder = current_builder()
        self.initial = list(primal.op.operands)
        everyone = range(len(self.initial))
        self._invariant = [is_invariant(self.op, k) for k in everyone]
        self._steps = steps_of(self.op)
        self._carried = [k for k in everyone if not self._invariant[k] and k not in self._steps]
        self.start = [Tensor(self.initial[k], builder) for k in self._carried]
        active = self._active_carries()
        self._moving = [k for k in self._carried if active[k]]
        fixed = [self.initial[k] for k in everyone if active[k] and self._invariant[k]]
        self._outside = list(dict.fromkeys([*fixed, *primal.captured]))
        self._joint = self._differentiated()
        block = self._joint.regions[0].blocks[0]
        carries = range(1, 1 + len(self._carried))
        places = Arguments(carries, range(carries.stop, len(block.arguments)))
        self._residuals = residuals_of(block, places, self.memory.recompute)

    def _active_carries(self) -> list[bool]:
        """Which carries depend on what is differentiated for, in any trip."""
        body = self.op.regions[1].blocks[0]
        arguments, returned, operations = list(body.arguments), returned_by(body), operations_of(body)
        active = list(self.primal.active)
        while True:
            reached = {a for a, is_active in zip(arguments, active, strict=True) if is_active}
            reached.update(self.primal.captured)
            spread_activity(operations, reached)
            wider = [was or value in reached for was, value in zip(active, returned, strict=True)]
            if wider == active:
                return active
            active = wider

    def _differentiated(self) -> ir.Operation:
        """An operation that only holds the block of a trip and its derivative, to be copied from."""
        builder, engine = current_builder(), self.primal.engine
        cotangents = [spec_of(self.initial[k].type) for k in self._moving]
        cotangents += [spec_of(value.type) for value in self._outside]
        specs = [as_tensor(0, DType.i32).spec, *(t.spec for t in self.start), *cotangents]
        holder = builder.emit("stablehlo.case", [], [], regions=1)
        with builder.region(holder, 0, specs) as (trip, *values):
            carries = values[: len(self.start)]
            incoming = [Tensor(value, builder) for value in values[len(self.start) :]]
            operations, returned = copy_region(
                builder, self.op, 1, self._substitutes(Tensor(trip, builder), carries)
            )
            outputs = {k: returned[k] for k in self._moving}
            give_back([Tensor(returned[k], builder) for k in self._carried])
            block = holder.regions[0].blocks[0]
            *_, terminator = (op.operation for op in block.operations)
            place = dict(zip(self._carried, carries, strict=True))
            wanted = [*(place[k] for k in self._moving), *self._outside]
            with builder.before(terminator):
                # What reached the values from outside in earlier trips is their cotangent to begin with.
                found = engine.gradients(operations, [*outputs.values(), *self._outside], incoming, wanted)
                following = [_or_zeros(g, value) for g, value in zip(found, wanted, strict=True)]
            # A rule may have put others in the place of what the body returns.
            kept = [Tensor(value, builder) for value in terminator.operands]
            terminator.erase()
            give_back([*kept, *following])
            del operations, returned, outputs, found, following, kept, wanted, place
            erase_dead(block)
        return holder

    def _substitutes(self, trip: Tensor, carries: Sequence[Value]) -> list[Value]:
        """What every carry is in a trip."""
        places = dict(zip(self._carried, carries, strict=True))
        return [places[k] if k in places else self._known(k, trip) for k in range(len(self.initial))]

    def _known(self, index: int, trip: int | Tensor) -> Value:
        """An invariant, or a carry to which every trip adds a constant, before a trip."""
        value, builder = self.initial[index], current_builder()
        if self._invariant[index]:
            return value
        dtype, step = spec_of(value.type).dtype, self._steps[index]
        moved = as_tensor(trip, dtype) if isinstance(trip, int) else convert(trip, dtype)
        moved = moved if abs(step) == 1 else moved * abs(step)
        if step > 0 and known_integer(value) == 0:
            return moved.value
        start = Tensor(value, builder)
        return (start + moved if step > 0 else start - moved).value

    def first_cotangents(self, cotangents: Sequence[Cotangent]) -> list[Tensor]:
        """The cotangents at the end of the loop: of the carries, and of the values from outside."""
        found = [_or_zeros(cotangents[k], self.initial[k]) for k in self._moving]
        return found + [_or_zeros(None, value) for value in self._outside]

    def trip(self, number: Tensor, carries: Sequence[Tensor]) -> list[Tensor]:
        """The carries after a trip."""
        builder = current_builder()
        _, returned = copy_region(builder, self.op, 1, self._substitutes(number, [t.value for t in carries]))
        return [Tensor(returned[k], builder) for k in self._carried]

    def advance(self, trips: Tensor, first: Tensor, carries: Sequence[Tensor]) -> list[Tensor]:
        """The carries after some trips, from those before trip `first`."""
        return counted(trips, carries, lambda done, values: self.trip(_after(first, done), values))

    def forward(
        self, trips: int | Tensor, first: int | Tensor, rows: int, carries: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Run some trips and keep their residuals.

        Arguments:
            trips: how many.
            first: the number of the first one.
            rows: the largest number of them.
            carries: the carries before it.

        Returns:
            The carries after them, and stacks of the residuals.
        """
        builder, block = current_builder(), self._joint.regions[0].blocks[0]
        arguments, operations = list(block.arguments), operations_of(block)
        kept = [
            arguments[i] if number < 0 else operations[number].results[i] for number, i in self._residuals
        ]
        specs = [spec_of(value.type) for value in kept]
        unused = [spec_of(value.type) for value in arguments[1 + len(carries) :]]
        del kept, arguments, operations
        empty = [zeros((rows, *spec.shape), spec.dtype) for spec in specs]

        def trip(done: Tensor, values: list[Tensor]) -> list[Tensor]:
            now, stacks = values[: len(carries)], values[len(carries) :]
            number = _after(first, done)
            given = [number, *now, *(zeros(spec.shape, spec.dtype) for spec in unused)]
            made, returned = copy_region(builder, self._joint, 0, [t.value for t in given])
            kept = [given[i].value if at < 0 else made[at].results[i] for at, i in self._residuals]
            stacks = [
                with_row(stack, done, Tensor(value, builder))
                for stack, value in zip(stacks, kept, strict=True)
            ]
            return [*(Tensor(value, builder) for value in returned[: len(carries)]), *stacks]

        found = counted(trips, [*carries, *empty], trip)
        return found[: len(carries)], found[len(carries) :]

    def backward(
        self, trips: int | Tensor, first: int | Tensor, stacks: Sequence[Tensor], cotangents: Sequence[Tensor]
    ) -> list[Tensor]:
        """The cotangents before some trips, from those after them and stacks of their residuals."""
        builder = current_builder()
        kept = dict(zip(self._residuals, stacks, strict=True))

        def trip(done: Tensor, following: list[Tensor]) -> list[Tensor]:
            place = (trips - 1) - done
            number = _after(first, place)
            rows = {where: row(stack, place) for where, stack in kept.items()}
            now = [
                rows[-1, i] if (-1, i) in rows else zeros(t.shape, t.dtype)
                for i, t in enumerate(self.start, start=1)
            ]
            given = [t.value for t in (number, *now, *following)]
            made, returned = copy_region(builder, self._joint, 0, given)
            read = {made[at].results[i]: found.value for (at, i), found in rows.items() if at >= 0}
            for old, new in read.items():
                old.replace_all_uses_with(new)
            return [Tensor(read.get(value, value), builder) for value in returned[len(now) :]]

        return counted(trips, cotangents, trip)

    def row_of(self, slots: Sequence[Tensor], index: Tensor) -> list[Tensor]:
        """The carries in a slot."""
        return [row(slot, index) for slot in slots]

    def count_trips(self) -> Tensor:
        """Put a loop in the place of the forward one that counts its trips as well."""
        builder, op = current_builder(), self.op
        first = [as_tensor(0, DType.i32), *(Tensor(value, builder) for value in self.initial)]
        specs = [t.spec for t in first]
        made = builder.emit("stablehlo.while", [t.value for t in first], specs, regions=2)
        for index in range(2):
            with builder.region(made, index, specs) as (done, *values):
                _, returned = copy_region(builder, op, index, values)
                counts = [Tensor(done, builder) + 1] if index else []
                give_back([*counts, *(Tensor(value, builder) for value in returned)])
        results: list[Value] = list(made.results)
        for old, new in zip(op.results, results[1:], strict=True):
            old.replace_all_uses_with(new)
        return Tensor(results[0], builder)

    def replace_results(self, ends: Sequence[Tensor], trips: int | Tensor) -> None:
        """Take the results of the forward loop from another one."""
        found = dict(zip(self._carried, ends, strict=True))
        for k, result in enumerate(self.op.results):
            if is_used(result):
                result.replace_all_uses_with(found[k].value if k in found else self._known(k, trips))

    def outgoing(self, cotangents: Sequence[Cotangent], found: Sequence[Tensor]) -> Captured:
        """What the rule returns, from the cotangents before the first trip."""
        outgoing: list[Cotangent] = [None] * len(self.initial)
        for k, g in zip(self._moving, found, strict=False):
            outgoing[k] = g
        for k, invariant in enumerate(self._invariant):
            if invariant:
                outgoing[k] = cotangents[k]
        return Captured(outgoing, dict(zip(self._outside, found[len(self._moving) :], strict=True)))

    def erase(self) -> None:
        """Drop the block that the loops were copied from."""
        self._joint.erase()


def _or_zeros(cotangent: Cotangent, like: Value) -> Tensor:
    spec = spec_of(like.type)
    return zeros(spec.shape, spec.dtype) if cotangent is None else cotangent


def _after(first: int | Tensor, trips: Tensor) -> Tensor:
    return trips if isinstance(first, int) and first == 0 else trips + first
