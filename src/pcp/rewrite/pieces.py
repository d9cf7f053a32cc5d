"""A program cut into pieces that run one after another, each a Program of its own. What passes between them are whole arrays.

`segments` and `regions` say where to cut.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pcp.ir import Argument, Builder, Program, Result, Role, Tree
from pcp.ir.bindings import Value, ir
from pcp.ir.digest import complex_constant
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.constants import splat_of
from pcp.ir.toolkit.dataflow import depth_first
from pcp.ir.toolkit.editing import clone_operations
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.tree import LEAF
from pcp.ops.record import is_cheap
from pcp.tensor import Tensor, building
from pcp.tracing import close_main, open_main

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


@dataclass(frozen=True, slots=True, eq=False)
class Member:
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


class Body:
    """The operations of a program: a sequence, and besides those that are copied to wherever they are used.

    Arguments:
        block: of the program, without calls.
        operations, returned: what it holds.
        stays: whether an operation stands in the sequence though its result is not worth being passed on.

    Attributes:
        values: by their numbers.
        sequence: the operations that stand in one place.
        returned: the numbers of the program's results.
        readers: the places in the sequence at which each value is read, in order.
        last_read: the last of them.
    """

    def __init__(
        self,
        block: ir.Block,
        operations: Iterable[ir.Operation],
        returned: Sequence[Value],
        stays: Callable[[ir.Operation], bool] = lambda _: False,
    ) -> None:
        self.values: list[Value] = list(block.arguments)
        self.sequence: list[Member] = []
        self.last_read: dict[int, int] = {}
        self.readers: dict[int, list[int]] = {}
        self._copies: dict[int, Member] = {}  # by the number of the result
        numbers: dict[Value, int] = {value: number for number, value in enumerate(self.values)}
        kinds: dict[Any, int] = {}
        kept = set(returned)
        for op in operations:
            takes = tuple(numbers[value] for value in (*op.operands, *values_from_outside(op)))
            reads = tuple(dict.fromkeys(read for number in takes for read in self._reads(number)))
            makes = tuple(range(len(self.values), len(self.values) + len(op.results)))
            kind = (_code(op, {}), tuple(number in self._copies for number in takes))
            member = Member(op, kinds.setdefault(kind, len(kinds)), takes, makes, reads)
            numbers.update(zip(op.results, makes, strict=True))
            self.values += op.results
            if kept.isdisjoint(op.results) and not stays(op) and _is_copied(op, bool(reads)):
                self._copies[makes[0]] = member
            else:
                self._append(member)
        self.returned = tuple(numbers[value] for value in returned)

    def _reads(self, number: int) -> tuple[int, ...]:
        return self._copies[number].reads if number in self._copies else (number,)

    def _append(self, member: Member) -> None:
        for number in member.reads:
            self.readers.setdefault(number, []).append(len(self.sequence))
            self.last_read[number] = len(self.sequence)
        self.sequence.append(member)

    def reorder(self, order: Sequence[int]) -> None:
        """Let the sequence stand in another order, each operation still behind those that it depends on.

        Arguments:
            order: the present places, in the new order.
        """
        sequence, self.sequence = self.sequence, []
        self.readers, self.last_read = {}, {}
        for place in order:
            self._append(sequence[place])

    def with_copies(self, operations: Iterable[Member]) -> list[Member]:
        """Some of the sequence, each operation after what is copied for it."""
        return depth_first(
            operations, lambda each: [self._copies[n] for n in each.takes if n in self._copies]
        )


class Cutter:
    """Makes segments of a program's body."""

    def __init__(self, program: Program, body: Body) -> None:
        self._body = body
        self._known: dict[Any, Program] = {}
        self._heirs = {
            number: body.returned[entry.alias]
            for number, entry in enumerate(program.arguments)
            if entry.alias is not None
        }
        """The result that takes the memory of each donated argument, as long as no segment sees to it."""

    def segments(
        self, ranges: Sequence[tuple[int, int]], may_donate: Callable[[int], bool] = lambda _: True
    ) -> Segments:
        """The segments between these places of the sequence.

        Arguments:
            may_donate: by the number of a segment, whether donated arguments may be donated to it.
        """
        body = self._body
        last = body.last_read | dict.fromkeys(body.returned, len(body.sequence))
        sequence = []
        for which, (start, stop) in enumerate(ranges):
            operations = body.sequence[start:stop]
            results = dict.fromkeys(number for each in operations for number in each.makes)
            read = dict.fromkeys(number for each in operations for number in each.reads)
            takes = tuple(number for number in read if number not in results)
            makes = tuple(number for number in results if last.get(number, -1) >= stop)
            ends = tuple(number for number in takes if last[number] < stop)
            aliases = []
            for number in takes:
                heir = self._heirs.get(number)
                is_given = may_donate(which) and number in ends and heir in results
                place = makes.index(heir) if is_given and heir is not None else None
                is_taken = place in aliases  # one value is the result for two donated arguments
                aliases.append(None if is_taken else place)
                if aliases[-1] is not None:
                    del self._heirs[number]
            sequence.append(Segment(self._program(operations, takes, makes, aliases), takes, makes, ends))
        return Segments(tuple(sequence), body.returned, tuple(self._heirs))

    def _program(
        self,
        operations: Sequence[Member],
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
            self._known[key] = extracted([each.op for each in complete], inputs, outputs, aliases)
        return self._known[key]


def extracted(
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
        copies = clone_operations(operations, dict(zip(inputs, block.arguments, strict=True)), block, outputs)
        with building(builder):
            close_main(main, block, [Tensor(value, builder) for value in copies])
        arguments = [
            Argument(str(place), spec, Role.input if alias is None else Role.state, alias)
            for place, (spec, alias) in enumerate(zip(specs, aliases, strict=True))
        ]
        results = [Result(str(place), spec_of(value.type)) for place, value in enumerate(copies)]
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
