"""Arguments whose matrices are kept in fewer bits: products read them so, and lookups of rows of the same matrix.

A matrix is made of its argument in front of everything else, from which it is split off where the argument is bound. What
reads the argument otherwise reads it as it is.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pcp.errors import PCPError
from pcp.ir import Builder, Program, Role
from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.indexing.gathering import WindowAxes, gather
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.linear.stored import Format, product_with
from pcp.ops.movement import reshape, transpose
from pcp.rewrite.stored.products import LEAST, MOVES, first_of, is_constrained, is_f32, opened
from pcp.tensor import Tensor, building, emit

_Key = tuple[Value, tuple[int, ...], tuple[int, ...]]


class NotStored(PCPError):
    """An argument that cannot be kept in fewer bits in some way, or that there is not."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """An argument that products read.

    Arguments:
        number: its flat place.
        size: how many numbers it has.
        inputs: how long the rows are that products read of it.
        rows: how many rows it is multiplied by at once, at most.
    """

    number: int
    size: int
    inputs: tuple[int, ...]
    rows: int


def matrices_in(program: Program) -> list[Matrix]:
    """The arguments that products of float32 read and that are large enough, the largest first; none that is state."""
    _module, block = opened(program)  # operations do not outlive it
    matrices = []
    for number, (entry, argument) in enumerate(zip(program.arguments, block.arguments, strict=True)):
        products = _products_of(argument)
        if products and entry.spec.size >= LEAST and entry.role is not Role.state:
            inputs = tuple(sorted({each.shape[1] for each in products}))
            rows = max(each.other.size // each.shape[1] for each in products)
            matrices.append(Matrix(number, entry.spec.size, inputs, rows))
    return sorted(matrices, key=lambda each: (-each.size, each.number))


def with_stored_arguments(program: Program, formats: Mapping[int, Format]) -> Program:
    """The program whose products read arguments as they are kept.

    Arguments:
        formats: by the flat places of arguments.

    Raises:
        NotStored: there is no such argument, or it is state, no product reads it, or its rows do not fit.
    """
    here = {each.number: each for each in matrices_in(program)}
    for number, form in formats.items():
        _check(program, number, here.get(number), form)
    module, block = opened(program)
    with context(), ir.Location.unknown(), building(Builder(module, block)) as builder:
        for number, form in formats.items():
            _Stored(block, form, builder).read_by(block.arguments[number])
    erase_dead(block)
    return Program.from_module(module)


def _check(program: Program, number: int, matrix: Matrix | None, form: Format) -> None:
    if number >= len(program.arguments):
        raise NotStored(
            f"argument {number} is kept in {form.name}, and the program takes {len(program.arguments)}: plan again"
        )
    entry = program.arguments[number]
    name = f"argument {entry.name or number}"
    if entry.role is Role.state:
        raise NotStored(f"{name} is kept in {form.name}, and is state: every call makes it anew: plan again")
    if matrix is None:
        raise NotStored(
            f"{name} is kept in {form.name}, and no product of float32 reads it, or it has fewer than {LEAST} numbers: "
            "plan again"
        )
    wrong = next((inputs for inputs in matrix.inputs if not form.fits(inputs)), None)
    if wrong is not None:
        raise NotStored(
            f"{name} is kept in {form.name}, whose scales are for {form.block} numbers of a row each, and a row has {wrong}: "
            "expected a multiple of that; keep it in int8"
        )


def _readers(value: Value) -> Iterator[tuple[ir.Operation, int]]:
    """What reads a value, perhaps moved, and as which operand."""
    for use in value.uses:
        op = use.owner.operation
        if op.name in MOVES:
            yield from _readers(op.results[0])
        else:
            yield op, use.operand_number


def _is_product(op: ir.Operation) -> bool:
    """Whether it is a product of float32 by a matrix, and the program leaves its precision open."""
    return (
        op.name == "stablehlo.dot_general"
        and not is_constrained(op)
        and DotAxes.of(op).batch == ((), ())
        and all(map(is_f32, (*op.operands, *op.results)))
        and all(spec_of(value.type).size for value in op.operands)
    )


def _is_lookup(op: ir.Operation, place: int) -> bool:
    """Whether it looks up rows of a matrix of float32."""
    if op.name != "stablehlo.gather" or place or not is_f32(op.operands[0]):
        return False
    axes, shape = WindowAxes.of(op), spec_of(op.operands[0].type).shape
    last = len(spec_of(op.results[0].type).shape) - 1
    is_of_rows = (axes.offset, axes.collapsed, axes.index_map) == ((last,), (0,), (0,))
    return is_of_rows and len(shape) == 2 and integers_of(op.attributes["slice_sizes"]) == (1, shape[1])


class _Product:
    """A product that reads a matrix, as its left operand (0) or its right one (1)."""

    def __init__(self, op: ir.Operation, place: int) -> None:
        axes, self.op, self.place = DotAxes.of(op), op, place
        self.value, self.other_value = op.operands[place], op.operands[1 - place]
        self.other = spec_of(self.other_value.type)
        whole = spec_of(self.value.type).shape
        free = axes.free(place, len(whole))
        self.axes = (*free, *axes.contract[place])
        self.of_other = (*axes.free(1 - place, len(self.other.shape)), *axes.contract[1 - place])
        self.free = tuple(whole[axis] for axis in free)
        inputs = math.prod(whole[axis] for axis in axes.contract[place])
        self.shape = (math.prod(self.free), inputs)

    def by(self, kept: list[Tensor], builder: Builder) -> Tensor:
        """The same of the matrix as it is kept."""
        rest = tuple(self.other.shape[axis] for axis in self.of_other[: len(self.of_other) - self.summed])
        x = reshape(_turned(Tensor(self.other_value, builder), self.of_other), (*rest, self.shape[1]))
        y = reshape(product_with(x, kept), (*rest, *self.free))
        if self.place:
            return y
        count = len(rest)
        return _turned(y, (*range(count, y.ndim), *range(count)))

    @property
    def summed(self) -> int:
        """How many axes are summed over."""
        return len(self.axes) - len(self.free)


def _products_of(argument: Value) -> list[_Product]:
    """The products that read a matrix of an argument, but for those of an argument with itself."""
    products = [_Product(op, place) for op, place in _readers(argument) if _is_product(op)]
    ops = [each.op for each in products]
    return [each for each in products if ops.count(each.op) == 1]


def _as_given(x: Tensor) -> Tensor:
    """Behind a barrier, so that no compiler reads what it was made of instead, and none keeps what is made of it."""
    return emit("optimization_barrier", (x,), (x.spec,))


def _turned(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return x if axes == tuple(range(x.ndim)) else transpose(x, axes)


class _Stored:
    """An argument as it is kept.

    Arguments:
        block: in front of which its matrices are made.
        form: that it is kept in.
    """

    def __init__(self, block: ir.Block, form: Format, builder: Builder) -> None:
        self._first, self._form, self._builder = first_of(block), form, builder
        self._kept: dict[_Key, list[Tensor]] = {}

    def read_by(self, argument: Value) -> None:
        """Let products read it, and lookups of the rows that products read, too."""
        lookups = [op for op, place in _readers(argument) if _is_lookup(op, place)]
        for product in _products_of(argument):
            kept = self._matrix(product.value, product.axes, product.shape)
            with self._builder.before(product.op):
                self._replace(product.op, product.by(kept, self._builder))
        for op in lookups:
            rows = op.operands[0]
            known = self._kept.get(_key(rows, (0, 1), spec_of(rows.type).shape))
            if known is not None:
                with self._builder.before(op):
                    self._replace(op, self._rows(op, known))

    def _matrix(self, value: Value, axes: tuple[int, ...], shape: tuple[int, int]) -> list[Tensor]:
        key = _key(value, axes, shape)
        if key not in self._kept:
            with self._builder.before(self._first):
                rows = reshape(_turned(self._in_front(key[0]), key[1]), shape)
                self._kept[key] = [_as_given(part) for part in self._form.written(rows)]
        return self._kept[key]

    def _in_front(self, value: Value) -> Tensor:
        op = defining_op(value)
        if op is None:
            return Tensor(value, self._builder)
        source = self._in_front(op.operands[0])
        if op.name == "stablehlo.reshape":
            return reshape(source, spec_of(value.type).shape)
        return transpose(source, integers_of(op.attributes["permutation"]))

    def _rows(self, op: ir.Operation, kept: list[Tensor]) -> Tensor:
        axes, indices = WindowAxes.of(op), Tensor(op.operands[1], self._builder)
        parts = []
        for part in kept:
            table = reshape(part, (part.shape[0], -1))
            rows_of = gather(table, indices, axes, (1, table.shape[1]))
            parts.append(rows_of if part.ndim > 1 else reshape(rows_of, rows_of.shape[:-1]))
        return self._form.read(*parts)

    @staticmethod
    def _replace(op: ir.Operation, result: Tensor) -> None:
        op.results[0].replace_all_uses_with(result.value)
        op.erase()


def _key(value: Value, axes: tuple[int, ...], shape: tuple[int, ...]) -> _Key:
    """What equal matrices of an argument have in common: what is turned, how, and the shape."""
    op = defining_op(value)
    while op is not None and op.name == "stablehlo.transpose":
        turned = integers_of(op.attributes["permutation"])
        value, axes = op.operands[0], tuple(turned[axis] for axis in axes)
        op = defining_op(value)
    return value, axes, shape
