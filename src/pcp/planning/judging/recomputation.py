"""A Program copied so that values which are cheap to make are made again where they are read long after, instead of kept.

A compiler does so where it fuses operations; what stands between them, such as noise, keeps it from that. As in
`autodiff.rematerialisation`, a barrier does not survive XLA's compiler for processors. So what is made again starts from
values that are chosen by a condition that reads a new value and always holds.
"""

from dataclasses import dataclass

from pcp.ir import DType, Program, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.builder import attribute
from pcp.ir.toolkit.tensor_types import mlir_type, spec_if_tensor, spec_of
from pcp.ops.record import RECORDS, Kind
from pcp.planning.judging.oracle import Copy

LONG = 64
"""Operations of the program after which a value is made again."""
SMALL = 1 << 10
"""Bytes of a value that is kept in any case."""
STEPS = 32
"""Operations one after another that are done again at most."""
WORTH = 1.25
"""A value is made again from others that take at most this many times its bytes."""


@dataclass(slots=True)
class _Made:
    """What is known of a value of the program.

    Arguments:
        at: the time at which what stands for it was made.
        sources: the large values from which it can be made again; None keeps it.
        steps: operations one after another from there; 0 of what is kept.
        depth: the length of the longest chain of operations before it.
    """

    op: ir.Operation
    at: int
    sources: frozenset[Value] | None
    steps: int
    depth: int


class Recomputing(Copy):
    """A copy whose cheap values live briefly; it takes the arguments of `Copy`."""

    def __init__(self, program: Program, to: DType = DType.f64) -> None:
        self._made: dict[Value, _Made] = {}
        self._ties: dict[Value, tuple[int, Value]] = {}
        self._time = self._nesting = self._again = 0
        self._front: Value | None = None
        super().__init__(program, to)

    def operation(self, op: ir.Operation) -> ir.Operation:
        """Copy one operation; values that stand for its results are known then."""
        copied = super().operation(op)
        if self._nesting:
            return copied
        if not self._again:
            self._time += 1
        for result in op.results:
            if result in self._made:
                self._made[result].at = self._time
            else:
                self._describe(op, result)
        return copied

    def operands(self, op: ir.Operation) -> list[Value]:
        """What the copy of an operation takes: where it is cheap and was made long ago, made again."""
        return super().operands(op) if self._nesting else [self._at_hand(value) for value in op.operands]

    def regions(self, op: ir.Operation, copy: ir.Operation) -> None:
        """Copy the regions of an operation, in which nothing is made again."""
        self._nesting += 1
        super().regions(op, copy)
        self._nesting -= 1

    def _at_hand(self, value: Value) -> Value:
        making = self._made.get(value)
        if making is None or making.sources is None:
            return self._tied(value) if self._again else self.known[value]
        if making.sources and self._time - making.at > LONG:
            self._again += 1
            self.operation(making.op)
            self._again -= 1
        return self.known[value]

    def _describe(self, op: ir.Operation, value: Value) -> None:
        before = [self._made[each] for each in op.operands if each in self._made]
        depth = 1 + max((each.depth for each in before), default=0)
        steps = 1 + max((each.steps for each in before), default=0)
        sources = self._sources(op, value) if steps <= STEPS else None
        if sources is None and is_float32(self.known[value]):
            front = None if self._front is None else self._made[self._front]
            if front is None or depth >= front.depth:
                self._front = value
        self._made[value] = _Made(op, self._time, sources, 0 if sources is None else steps, depth)

    def _sources(self, op: ir.Operation, value: Value) -> frozenset[Value] | None:
        if op.name == "stablehlo.constant":
            return frozenset()
        size = _bytes(value)
        if not _is_cheap(op) or len(op.results) != 1 or size <= SMALL:
            return None
        sources: set[Value] = set()
        for operand in op.operands:
            making = self._made.get(operand)
            if making is not None:  # arguments live in any case
                sources |= {operand} if making.sources is None else making.sources
        large = frozenset(each for each in sources if _bytes(each) > SMALL)
        return large if sum(map(_bytes, large)) <= WORTH * size else None

    def _tied(self, value: Value) -> Value:
        """A value that is kept, but not before the newest one is known."""
        known = self.known[value]
        if self._front is None or _bytes(value) <= SMALL or not is_float32(known):
            return known
        at, tied = self._ties.get(value, (-LONG - 1, known))
        if self._time - at > LONG:
            zero = constant(known.type, 0)
            tied = emitted("select", known.type, _always(self.known[self._front]), known, zero)
            self._ties[value] = self._time, tied
        return tied


def emitted(name: str, type_: ir.Type, *operands: Value, **attributes: ir.Attribute) -> Value:
    """The result of a new operation of StableHLO."""
    result: Value = ir.Operation.create(f"stablehlo.{name}", [type_], operands, attributes).results[0]
    return result


def constant(type_: ir.Type, number: int) -> Value:
    """An array of one number."""
    element = ir.RankedTensorType(type_).element_type
    is_float = spec_of(type_).dtype.kind == "float"
    entry = ir.FloatAttr.get(element, number) if is_float else ir.IntegerAttr.get(element, number)
    return emitted("constant", type_, value=ir.DenseElementsAttr.get_splat(type_, entry))


def sliced(value: Value, starts: list[int], ends: list[int]) -> Value:
    """A part of an array."""
    spec = spec_of(value.type)
    shape = tuple(end - start for start, end in zip(starts, ends, strict=True))
    return emitted(
        "slice",
        mlir_type(TensorSpec(shape, spec.dtype)),
        value,
        start_indices=attribute(tuple(starts)),
        limit_indices=attribute(tuple(ends)),
        strides=attribute((1,) * len(shape)),
    )


def _always(front: Value) -> Value:
    """True, computed from an element of a value: its bits with the last one set are not zero."""
    rank = len(spec_of(front.type).shape)
    number, word, truth = (mlir_type(TensorSpec((), dtype)) for dtype in (DType.f32, DType.u32, DType.bool))
    first = sliced(front, [0] * rank, [1] * rank) if rank else front
    element = emitted("reshape", number, first)
    bits = emitted("or", word, emitted("bitcast_convert", word, element), constant(word, 1))
    direction = ir.Attribute.parse("#stablehlo<comparison_direction NE>")
    return emitted("compare", truth, bits, constant(word, 0), comparison_direction=direction)


def is_float32(value: Value) -> bool:
    """Whether a value is an array of float32 with elements."""
    spec = spec_if_tensor(value.type)
    return spec is not None and spec.dtype is DType.f32 and spec.size > 0


def _bytes(value: Value) -> int:
    spec = spec_if_tensor(value.type)
    return 0 if spec is None else spec.bytes


def _is_cheap(op: ir.Operation) -> bool:
    """Whether an operation computes or moves single elements, which a compiler does where they are read."""
    record = RECORDS.get(op.name)
    return record is not None and record.is_fused and record.kind in (Kind.elementwise, Kind.movement)
