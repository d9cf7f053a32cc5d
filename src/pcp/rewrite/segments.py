"""Cutting a deep program into segments of which many are equal, so that a compiler sees each kind once.

Compiling takes as long as a program is long, though the layers of a deep one are the same operations on the same shapes. In its
sequence of operations every layer repeats the one before; there it is cut, and again where the gradients of the layers repeat,
and the updates of their parameters. What passes from one segment to others are whole arrays.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pcp.autodiff.flops import flops_of
from pcp.ir import Argument, Builder, Program, Result, Role, Tree
from pcp.ir.bindings import Value, context, ir
from pcp.ir.digest import complex_constant, has_effect
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.constants import splat_of
from pcp.ir.toolkit.dataflow import depth_first
from pcp.ir.toolkit.editing import clone_operations
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import flatten, inline_calls
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.ir.tree import LEAF
from pcp.ops.record import is_cheap
from pcp.rewrite.repeats import Repeat, repeats
from pcp.tensor import Tensor, building
from pcp.tracing import close_main, open_main

WORTHWHILE = 1500
"""A program is cut if so many of its operations repeat others; each takes about a millisecond to compile."""
LEAST_FLOPS = 1e8
"""Floating-point operations of a segment, on average: calling one takes as long as a tenth of them."""
SHORTEST = 10
"""Operations of a period; what repeats sooner is not cut."""
LEAST_LENGTH = 60
"""Operations of a segment that repeats; where a period is shorter, several are one segment."""
SMALL = 64
"""Elements of a constant that is copied to wherever it is used."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a program. Values of the whole are known by numbers, of which its arguments have the first.

    Arguments:
        program: what it computes, one object for equal segments. A donated argument that nobody reads later is donated to it,
            if the result that takes the argument's memory is made here.
        takes: the values that are its arguments.
        makes: the values that are its results.
        ends: the values that nobody reads after it.
    """

    program: Program
    takes: tuple[int, ...]
    makes: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Segments:
    """A program as a sequence of segments.

    Arguments:
        sequence: in the order in which they run.
        results: the values that are those of the program.
        left: donated arguments whose memory no segment takes.
    """

    sequence: tuple[Segment, ...]
    results: tuple[int, ...]
    left: tuple[int, ...]

    @property
    def kinds(self) -> tuple[Program, ...]:
        """The different programs of the segments, in the order of their first use."""
        return tuple(dict.fromkeys(each.program for each in self.sequence))


@functools.lru_cache(maxsize=4)
def segments(program: Program) -> Segments | None:
    """A program in segments; None if little of it repeats, or it does too little for being called piece by piece.

    Arguments:
        program: any; it stays as it is.
    """
    module = program.module()
    flatten(module)
    inline_calls(module)
    if len(list(module.body.operations)) > 1:  # functions that some operation names
        return None
    block = entry_block(module)
    operations, returned = block_operations(block), returned_by(block)
    if len(operations) < WORTHWHILE or not _can_be_cut(block, operations, returned):
        return None
    body = _Body(block, operations, returned)
    found = repeats([each.kind for each in body.sequence], SHORTEST)
    if sum(each.saved for each in found) < WORTHWHILE:
        return None
    ranges = list(pairwise(sorted({0, len(body.sequence)}.union(*map(body.cuts, found)))))
    if sum(map(flops_of, operations)) < LEAST_FLOPS * len(ranges):
        return None
    with context():
        made = _Cutter(program, body).segments(ranges)
    different = {
        each.program: stop - start for each, (start, stop) in zip(made.sequence, ranges, strict=True)
    }
    return made if len(body.sequence) - sum(different.values()) >= WORTHWHILE else None


def _can_be_cut(block: ir.Block, operations: Iterable[ir.Operation], returned: Sequence[Value]) -> bool:
    """Whether every result is an array of its own, and every operation does nothing but compute arrays from arrays.

    An `rng` draws other numbers wherever it stands; equal segments are one executable, of which that is not known.
    """
    made = set(returned) - set(block.arguments)
    return (
        len(made) == len(returned)
        and all(spec_if_tensor(value.type) is not None for op in operations for value in op.results)
        and not any(op.name == "stablehlo.rng" or has_effect(op) for op in walk_block(block))
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Operation:
    """An operation with its values as numbers.

    Arguments:
        kind: stands for what it does to which types.
        takes: the values that it uses, those that only its regions use last.
        makes: its results.
        reads: the values on which those that it uses depend, through nothing but what is copied.
    """

    op: ir.Operation
    kind: int
    takes: tuple[int, ...]
    makes: tuple[int, ...]
    reads: tuple[int, ...]


class _Body:
    """The operations of a program: a sequence, and besides those that are copied to wherever they are used.

    Attributes:
        values: by their numbers.
        sequence: the operations that stand in one place.
        returned: the numbers of the program's results.
        last_read: the place in the sequence at which each value is read last.
    """

    def __init__(
        self, block: ir.Block, operations: Iterable[ir.Operation], returned: Sequence[Value]
    ) -> None:
        self.values: list[Value] = list(block.arguments)
        self.sequence: list[_Operation] = []
        self.last_read: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}
        self._copies: dict[int, _Operation] = {}  # by the number of the result
        numbers: dict[Value, int] = {value: number for number, value in enumerate(self.values)}
        kinds: dict[Any, int] = {}
        kept = set(returned)
        for op in operations:
            takes = tuple(numbers[value] for value in (*op.operands, *values_from_outside(op)))
            reads = tuple(dict.fromkeys(read for number in takes for read in self._reads(number)))
            makes = tuple(range(len(self.values), len(self.values) + len(op.results)))
            kind = (_code(op, {}), tuple(number in self._copies for number in takes))
            made = _Operation(op, kinds.setdefault(kind, len(kinds)), takes, makes, reads)
            numbers.update(zip(op.results, makes, strict=True))
            self.values += op.results
            if kept.isdisjoint(op.results) and _is_copied(op, bool(reads)):
                self._copies[makes[0]] = made
            else:
                self._append(made)
        self.returned = tuple(numbers[value] for value in returned)

    def _reads(self, number: int) -> tuple[int, ...]:
        return self._copies[number].reads if number in self._copies else (number,)

    def _append(self, made: _Operation) -> None:
        for number in made.reads:
            self._readers.setdefault(number, []).append(len(self.sequence))
            self.last_read[number] = len(self.sequence)
        self.sequence.append(made)

    def cuts(self, repeat: Repeat) -> range:
        """The places at which a stretch that repeats is cut: where the fewest bytes pass from one period to the next."""
        starts = range(repeat.start, repeat.start + repeat.period)
        start = min(starts, key=lambda start: self._passed(start, repeat.period))
        periods = -(-LEAST_LENGTH // repeat.period)
        return range(start, repeat.stop + 1, periods * repeat.period)

    def _passed(self, start: int, period: int) -> int:
        """Bytes that are made in the period from a place on, and read in the next."""
        following = range(start + period, start + 2 * period)
        made = (number for op in self.sequence[start : start + period] for number in op.makes)
        read = (n for n in made if any(place in following for place in self._readers.get(n, ())))
        return sum(spec_of(self.values[number].type).bytes for number in read)

    def with_copies(self, operations: Iterable[_Operation]) -> list[_Operation]:
        """Some of the sequence, each operation after what is copied for it."""
        return depth_first(
            operations, lambda each: [self._copies[n] for n in each.takes if n in self._copies]
        )


class _Cutter:
    """Makes segments of a program's body."""

    def __init__(self, program: Program, body: _Body) -> None:
        self._body = body
        self._known: dict[Any, Program] = {}
        self._heirs = {
            number: body.returned[entry.alias]
            for number, entry in enumerate(program.arguments)
            if entry.alias is not None
        }
        """The result that takes the memory of each donated argument, as long as no segment sees to it."""

    def segments(self, ranges: Sequence[tuple[int, int]]) -> Segments:
        """The segments between these places of the sequence."""
        body = self._body
        last = body.last_read | dict.fromkeys(body.returned, len(body.sequence))
        sequence = []
        for start, stop in ranges:
            operations = body.sequence[start:stop]
            made = dict.fromkeys(number for each in operations for number in each.makes)
            read = dict.fromkeys(number for each in operations for number in each.reads)
            takes = tuple(number for number in read if number not in made)
            makes = tuple(number for number in made if last.get(number, -1) >= stop)
            ends = tuple(number for number in takes if last[number] < stop)
            aliases = []
            for number in takes:
                is_given = number in ends and self._heirs.get(number) in made
                aliases.append(makes.index(self._heirs.pop(number)) if is_given else None)
            sequence.append(Segment(self._program(operations, takes, makes, aliases), takes, makes, ends))
        return Segments(tuple(sequence), body.returned, tuple(self._heirs))

    def _program(
        self,
        operations: Sequence[_Operation],
        takes: Sequence[int],
        makes: Sequence[int],
        aliases: Sequence[int | None],
    ) -> Program:
        """What a segment computes; the program of an equal one before it, if there is any."""
        complete = self._body.with_copies(operations)
        numbers = [*takes, *(number for each in complete for number in each.makes)]
        places = {number: place for place, number in enumerate(numbers)}
        key = (
            tuple((each.kind, *(places[number] for number in each.takes)) for each in complete),
            tuple(places[number] for number in makes),
            tuple(aliases),
        )
        if key not in self._known:
            inputs, outputs = ([self._body.values[number] for number in each] for each in (takes, makes))
            self._known[key] = _extracted([each.op for each in complete], inputs, outputs, aliases)
        return self._known[key]


def _extracted(
    operations: Sequence[ir.Operation],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    aliases: Sequence[int | None],
) -> Program:
    """A program of copies of operations, in the current context."""
    specs = [spec_of(value.type) for value in inputs]
    with ir.Location.unknown():
        module = ir.Module.create()
        main, block = open_main(module, specs)
        builder = Builder(module, block)
        made = clone_operations(operations, dict(zip(inputs, block.arguments, strict=True)), block, outputs)
        with building(builder):
            close_main(main, block, [Tensor(value, builder) for value in made])
        arguments = [
            Argument(str(place), spec, Role.input if alias is None else Role.state, alias)
            for place, (spec, alias) in enumerate(zip(specs, aliases, strict=True))
        ]
        results = [Result(str(place), spec_of(value.type)) for place, value in enumerate(made)]
        trees = (Tree("tuple", (), (LEAF,) * len(entries)) for entries in (arguments, results))
        describe_signature(main, arguments, results, *trees)
    return Program.from_module(module)


def _is_copied(op: ir.Operation, is_dependent: bool) -> bool:
    """Whether an operation is copied to wherever it is used, because its result is not worth being passed on.

    Arguments:
        is_dependent: whether it depends on arguments.
    """
    if op.name == "stablehlo.constant":
        spec = spec_of(op.results[0].type)
        if spec.size <= SMALL or spec.dtype.kind == "complex":  # which cannot be read through the bindings
            return spec.size <= SMALL
        return splat_of(op.attributes["value"]) is not None
    # Masks and positions depend on no argument.
    return op.name == "stablehlo.broadcast_in_dim" or (is_cheap(op.name) and not is_dependent)


def _code(op: ir.Operation, numbers: dict[Value, int]) -> Any:
    """What an operation does to which types, as something to compare: values are numbered in the order in which they come."""

    def coded(values: Iterable[Value]) -> Any:
        return tuple((numbers.setdefault(value, len(numbers)), value.type) for value in values)

    operands = coded(op.operands)
    bodies = [
        (coded(block.arguments), tuple(_code(inner.operation, numbers) for inner in block.operations))
        for region in op.regions
        for block in region.blocks
    ]
    return op.name, _attributes(op), operands, tuple(bodies), coded(op.results)


def _attributes(op: ir.Operation) -> Any:
    try:
        return tuple(op.attributes.items())
    except TypeError:
        return complex_constant(op)
