"""Keys and values that a program gathers out of pages by a table, as a kernel reads them where they lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcp.ir import DType
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import dimension_numbers, integers_of
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.kernels.attention.heads import Heads, Names
from pcp.kernels.views import View, dense_strides, view_of
from pcp.rewrite.raising.attention import CONTRACTED, FREE
from pcp.tensor import Tensor, current_builder

FEW = 8
"""Queries at most that read pages: for more, keys are worth copying."""

NO_PAGES: dict[str, Sequence[int]] = {"table": [], "page": [], "held": []}
"""What handlers are told of operands in a row."""


@dataclass(frozen=True, slots=True)
class Paged:
    """Keys or values in pages.

    Arguments:
        stored: all pages, the first axis.
        table: integers, the pages in the order of the rows that they are gathered to.
        page: rows of a page, and elements.
        start: of a page's elements, the first of the operand.
        strides: in elements, by the names of axes: of the keys and of what lies within a row of a page.
        by_table: the same in elements of the table, of other axes.
        scales: of bytes, one for each key or value of a head, in the order of pages.
    """

    stored: Tensor
    table: Value
    page: tuple[int, int]
    start: int
    strides: Mapping[int, int]
    by_table: Mapping[int, int]
    scales: Tensor | None = None

    @classmethod
    def of(cls, heads: Heads, names: Names, width: int, view: View) -> "Paged | None":
        """Those that a view sees, whose axes have names; None if they are not gathered, page by page."""
        op, of_scales = _before_widening(view.base)
        if op is None or not _takes_whole(op):
            return None
        dtype, last = spec_of(op.operands[0].type).dtype, spec_of(op.operands[0].type).shape[-1]
        if dtype not in (DType.f32, DType.bf16, DType.i8) or (dtype is DType.i8) != (of_scales is not None):
            return None
        if of_scales is not None and (last != heads.sizes[width] or view.start % last):
            return None
        _, page, *rest = spec_of(op.operands[0].type).shape
        many, row = spec_of(op.operands[1].type).shape[-2], dense_strides((page, *rest))[0]
        strides = {
            axis: 0 if heads.sizes[axis] == 1 else stride
            for axis, stride in zip(names, view.strides, strict=True)
        }
        keys, whole = heads.keys, many * page * row
        by_table = {axis: stride // (page * row) for axis, stride in strides.items() if stride >= whole}
        within = {axis: 0 if axis in by_table else stride for axis, stride in strides.items()}
        is_apart = all(not strides[axis] % whole for axis in by_table)
        reach = sum(stride * (heads.sizes[axis] - 1) for axis, stride in within.items() if axis != keys)
        if (
            not is_apart
            or within[keys] not in (0, row)
            or view.start + reach >= row
            or by_table.keys() & {keys, width}
        ):
            return None
        if heads.sizes[width] > 1 and within[width] != 1:
            return None
        stored = Tensor(op.operands[0], current_builder())
        scales = None if of_scales is None else Tensor(of_scales, current_builder())
        return cls(stored, op.operands[1], (page, page * row), view.start, within, by_table, scales)


@dataclass(frozen=True, slots=True)
class Pages:
    """Keys and values in pages that one table gives to them.

    Arguments:
        heads: which axis of which operand is what.
        key, value: where they lie.
        held: booleans: where they are false, a value is 0; None if it is none anywhere.
        by_held: strides of these in elements, by the names of axes.
    """

    heads: Heads
    key: Paged
    value: Paged
    held: Tensor | None
    by_held: Mapping[int, int]

    @classmethod
    def of(cls, heads: Heads, key: Tensor, value: Tensor) -> "Pages | None":
        """Those of an attention; None if a kernel reads its keys and values where they are gathered to."""
        if heads.lengths[0] > FEW:
            return None
        names = heads.attributes
        held, by_held, values = _held(value.value, names["value"])
        keys = Paged.of(heads, names["key"], CONTRACTED, view_of(key.value))
        there = Paged.of(heads, names["value"], FREE, view_of(values))
        if keys is None or there is None or by_held.get(FREE, 0):
            return None
        if keys.table != there.table or keys.by_table != there.by_table:
            return None
        if keys.stored.shape[:2] != there.stored.shape[:2]:
            return None
        return cls(heads, keys, there, held, by_held)

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """That follow the masks."""
        table = Tensor(self.key.table, current_builder())
        further = (self.held, self.key.scales, self.value.scales)
        return (table, *(each for each in further if each is not None))

    @property
    def attributes(self) -> dict[str, Sequence[int]]:
        """What handlers are told."""
        batch, keys = self.heads.batch, self.heads.keys
        return {
            "table": [self.key.by_table.get(axis, 0) for axis in batch],
            "page": [self.key.page[0], self.key.page[1], self.value.page[1]],
            "held": [] if self.held is None else [self.by_held.get(axis, 0) for axis in (*batch, keys)],
        }


def _before_widening(value: Value) -> tuple[ir.Operation | None, Value | None]:
    """The operation whose result a value is, perhaps widened, and the scales of pages of bytes that it is multiplied by."""
    op = defining_op(value)
    if op is not None and op.name == "stablehlo.multiply":
        wide, spread = (defining_op(operand) for operand in op.operands)
        if wide is None or spread is None or spread.name != "stablehlo.broadcast_in_dim":
            return None, None
        inner = spread.operands[0]
        axes = tuple(range(len(spec_of(inner.type).shape)))
        of_scales, found = (
            _gathered(inner),
            _gathered(wide.operands[0]) if wide.name == "stablehlo.convert" else None,
        )
        if (
            of_scales is None
            or found is None
            or integers_of(spread.attributes["broadcast_dimensions"])[: len(axes)] != axes
        ):
            return None, None
        whole, kept = (spec_of(each.operands[0].type) for each in (found, of_scales))
        is_of_rows = spec_of(inner.type).size * whole.shape[-1] == spec_of(value.type).size
        if kept.shape != whole.shape[:-1] or kept.dtype is not DType.f32 or not is_of_rows:
            return None, None
        same = found.operands[1] == of_scales.operands[1]
        return (found, of_scales.operands[0]) if same else (None, None)
    if op is not None and op.name == "stablehlo.convert":
        return _gathered(op.operands[0]), None
    return op, None


def _gathered(value: Value) -> ir.Operation | None:
    """The gather of whole pages whose result a value is, in another shape."""
    op = defining_op(value)
    while op is not None and op.name == "stablehlo.reshape":
        op = defining_op(op.operands[0])
    return op if op is not None and _takes_whole(op) else None


def _takes_whole(op: ir.Operation) -> bool:
    """Whether an operation gathers whole pages by a table, (..., pages, 1)."""
    if op.name != "stablehlo.gather":
        return False
    shape, indices = spec_of(op.operands[0].type).shape, spec_of(op.operands[1].type)
    numbers = dimension_numbers(str(op.attributes["dimension_numbers"]))
    first = len(indices.shape) - 1
    expected = {
        "offset_dims": tuple(range(first, first + len(shape) - 1)),
        "collapsed_slice_dims": (0,),
        "start_index_map": (0,),
        "index_vector_dim": (first,),
    }
    return (
        len(shape) >= 2
        and len(indices.shape) >= 2
        and indices.dtype is DType.i32
        and indices.shape[-1] == 1
        and {name: axes for name, axes in numbers.items() if axes} == expected
        and integers_of(op.attributes["slice_sizes"]) == (1, *shape[1:])
    )


def _held(value: Value, names: Names) -> tuple[Tensor | None, Mapping[int, int], Value]:
    """What says where values are 0, its strides by the names of axes, and the values that are chosen where it is true."""
    op = defining_op(value)
    if op is None or op.name != "stablehlo.select" or splat_number(op.operands[2]) != 0:
        return None, {}, value
    wide = defining_op(op.operands[0])
    if wide is None or wide.name != "stablehlo.broadcast_in_dim":
        return None, {}, value
    shape, places = spec_of(wide.operands[0].type).shape, integers_of(wide.attributes["broadcast_dimensions"])
    strides = {
        names[place]: 0 if size == 1 else stride
        for place, size, stride in zip(places, shape, dense_strides(shape), strict=True)
    }
    return Tensor(wide.operands[0], current_builder()), strides, op.operands[1]
