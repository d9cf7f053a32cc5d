"""A program that scores whole texts, rewritten to read a chunk of a text behind what it has read.

Values that depend on tokens have an axis of places. Operation by operation, they are computed at the chunk's places only, as is
what depends on no token and is computed beside them: masks, positions, their tables. Where places meet places -- queries and
keys, shares and values, in whatever form attention is written -- the side that is looked at is needed at all places: it is
kept, and becomes state. What it is moved and repeated from is kept in its place, if that is smaller.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pcp.inference.by_program.axes import MOVES, came_from, index_axes, looked_up_axes, refused, shape_of
from pcp.ir import Builder, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integer_of
from pcp.ir.toolkit.dataflow import defining_op, result_owner
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ops.elementwise import clip, convert, minimum, where
from pcp.ops.indexing.reading import take
from pcp.ops.movement import iota, moveaxis, reshape
from pcp.ops.movement.shape import broadcast_in_dim
from pcp.tensor import Tensor

_DEEP = 60
"""Operations before a value without tokens that are computed at the chunk's places; of deeper ones the whole is cut."""


class Places(NamedTuple):
    """The axes of a value that places lie along: the chunk's own, and, in scores of attention, all that are looked at."""

    own: int
    others: int | None = None


class Chunking:
    """The walk over a program's operations.

    Arguments:
        builder: where operations are added.
        length: places of the program.
        start: the place of the chunk's first token, an integer.
        chunk: tokens of a chunk.
        held: what is kept, each (length, ...), in the order in which it is met; None while it is not known.
        rules: what rewrites an operation that is not computed element by element, by its name.
        queries: the side of a product of queries and keys on which queries stand, 0 for the left.

    Attributes:
        kept: the chunk's part of what is kept, (chunk, ...).
    """

    def __init__(
        self,
        builder: Builder,
        length: int,
        start: Tensor,
        chunk: int,
        held: Sequence[Tensor] | None,
        rules: "Mapping[str, Rule]",
        queries: int = 0,
    ) -> None:
        self.builder, self.length, self.chunk = builder, length, chunk
        self._start, self._held, self._rules, self.queries = start, held, rules, queries
        self._at = minimum(start + iota((chunk,)), length - 1)
        self.kept: list[Tensor] = []
        self.places: dict[Value, Places] = {}
        self.known: dict[Value, Value] = {}
        """What stands for a value: for the chunk where it depends on tokens, else the whole."""
        self._whole: dict[Value, Value] = {}
        self._cut: dict[tuple[Value, int], Value] = {}

    def push(self, op: ir.Operation) -> None:
        """Rewrite one operation.

        Raises:
            NotADecoder: it mixes places in a way that is no attention.
        """
        if any(value in self.places for value in values_from_outside(op)):
            raise refused(op, "uses tokens inside of a branch or a loop")
        if not any(value in self.places for value in op.operands):
            self.emit(op, [self.known[value] for value in op.operands], None)
            return
        self._rules.get(op.name, elementwise)(self, op)

    def emit(self, op: ir.Operation, operands: Sequence[Value], places: Places | None) -> None:
        """Add an operation's copy, whose results have these places."""
        copy = self._copied(op, operands, None if places is None else places.own)
        for old, new in zip(op.results, copy.results, strict=True):
            self.known[old] = new
            if places is not None:
                self.places[old] = places

    def _copied(self, op: ir.Operation, operands: Sequence[Value], cut: int | None) -> ir.Operation:
        """An operation with other operands, its results cut to the chunk along an axis."""
        copy = op.clone(ip=self.builder.insertion)
        for place, value in enumerate(operands):
            copy.operands[place] = value
        for result in copy.results if cut is not None else ():
            spec = spec_of(result.type)
            result.set_type(mlir_type(self.spec_cut(spec, cut)))
        return copy

    def spec_cut(self, spec: TensorSpec, axis: int | None) -> TensorSpec:
        """A shape, cut to the chunk along an axis."""
        place = axis or 0
        return TensorSpec((*spec.shape[:place], self.chunk, *spec.shape[place + 1 :]), spec.dtype)

    def tensor(self, value: Value) -> Tensor:
        """A value as a Tensor."""
        return Tensor(value, self.builder)

    def whole(self, value: Value) -> Value:
        """A value at all places."""
        if value not in self.places:
            return self.known[value]
        if value in self._whole:
            return self._whole[value]
        moves: list[ir.Operation] = []
        base = value
        walked: list[ir.Operation] = []
        while (op := defining_op(base)) is not None and op.name in MOVES and op.operands[0] in self.places:
            walked.append(op)
            base = op.operands[0]
            if _size(base) <= _size(walked[len(moves)].operands[0] if moves else value):
                moves = list(walked)
        base = moves[-1].operands[0] if moves else value
        if base not in self._whole:
            self._whole[base] = self._filled(base)
        for op in reversed(moves):
            if op.results[0] not in self._whole:
                self._whole[op.results[0]] = self._made(op, [self._whole[op.operands[0]]], None)
        return self._whole[value]

    def _filled(self, value: Value) -> Value:
        """What is kept of a value, with the chunk in it."""
        own = self.places[value].own
        if self.places[value].others is not None:
            raise refused(result_owner(value), "mixes places twice")
        new = moveaxis(self.tensor(self.known[value]), own, 0)
        self.kept.append(new)
        rest = new.shape[1:]
        if self._held is None:
            held = broadcast_in_dim(self.tensor(self._zero(value)), (self.length, *rest), ())
        else:
            held = self._held[len(self.kept) - 1]
        all_places = reshape(iota((self.length,)), (self.length, *[1] * len(rest)))
        behind = all_places - self._start
        flat = clip(iota((self.length,)) - self._start, 0, self.chunk - 1)
        found = where(behind < 0, held, where(behind < self.chunk, take(new, flat, 0), 0))
        return moveaxis(convert(found, new.dtype), 0, own).value

    def _zero(self, value: Value) -> Value:
        return self.builder.constant(spec_of(value.type).dtype.numpy.type(0).reshape(()))

    def at_chunk(self, value: Value, axis: int, depth: int = 0) -> Value:
        """A value that is whole, at the chunk's places along an axis."""
        key = (value, axis)
        if key not in self._cut:
            self._cut[key] = self._cut_along(value, axis, depth)
        return self._cut[key]

    def _cut_along(self, value: Value, axis: int, depth: int) -> Value:
        op = defining_op(value)
        if shape_of(value)[axis] == 1:  # beside the last place of texts, which is the last of every chunk
            return self._repeated(self.whole(value), self.spec_cut(spec_of(value.type), axis))
        if op is None or depth > _DEEP or len(op.regions):
            return self._taken(value, axis)
        if op.name == "stablehlo.iota":
            return self._counted(op, axis)
        if op.name in MOVES:
            source = came_from(op, axis)
            if source is not None:
                return self._made(op, [self.at_chunk(op.operands[0], source, depth + 1)], axis)
            if op.name == "stablehlo.broadcast_in_dim":
                return self._made(op, [self.whole(op.operands[0])], axis)
        if value in self.places or op.name in MOVES or not len(op.operands):
            return self._taken(value, axis)
        if op.name == "stablehlo.gather":
            return self._looked_up(op, value, axis, depth)
        if not is_elementwise(op):
            return self._taken(value, axis)
        operands = [
            self.whole(each) if shape_of(each) == () else self.at_chunk(each, axis, depth + 1)
            for each in op.operands
        ]
        return self._made(op, operands, axis)

    def _made(self, op: ir.Operation, operands: Sequence[Value], cut: int | None) -> Value:
        result: Value = self._copied(op, operands, cut).results[0]
        return result

    def _repeated(self, value: Value, spec: TensorSpec) -> Value:
        axes = tuple(range(len(spec.shape)))
        result: Value = broadcast_in_dim(self.tensor(value), spec.shape, axes).value
        return result

    def _taken(self, value: Value, axis: int) -> Value:
        found: Value = take(self.tensor(self.whole(value)), self._at, axis).value
        return found

    def _counted(self, op: ir.Operation, axis: int) -> Value:
        spec = self.spec_cut(spec_of(op.results[0].type), axis)
        along = integer_of(op.attributes["iota_dimension"])
        here = convert(self._at, spec.dtype)
        made = (
            iota(spec.shape, along, spec.dtype)
            if along != axis
            else broadcast_in_dim(here, spec.shape, (axis,))
        )
        counted: Value = made.value
        return counted

    def _looked_up(self, op: ir.Operation, value: Value, axis: int, depth: int) -> Value:
        table, indices = op.operands
        batch = looked_up_axes(op)
        if axis not in batch:
            return self._taken(value, axis)
        inner = index_axes(op)[batch.index(axis)]
        return self._made(op, [self.whole(table), self.at_chunk(indices, inner, depth + 1)], axis)

    def operand(self, value: Value, places: Places) -> Value:
        """An operand that is combined element by element with others whose places lie along these axes."""
        found = self.places.get(value)
        if shape_of(value) == ():
            return self.known[value]
        if found is not None and found.own == places.own:
            return self.known[value]
        return self.at_chunk(value, places.own)

    def common(self, op: ir.Operation, values: Sequence[Value]) -> Places:
        """The places of operands that are combined element by element."""
        found = [self.places[value] for value in values if value in self.places]
        others = {each.others for each in found} - {None}
        own = sorted({each.own for each in found} - others)
        if len(own) == 2 and not others:
            own, others = own[:1], {own[1]}  # the keys' own mask, say: what is looked at lies behind
        if len(own) != 1 or len(others) > 1:
            raise refused(op, "mixes places")
        return Places(own[0], next(iter(others), None))

    def emit_joined(self, op: ir.Operation, places: Places) -> None:
        """Add the copy of an operation that combines its operands element by element."""
        self.emit(op, [self.operand(value, places) for value in op.operands], places)


def _size(value: Value) -> int:
    return spec_of(value.type).size


_MIXING = frozenset(
    [*MOVES]
    + [
        f"stablehlo.{name}"
        for name in (
            "slice", "pad", "concatenate", "gather", "dot_general", "dynamic_slice", "dynamic_update_slice", "convolution",
            "reverse", "fft", "cholesky", "triangular_solve", "custom_call",
        )
    ]
)  # fmt: skip
"""What has no region, may give the shape that it is given, and computes elements from those at other places."""


def is_elementwise(op: ir.Operation) -> bool:
    """Whether an operation computes each element of its result from those of its operands at the same place."""
    shape = shape_of(op.results[0])
    return (
        not len(op.regions)
        and op.name not in _MIXING
        and all(shape_of(value) in (shape, ()) for value in op.operands)
    )


def elementwise(walk: Chunking, op: ir.Operation) -> None:
    """The rule of all operations without one."""
    if not is_elementwise(op):
        raise refused(op, "is no operation that is known to leave places apart")
    walk.emit_joined(op, walk.common(op, list(op.operands)))


Rule = Callable[[Chunking, ir.Operation], None]
"""Rewrites an operation some of whose operands depend on tokens."""
