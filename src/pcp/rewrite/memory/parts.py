"""A batch computed in parts, one after another: gradient accumulation of a finished program, whoever made it.

What depends on examples alone is computed in a loop over parts of the batch; sums over examples are added up from part to part;
what is made of these sums, as the update of a training step, comes after the loop. Only the values of one part are alive at a
time. No operation is done twice. Sums are added up in another order.
"""

from collections.abc import Sequence

from pcp.ir import Builder, DType, Program, Role, TensorSpec
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import flatten, inline_calls
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.ir.toolkit.tensor_types import mlir_type, spec_if_tensor, spec_of
from pcp.ops.control.loops import fori_loop
from pcp.ops.elementwise import convert
from pcp.ops.indexing.blocks import dynamic_slice, dynamic_update_slice
from pcp.ops.movement import full, zeros
from pcp.rewrite.memory.axes import Cut, cut_of
from pcp.tensor import Tensor, building


def flat_module(program: Program) -> ir.Module:
    """A program without calls and composites."""
    module = program.module()
    inline_calls(module)
    flatten(module)
    erase_dead(entry_block(module))
    return module


def in_parts(program: Program, parts: int) -> Program | None:
    """The program that computes its batch in equal parts.

    Arguments:
        program: any Program. Its batch are those inputs of one size along their first axes by which most of it is cut.
        parts: how many.

    Returns:
        None if nothing in it can be computed in so many parts.
    """
    module = flat_module(program)
    block = entry_block(module)
    inputs: dict[int, list[Value]] = {}
    for entry, value in zip(program.arguments, block.arguments, strict=True):
        shape = entry.spec.shape
        if entry.role is not Role.state and shape and shape[0] and shape[0] % parts == 0:
            inputs.setdefault(shape[0], []).append(value)
    found = max(
        (_Cutting(block, seeds, parts) for seeds in inputs.values()),
        key=lambda each: each.bytes,
        default=None,
    )
    if found is None or not found.cuts:
        return None
    with context(), ir.Location.unknown():
        builder = Builder(module, block)
        builder.pinned = ir.Location.unknown()
        with building(builder):
            _write(found, builder)
    erase_dead(block)
    return Program.from_module(module)


class _Cutting:
    """Which operations of a block are computed in parts if some of its arguments are cut along their first axes.

    Attributes:
        axes: along which values are cut.
        cuts: of the operations in the loop, in order.
        bytes: of all values that are cut.
    """

    def __init__(self, block: ir.Block, seeds: Sequence[Value], parts: int) -> None:
        self.parts = parts
        self.axes: dict[Value, int] = dict.fromkeys(seeds, 0)
        self.cuts: list[tuple[ir.Operation, Cut]] = []
        self.operations = block_operations(block)
        self.returned = returned_by(block)
        self.after: set[Value] = set()
        for op in self.operations:
            self._visit(op)
        self.bytes = sum(spec_of(value.type).bytes for value in self.axes if value not in seeds)

    def _visit(self, op: ir.Operation) -> None:
        read = [*op.operands, *(values_from_outside(op) if len(op.regions) else ())]
        given = [self.axes.get(value) for value in op.operands]
        is_after = any(value in self.after for value in read)
        if not is_after and not any(value in self.axes for value in read):
            return
        cut = None if is_after or len(read) > len(op.operands) else cut_of(op, given, self.parts)
        if cut is None or not self._divides(op, cut):
            self.after.update(op.results)
            return
        self.cuts.append((op, cut))
        for value, axis in zip(op.results, cut.results, strict=True):
            if axis is None:
                self.after.add(value)
            else:
                self.axes[value] = axis

    def cut_for(self, op: ir.Operation, axis: int) -> Cut | None:
        """How an operation of whole operands is computed in parts so that its result is cut along an axis."""
        for place, operand in enumerate(op.operands):
            spec = spec_if_tensor(operand.type)
            for along in range(0 if spec is None else len(spec.shape)):
                given = [along if i == place else None for i in range(len(op.operands))]
                cut = cut_of(op, given, self.parts)
                if cut is not None and cut.results == (axis,) and self._divides(op, cut):
                    return cut
        return None

    def _divides(self, op: ir.Operation, cut: Cut) -> bool:
        """Whether all that is cut has a size that the number of parts divides, and all that is added up is a number."""
        pairs = zip((*op.operands, *op.results), (*cut.operands, *cut.results), strict=True)
        specs = [(spec_if_tensor(value.type), axis) for value, axis in pairs]
        if any(spec is None or (axis is not None and spec.shape[axis] % self.parts) for spec, axis in specs):
            return False
        sums = (spec for spec, axis in specs[len(op.operands) :] if axis is None)
        return all(spec is not None and spec.dtype is not DType.bool for spec in sums)

    @property
    def leaving(self) -> list[Value]:
        """The values that what comes after the loop reads, those that are cut and those that are sums."""
        inside = {op for op, _ in self.cuts}
        made = {value for op in inside for value in op.results}
        read = [
            value
            for op in self.operations
            if op not in inside
            for value in (*op.operands, *values_from_outside(op))
        ]
        return [value for value in dict.fromkeys((*read, *self.returned)) if value in made]

    def needed_before(self) -> list[ir.Operation]:
        """The operations outside of the loop that it reads, and those that these read, in order."""
        inside = {op for op, _ in self.cuts}
        needed: set[ir.Operation] = set()
        for op in reversed(self.operations):
            if op in inside or op in needed:
                for value in (*op.operands, *values_from_outside(op)):
                    maker = defining_op(value)
                    if maker is not None and maker not in inside:
                        needed.add(maker)
        return [op for op in self.operations if op in needed]


def _write(found: _Cutting, builder: Builder) -> None:
    """Put the loop in the place of the operations in it."""
    anchor = found.cuts[0][0]
    place = {op: index for index, op in enumerate(found.operations)}
    for op in found.needed_before():
        if place[op] > place[anchor]:
            op.move_before(anchor)
    leaving = found.leaving
    adds_to = {op.results[0]: op.operands[cut.adds_to] for op, cut in found.cuts if cut.adds_to is not None}
    with builder.before(anchor):
        begin = [
            Tensor(adds_to[value], builder)
            if value in adds_to
            else zeros(*_carried(value, value in found.axes))
            for value in leaving
        ]

        def body(index: Tensor, carried: list[Tensor]) -> list[Tensor]:
            part = _Part(found, builder, index, dict(zip(leaving, carried, strict=True)))
            return [part.leaving(value) for value in leaving]

        made = fori_loop(0, found.parts, body, begin)
        ends = [
            convert(tensor, spec_of(value.type).dtype) for value, tensor in zip(leaving, made, strict=True)
        ]
    for value, tensor in zip(leaving, ends, strict=True):
        value.replace_all_uses_with(tensor.value)
    for op, _ in reversed(found.cuts):
        op.erase()


def _carried(value: Value, is_cut: bool) -> tuple[tuple[int, ...], DType]:
    """Shape and element type of what a loop carries for a value: sums of short numbers are added up in float32."""
    spec = spec_of(value.type)
    short = not is_cut and spec.dtype in (DType.bf16, DType.f16)
    return spec.shape, DType.f32 if short else spec.dtype


class _Part:
    """One trip of the loop: copies of its operations, of smaller types."""

    def __init__(
        self, found: _Cutting, builder: Builder, index: Tensor, carried: dict[Value, Tensor]
    ) -> None:
        self._found, self._builder, self._index, self._carried = found, builder, index, carried
        self._known: dict[tuple[Value, int | None], Value] = {}
        for op, cut in found.cuts:
            self._copy(op, cut)

    def leaving(self, value: Value) -> Tensor:
        """What the loop carries of a value after this trip."""
        before, axis = self._carried[value], self._found.axes.get(value)
        if axis is not None:
            made = Tensor(self._known[value, axis], self._builder)
            start = [self._index * made.shape[i] if i == axis else 0 for i in range(made.ndim)]
            return dynamic_update_slice(before, made, start)
        made = Tensor(self._known[value, None], self._builder)
        op = defining_op(value)
        adds_itself = any(op == each and cut.adds_to is not None for each, cut in self._found.cuts)
        return made if adds_itself else before + convert(made, before.dtype)

    def _copy(self, op: ir.Operation, cut: Cut) -> None:
        operands = [
            value if axis is None else self._piece(value, axis)
            for value, axis in zip(op.operands, cut.operands, strict=True)
        ]
        if cut.adds_to is not None:
            operands[cut.adds_to] = self._carried[op.results[0]].value
        made = self._cloned(op, operands, cut.results)
        self._known.update(zip(zip(op.results, cut.results, strict=True), made, strict=True))

    def _cloned(self, op: ir.Operation, operands: Sequence[Value], axes: Sequence[int | None]) -> list[Value]:
        copy = op.clone(ip=self._builder.insertion)
        for place, value in enumerate(operands):
            copy.operands[place] = value
        for value, axis in zip(copy.results, axes, strict=True):
            if axis is not None:
                value.set_type(self._narrow(value, axis))
        if op.name == "stablehlo.slice":
            limits = list(integers_of(op.attributes["limit_indices"]))
            limits = [size // self._found.parts if i == axes[0] else size for i, size in enumerate(limits)]
            copy.attributes["limit_indices"] = ir.DenseI64ArrayAttr.get(limits)
        return list(copy.results)

    def _narrow(self, value: Value, axis: int) -> ir.Type:
        return mlir_type(self._spec(value, axis))

    def _spec(self, value: Value, axis: int) -> TensorSpec:
        spec = spec_of(value.type)
        sizes = (size // self._found.parts if i == axis else size for i, size in enumerate(spec.shape))
        return TensorSpec(tuple(sizes), spec.dtype)

    def _piece(self, value: Value, axis: int) -> Value:
        """This trip's part of a value; of one that is whole, computed in the part where that is cheap, or read."""
        known = self._known.get((value, axis))
        if known is None:
            known = self._known[value, axis] = self._narrowed(value, axis)
        return known

    def _narrowed(self, value: Value, axis: int) -> Value:
        spec, op, number = self._spec(value, axis), defining_op(value), splat_number(value)
        if number is not None:
            return full(spec.shape, number, spec.dtype).value
        if op is not None and len(op.results) == 1:
            if op.name == "stablehlo.iota":
                (made,) = self._cloned(op, (), [axis])
                if ir.IntegerAttr(op.attributes["iota_dimension"]).value != axis:
                    return made
                first = convert(self._index * spec.shape[axis], spec.dtype)
                return (Tensor(made, self._builder) + first).value
            if op.name == "stablehlo.broadcast_in_dim":
                dims, shape = (
                    integers_of(op.attributes["broadcast_dimensions"]),
                    spec_of(op.operands[0].type).shape,
                )
                if axis not in dims or shape[dims.index(axis)] == 1:
                    return self._cloned(op, list(op.operands), [axis])[0]
            cut = self._found.cut_for(op, axis)
            if cut is not None:
                pairs = zip(op.operands, cut.operands, strict=True)
                operands = [x if along is None else self._piece(x, along) for x, along in pairs]
                return self._cloned(op, operands, [axis])[0]
        start = [self._index * size if i == axis else 0 for i, size in enumerate(spec.shape)]
        return dynamic_slice(Tensor(value, self._builder), start, spec.shape).value
