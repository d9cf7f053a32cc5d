"""One part of what is cut: copies of its operations, of smaller types."""

from collections.abc import Mapping, Sequence

from pcp.ir import Builder, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.dataflow import defining_op, result_owner
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ops.elementwise import convert
from pcp.ops.indexing.blocks import dynamic_slice
from pcp.ops.movement import full
from pcp.rewrite.memory.axes import Cut
from pcp.rewrite.memory.cutting import Cutting
from pcp.tensor import Tensor

DEEP = 100
"""Operations before a piece of a whole value which are computed in parts, one behind another; of deeper ones it is cut."""


class NeedsPlace(Exception):
    """What is the same for every part would have to know which part it is.

    Arguments:
        value: of which a piece is read, and `axis` along which.
    """

    def __init__(self, value: Value, axis: int) -> None:
        super().__init__()
        self.value, self.axis = value, axis


class Part:
    """What one part has of values, written where the builder stands.

    Arguments:
        cutting: what is cut, and how.
        builder: stands where operations go.
        index: of the part; None where they have to be the same for every part.
        pieces: of values, along which axes: what is there of them for this part; None stands for what it adds to a sum.
    """

    def __init__(
        self,
        cutting: Cutting,
        builder: Builder,
        index: Tensor | None,
        pieces: Mapping[tuple[Value, int | None], Value],
    ) -> None:
        self._cutting, self._builder, self._index = cutting, builder, index
        self._known: dict[tuple[Value, int | None], Value] = dict(pieces)
        self._depth = 0

    def _copy(self, op: ir.Operation, cut: Cut, begun: Value | None = None) -> None:
        """Copy an operation, as it is cut; `begun` is what its part is added to."""
        operands = [
            value if axis is None else self._piece(value, axis)
            for value, axis in zip(op.operands, cut.operands, strict=True)
        ]
        if cut.adds_to is not None:
            assert begun is not None
            operands[cut.adds_to] = begun
        results = self._cloned(op, operands, cut.results)
        if cut.function:
            result_owner(results[0]).attributes["decomposition"] = ir.FlatSymbolRefAttr.get(cut.function)
        self._known.update(zip(zip(op.results, cut.results, strict=True), results, strict=True))

    def _cloned(self, op: ir.Operation, operands: Sequence[Value], axes: Sequence[int | None]) -> list[Value]:
        copy = op.clone(ip=self._builder.insertion)
        for place, value in enumerate(operands):
            copy.operands[place] = value
        for value, axis in zip(copy.results, axes, strict=True):
            if axis is not None:
                value.set_type(self._narrow(value, axis))
        if op.name == "stablehlo.slice":
            limits = list(integers_of(op.attributes["limit_indices"]))
            limits = [size // self._cutting.parts if i == axes[0] else size for i, size in enumerate(limits)]
            copy.attributes["limit_indices"] = ir.DenseI64ArrayAttr.get(limits)
        return list(copy.results)

    def _narrow(self, value: Value, axis: int) -> ir.Type:
        return mlir_type(narrowed(spec_of(value.type), axis, self._cutting.parts))

    def _piece(self, value: Value, axis: int) -> Value:
        """This part's piece of a value; of one that is whole, computed in the part where that is cheap, or read."""
        known = self._known.get((value, axis))
        if known is None:
            known = self._known[value, axis] = self._narrowed(value, axis)
        return known

    def _narrowed(self, value: Value, axis: int) -> Value:
        spec = narrowed(spec_of(value.type), axis, self._cutting.parts)
        op, number = defining_op(value), splat_number(value)
        if number is not None:
            return full(spec.shape, number, spec.dtype).value
        if op is not None and len(op.results) == 1:
            if op.name == "stablehlo.iota":
                is_along = ir.IntegerAttr(op.attributes["iota_dimension"]).value == axis
                index = self._place(value, axis) if is_along else None
                (numbered,) = self._cloned(op, (), [axis])
                if index is None:
                    return numbered
                first = convert(index * spec.shape[axis], spec.dtype)
                return (Tensor(numbered, self._builder) + first).value
            if op.name == "stablehlo.broadcast_in_dim":
                dims, shape = (
                    integers_of(op.attributes["broadcast_dimensions"]),
                    spec_of(op.operands[0].type).shape,
                )
                if axis not in dims or shape[dims.index(axis)] == 1:
                    return self._cloned(op, list(op.operands), [axis])[0]
            cut = self._cutting.cut_for(op, axis) if self._depth < DEEP else None
            if cut is not None:
                pairs = zip(op.operands, cut.operands, strict=True)
                self._depth += 1
                operands = [x if along is None else self._piece(x, along) for x, along in pairs]
                self._depth -= 1
                return self._cloned(op, operands, [axis])[0]
        index = self._place(value, axis)
        start = [index * size if i == axis else 0 for i, size in enumerate(spec.shape)]
        return dynamic_slice(Tensor(value, self._builder), start, spec.shape).value

    def _place(self, value: Value, axis: int) -> Tensor:
        if self._index is None:
            raise NeedsPlace(value, axis)
        return self._index


class Copies(Part):
    """The operations of a cutting for one part.

    Arguments:
        cutting, builder, index, pieces: as of `Part`.
        begun: what the parts before come to, for values that parts are added to.

    Raises:
        NeedsPlace: they are not the same for every part.
    """

    def __init__(
        self,
        cutting: Cutting,
        builder: Builder,
        index: Tensor | None,
        begun: Mapping[Value, Tensor],
        pieces: Mapping[tuple[Value, int | None], Value],
    ) -> None:
        super().__init__(cutting, builder, index, pieces)
        for op, cut in cutting.cuts:
            self._copy(op, cut, None if cut.adds_to is None else begun[op.results[0]].value)

    def of(self, value: Value) -> Value:
        """The piece of a value that is cut, or what this part adds to a sum."""
        return self._known[value, self._cutting.axes.get(value)]


def narrowed(spec: TensorSpec, axis: int, parts: int) -> TensorSpec:
    """Of a tensor that is cut, what one part has."""
    sizes = (size // parts if i == axis else size for i, size in enumerate(spec.shape))
    return TensorSpec(tuple(sizes), spec.dtype)
