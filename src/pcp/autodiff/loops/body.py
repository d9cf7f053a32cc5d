"""One trip of a loop together with its derivative, from which the loops of both passes are made."""

from collections.abc import Iterable, Sequence

from pcp.autodiff.loops.carries import LoopCarries
from pcp.autodiff.loops.emission import counted, give_back
from pcp.autodiff.loops.products import Product, products_of, stack_from_outside
from pcp.autodiff.rematerialisation.residuals import residuals_of
from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.dataflow import defining_op, is_used, result_owner
from pcp.ir.toolkit.editing import copy_region, erase_dead
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.derivative import Captured, Cotangent, Primal
from pcp.ops.indexing.blocks import row_at, with_row
from pcp.ops.movement import zeros
from pcp.tensor import Tensor, as_tensor, current_builder, emit

Carries = dict[int, Tensor]
"""Carries by their places in the `while`."""


class LoopBody:
    """The body of a `while` and its derivative in one block, `(trip, carries, cotangents) -> (carries, cotangents)`.

    The forward loop runs what does not depend on the cotangents and keeps residuals, the backward loop runs the rest.

    Arguments:
        primal: the loop.
        cotangents: of its results.
        trips: how often it runs, if that is known.
    """

    def __init__(self, primal: Primal, cotangents: Sequence[Cotangent], trips: int | None) -> None:
        self.primal = primal
        self.op = primal.op
        self.memory = primal.engine.loops
        self._cotangents = cotangents
        self._carries = LoopCarries(primal, cotangents, trips)
        builder = current_builder()
        self.start = {k: Tensor(self._carries.initial[k], builder) for k in self._carries.changing}
        self._flowing = [
            spec_of(v.type)
            for v in (*(self._carries.initial[k] for k in self._carries.moving), *self._carries.outside)
        ]
        self._joint = self._differentiated()
        self._sums: dict[int, list[Product]] = {}
        self._factors: list[Value | None] = []  # from outside, if it is there already
        if trips is not None and self.memory.keeps_all:
            self._take_products_out(trips)
        block = self._joint.regions[0].blocks[0]
        self._residuals = residuals_of(block, range(1, 1 + len(self.start)), self.memory.recompute)
        live = self._live(block)
        self.needed = {k: t for k, t in self.start.items() if k in live}

    def _differentiated(self) -> ir.Operation:
        """An operation that only holds the block of a trip and its derivative, to be copied from."""
        builder, engine, carries = current_builder(), self.primal.engine, self._carries
        specs = [
            as_tensor(0, DType.i32).spec,
            *(t.spec for t in self.start.values()),
            *self._flowing,
            *(g.spec for g in carries.written.values()),
        ]
        holder = builder.emit("stablehlo.case", [], [], regions=1)
        with builder.region(holder, 0, specs) as (trip, *values):
            place = dict(zip(self.start, values, strict=False))
            incoming = [Tensor(value, builder) for value in values[len(self.start) :]]
            inputs = carries.values(Tensor(trip, builder), place)
            operations, returned = copy_region(builder, self.op, 1, inputs)
            outputs = [*(returned[k] for k in carries.moving), *carries.outside]
            for i, k in enumerate(carries.written, start=len(self._flowing)):
                _, update, *starts = result_owner(returned[k]).operands
                outputs.append(update)
                incoming[i] = _block_of(
                    incoming[i], [Tensor(v, builder) for v in starts], spec_of(update.type)
                )
            give_back([Tensor(returned[k], builder) for k in self.start])
            block = holder.regions[0].blocks[0]
            *_, terminator = (op.operation for op in block.operations)
            wanted = [*(place[k] for k in carries.moving), *carries.outside]
            with builder.before(terminator):
                # What reached the values from outside in earlier trips is their cotangent to begin with.
                cotangents = engine.gradients(operations, outputs, incoming, wanted)
                following = [_or_zeros(g, value) for g, value in zip(cotangents, wanted, strict=True)]
            # A rule may have put others in the place of what the body returns.
            kept = [Tensor(value, builder) for value in terminator.operands]
            terminator.erase()
            give_back([*kept, *following])
            del operations, returned, outputs, incoming, cotangents, following, kept, wanted, place, inputs
            erase_dead(block)
        return holder

    def _take_products_out(self, trips: int) -> None:
        """Return the factors of products instead of their sums."""
        block, flowing = self._joint.regions[0].blocks[0], len(self._flowing)
        arguments, returned, factors = list(block.arguments), returned_by(block), list[Value]()
        for index in range(len(self._carries.moving), flowing):
            place = len(self.start) + index
            products = products_of(block, arguments[1 + place], place, factors)
            if products:
                self._sums[index] = products
                returned[place] = arguments[1 + place]
        *_, terminator = (op.operation for op in block.operations)
        builder = current_builder()
        with builder.before(terminator):
            builder.emit("stablehlo.return", [*returned, *factors], ())
        terminator.erase()
        self._factors = [stack_from_outside(block, value, trips) for value in factors]
        del terminator, returned, factors
        erase_dead(block)

    def _live(self, block: ir.Block) -> set[int]:
        """The carries that the residuals of this or any later trip are computed from."""
        keys, arguments, operations = list(self.start), list(block.arguments), block_operations(block)
        returned = dict(zip(keys, returned_by(block), strict=False))
        places: dict[Value, int] = dict(zip(arguments[1 : 1 + len(keys)], keys, strict=True))
        kept = [arguments[i] if at < 0 else operations[at].results[i] for at, i in self._residuals]
        live: set[int] = set()
        wider = _reached(places, kept)
        while wider != live:
            live = wider
            wider = live | _reached(places, [returned[k] for k in live])
        return live

    @property
    def keeps_nothing(self) -> bool:
        """Whether the backward loop reads nothing of the forward one."""
        return not self._residuals

    def first_cotangents(self) -> list[Tensor]:
        """The cotangents at the end of the loop that go from trip to trip: of carries, and of values from outside."""
        carries = self._carries
        of_carries = [_or_zeros(self._cotangents[k], carries.initial[k]) for k in carries.moving]
        return of_carries + [_or_zeros(None, value) for value in carries.outside]

    def trip(self, number: Tensor, carries: Carries) -> Carries:
        """The carries after a trip; some may be left out on both sides."""
        builder = current_builder()
        values = self._carries.values(number, self._filled(carries))
        _, returned = copy_region(builder, self.op, 1, values)
        return {k: Tensor(returned[k], builder) for k in carries}

    def advance(self, trips: Tensor, first: Tensor, carries: Carries) -> Carries:
        """The carries after some trips, from those before trip `first`."""

        def trip(done: Tensor, values: list[Tensor]) -> Iterable[Tensor]:
            return self.trip(first + done, dict(zip(carries, values, strict=True))).values()

        return dict(zip(carries, counted(trips, list(carries.values()), trip), strict=True))

    def forward(
        self, trips: int | Tensor, first: int | Tensor, rows: int, carries: Carries
    ) -> tuple[Carries, list[Tensor]]:
        """Run some trips and keep their residuals.

        Arguments:
            trips: how many.
            first: the number of the first one.
            rows: the largest number of them.
            carries: the carries before it.

        Returns:
            The carries after them, and stacks of the residuals.
        """
        builder, count = current_builder(), len(carries)
        empty = [zeros((rows, *spec.shape), spec.dtype) for spec in self._residual_specs()]

        def trip(done: Tensor, values: list[Tensor]) -> list[Tensor]:
            now, stacks = dict(zip(carries, values, strict=False)), values[count:]
            written = [g.spec for g in self._carries.written.values()]
            unused = [zeros(spec.shape, spec.dtype).value for spec in (*self._flowing, *written)]
            inputs = [_after(first, done).value, *self._filled(now).values(), *unused]
            copies, returned = copy_region(builder, self._joint, 0, inputs)
            following = dict(zip(self.start, returned, strict=False))
            kept = [inputs[i] if at < 0 else copies[at].results[i] for at, i in self._residuals]
            return [
                *(Tensor(following[k], builder) for k in carries),
                *(with_row(s, done, Tensor(v, builder)) for s, v in zip(stacks, kept, strict=True)),
            ]

        ends = counted(trips, [*carries.values(), *empty], trip)
        return dict(zip(carries, ends, strict=False)), ends[count:]

    def backward(
        self, trips: int | Tensor, first: int | Tensor, stacks: Sequence[Tensor], cotangents: Sequence[Tensor]
    ) -> list[Tensor]:
        """The cotangents before some trips, from those after them and stacks of their residuals."""
        builder = current_builder()
        kept = dict(zip(self._residuals, stacks, strict=True))
        here = [i for i in range(len(self._flowing)) if i not in self._sums]
        factors, missing = self._factor_stacks(kept, trips)

        def trip(done: Tensor, values: list[Tensor]) -> list[Tensor]:
            place = (trips - 1) - done
            rows = {where: row_at(stack, place) for where, stack in kept.items()}
            now = {k: rows[-1, i] for i, k in enumerate(self.start, start=1) if (-1, i) in rows}
            following = dict(zip(here, values, strict=False))
            flowing = [following.get(i, cotangents[i]) for i in range(len(self._flowing))]
            inputs = [_after(first, place).value, *self._filled(now).values()]
            inputs += [t.value for t in (*flowing, *self._carries.written.values())]
            copies, returned = copy_region(builder, self._joint, 0, inputs)
            read = {copies[at].results[i]: stored.value for (at, i), stored in rows.items() if at >= 0}
            for old, new in read.items():
                old.replace_all_uses_with(new)
            results = [Tensor(read.get(value, value), builder) for value in returned[len(self.start) :]]
            written = (
                with_row(stack, place, results[len(flowing) + i])
                for i, stack in zip(missing, values[len(here) :], strict=True)
            )
            return [*(results[i] for i in here), *written]

        ends = counted(trips, [*(cotangents[i] for i in here), *missing.values()], trip)
        factors.update(zip(missing, ends[len(here) :], strict=True))
        cotangents = [*cotangents]
        for i, g in zip(here, ends, strict=False):
            cotangents[i] = g
        for i, products in self._sums.items():
            parts = [p.over_trips(factors[p.factors[0]], factors[p.factors[1]]) for p in products]
            cotangents[i] = sum(parts[1:], parts[0])
        return cotangents

    def _factor_stacks(
        self, kept: dict[tuple[int, int], Tensor], trips: int | Tensor
    ) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """Stacks of the factors of products: those that are there, and empty ones for the others."""
        builder, block = current_builder(), self._joint.regions[0].blocks[0]
        values = returned_by(block)[len(self.start) + len(self._flowing) :]
        place: dict[Value, tuple[int, int]] = {value: (-1, i) for i, value in enumerate(block.arguments)}
        for number, op in enumerate(block_operations(block)):
            place.update((value, (number, i)) for i, value in enumerate(op.results))
        there, missing = {}, {}
        for i, (value, outside) in enumerate(zip(values, self._factors, strict=True)):
            if outside is not None:
                there[i] = Tensor(outside, builder)
            elif place[value] in kept:
                there[i] = kept[place[value]]
            else:
                assert isinstance(trips, int)
                spec = spec_of(value.type)
                missing[i] = zeros((trips, *spec.shape), spec.dtype)
        return there, missing

    def _filled(self, carries: Carries) -> dict[int, Value]:
        """All changing carries; those that nothing reads are zeros."""
        return {
            k: (carries[k] if k in carries else zeros(t.shape, t.dtype)).value for k, t in self.start.items()
        }

    def _residual_specs(self) -> list[TensorSpec]:
        block = self._joint.regions[0].blocks[0]
        arguments, operations = list(block.arguments), block_operations(block)
        return [
            spec_of((arguments[i] if at < 0 else operations[at].results[i]).type) for at, i in self._residuals
        ]

    def count_trips(self) -> Tensor:
        """Put a loop in the place of the forward one that counts its trips as well."""
        builder, op = current_builder(), self.op
        first = [as_tensor(0, DType.i32), *(Tensor(value, builder) for value in self._carries.initial)]
        specs = [t.spec for t in first]
        loop = builder.emit("stablehlo.while", [t.value for t in first], specs, regions=2)
        for index in range(2):
            with builder.region(loop, index, specs) as (done, *values):
                _, returned = copy_region(builder, op, index, values)
                counts = [Tensor(done, builder) + 1] if index else []
                give_back([*counts, *(Tensor(value, builder) for value in returned)])
        results: list[Value] = list(loop.results)
        for old, new in zip(op.results, results[1:], strict=True):
            old.replace_all_uses_with(new)
        return Tensor(results[0], builder)

    def replace_results(self, ends: Carries, trips: int | Tensor) -> None:
        """Take the results of the forward loop from another one."""
        for k, result in enumerate(self.op.results):
            if is_used(result):
                result.replace_all_uses_with((ends[k] if k in ends else self._carries.known(k, trips)).value)

    def outgoing(self, cotangents: Sequence[Tensor]) -> Captured:
        """What the rule returns, from the cotangents before the first trip."""
        carries = self._carries
        outgoing: list[Cotangent] = [None] * len(carries.initial)
        for k, g in zip(carries.moving, cotangents, strict=False):
            outgoing[k] = g
        for k, invariant in enumerate(carries.invariant):
            if invariant:
                outgoing[k] = self._cotangents[k]
        return Captured(outgoing, dict(zip(carries.outside, cotangents[len(carries.moving) :], strict=True)))

    def erase(self) -> None:
        """Drop the block that the loops were copied from."""
        self._joint.erase()


def _after(first: int | Tensor, trips: Tensor) -> Tensor:
    return trips if isinstance(first, int) and first == 0 else trips + first


def _block_of(x: Tensor, start: Sequence[Tensor], spec: TensorSpec) -> Tensor:
    return emit("dynamic_slice", (x, *start), (spec,), {"slice_sizes": spec.shape})


def _or_zeros(cotangent: Cotangent, like: Value) -> Tensor:
    spec = spec_of(like.type)
    return zeros(spec.shape, spec.dtype) if cotangent is None else cotangent


def _reached(ends: dict[Value, int], values: Iterable[Value]) -> set[int]:
    """Which of `ends` values are computed from."""
    indices: set[int] = set()
    pending, seen = list(values), set(values)
    while pending:
        value = pending.pop()
        if value in ends:
            indices.add(ends[value])
        elif (op := defining_op(value)) is not None:
            more = {*op.operands, *(values_from_outside(op) if len(op.regions) else ())} - seen
            seen |= more
            pending += more
    return indices
