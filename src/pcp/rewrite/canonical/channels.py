"""Images whose channels stand before their places, as PyTorch has them, get them last, where norms and products read rows.

A convolution of such images becomes one with its channels last, between two transposes. The second sinks: an operation on a
transposed value becomes a transposed operation, until transposes meet that undo one another, or an operation that needs the
order. Derivatives that are taken afterwards have their channels last as well.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pcp.ir import Program, TensorSpec
from pcp.ir.bindings import Value, context, ir
from pcp.ir.builder import Builder
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import block_operations
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.movement import reshape, transpose
from pcp.ops.movement.shape import broadcast_in_dim, reverse
from pcp.ops.record import RECORDS
from pcp.ops.windows.convolution_rules import Convolution, Layout, is_turned
from pcp.ops.windows.geometry import pairs_attribute, pairs_of
from pcp.rewrite.pattern import defined_by, filled, is_beyond_rows, numbers, spec, tensor
from pcp.rewrite.simplification.products import product_like
from pcp.tensor import Tensor, building, current_builder

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Turned:
    """A value as a transpose of another: its axis i is axis `order[i]` of the source."""

    source: Tensor
    order: Order

    @property
    def back(self) -> Order:
        """For each axis of the source, that of the value."""
        return tuple(self.order.index(axis) for axis in range(len(self.order)))


def with_channels_last(program: Program) -> Program:
    """The program with channels last around its convolutions; the given one if there is none that has them first.

    Arguments:
        program: any Program; it stays as it is.

    Returns:
        A Program with the same arguments and results; only the order of sums, which is open, may be another.
    """
    if b"convolution" not in program.bytecode:
        return program
    module = program.module()
    inline_calls(module)
    block = entry_block(module)
    with context(), building(Builder(module, block)) as builder:
        sinking = _Sinking(builder, block)
        sinking.run()
        if not sinking.turned:
            return program
        sinking.turned.clear()  # no Python object may stand for what is erased now
        erase_dead(block)
    return Program.from_module(module)


class _Sinking:
    """What is known of values of a block while its operations are visited in order.

    Arguments:
        builder: of the module.
        block: whose operations they are.
    """

    def __init__(self, builder: Builder, block: ir.Block) -> None:
        self.builder, self.block = builder, block
        self.turned: dict[Value, Turned] = {}

    def run(self) -> None:
        """Visit all operations."""
        for op in block_operations(self.block):
            if not is_beyond_rows(op):
                self.visit(op)

    def visit(self, op: ir.Operation) -> None:
        """Write an operation anew if it is on a turned value and there is a rule for it."""
        rule = _RULES.get(op.name.removeprefix("stablehlo."))
        if RECORDS.get(op.name) is not None and RECORDS[op.name].is_elementwise:
            rule = _elementwise
        seeds = op.name == "stablehlo.convolution"
        if rule is None or not (seeds or any(value in self.turned for value in op.operands)):
            return
        with self.builder.before(op):
            self.builder.pinned = op.location
            try:
                found = rule(op, self)
                if found is not None:
                    value = transpose(found.source, found.order) if _moves(found.order) else found.source
                    op.results[0].replace_all_uses_with(value.value)
                    if _moves(found.order):
                        self.turned[value.value] = found
            finally:
                self.builder.pinned = None

    def first(self, op: ir.Operation) -> Turned:
        """What the first operand is, which is turned, or stands in its order."""
        value = op.operands[0]
        return self.turned.get(value) or Turned(tensor(value), tuple(range(len(spec(value).shape))))

    def as_source(self, value: Value, like: Turned) -> Tensor:
        """A value in the order in which the source of another stands."""
        known = self.turned.get(value)
        if known is not None and known.order == like.order:
            return known.source
        number, shape = splat_number(value), tuple(spec(value).shape[axis] for axis in like.back)
        if number is not None:
            return filled(TensorSpec(shape, spec(value).dtype), number)
        wide = defined_by(value, "broadcast_in_dim")
        if wide is None:
            return transpose(tensor(value), like.back)
        places = [like.order[place] for place in numbers(wide, "broadcast_dimensions")]
        order = sorted(range(len(places)), key=places.__getitem__)
        return broadcast_in_dim(
            _in_order(tensor(wide.operands[0]), order), shape, tuple(places[axis] for axis in order)
        )


def _moves(order: Sequence[int]) -> bool:
    return list(order) != sorted(order)


def _in_order(x: Tensor, order: Sequence[int]) -> Tensor:
    """A transpose, as a reshape where only axes of size 1 move."""
    if not _moves(order):
        return x
    wide = [axis for axis in order if x.shape[axis] != 1]
    return transpose(x, tuple(order)) if _moves(wide) else reshape(x, tuple(x.shape[axis] for axis in order))


def _again(
    op: ir.Operation,
    operands: Sequence[Tensor],
    shape: Sequence[int],
    changed: Mapping[str, Any] | None = None,
) -> Tensor:
    """The same operation on other operands, with a result of another shape."""
    builder = current_builder()
    results = [TensorSpec(tuple(shape), spec(op.results[0]).dtype)]
    attributes = dict(op.attributes.items()) | dict(changed or {})
    new = builder.emit(op.name, [x.value for x in operands], results, attributes, regions=len(op.regions))
    if len(op.regions):
        shell = op.clone(ip=builder.insertion)
        for index in range(len(op.regions)):
            shell.regions[index].blocks[0].append_to(new.regions[index])
        shell.erase()
    return Tensor(new.results[0], builder)


def _convolution(op: ir.Operation, sinking: _Sinking) -> Turned | None:
    conv, shape = Convolution.read(op), spec(op.results[0]).shape
    axes = tuple(range(len(shape)))
    if len(axes) < 3 or conv.layout.x != axes or conv.layout.result != axes or is_turned(op):
        return None
    order = (0, axes[-1], *axes[1:-1])
    x = sinking.as_source(op.operands[0], Turned(tensor(op.results[0]), order))
    kernel, (outputs, inputs, *window) = tensor(op.operands[1]), conv.layout.kernel
    of_kernel = conv.layout.kernel
    if any(
        kernel.shape[axis] > 1 for axis in window
    ):  # neighbours in a patch are neighbours in a window, too
        kernel = _kernel(kernel, (*window, inputs, outputs))
        of_kernel = (axes[-1], axes[-2], *axes[:-2])
    last = replace(conv, layout=Layout(order, of_kernel, order))
    wanted = [shape[0], *shape[2:], shape[1]]
    named = {"dimension_numbers": last.layout.attribute()}
    return Turned(_again(op, (x, kernel), wanted, named), order)


def _kernel(kernel: Tensor, order: Order) -> Tensor:
    """A kernel in another order; one that is turned around is turned last: so XLA finds the backward convolution of cuDNN."""
    turned = defined_by(kernel.value, "reverse")
    if turned is None:
        return transpose(kernel, order)
    along = [order.index(axis) for axis in numbers(turned, "dimensions")]
    return reverse(transpose(tensor(turned.operands[0]), order), along)


def _elementwise(op: ir.Operation, sinking: _Sinking) -> Turned | None:
    shape = spec(op.results[0]).shape
    if len(op.results) != 1:
        return None
    like = next(sinking.turned[value] for value in op.operands if value in sinking.turned)
    operands = [
        sinking.as_source(value, like) if spec(value).shape == shape else tensor(value)
        for value in op.operands
    ]  # the bounds of a clamp and the condition of a selection may be one number
    return Turned(_again(op, operands, [shape[axis] for axis in like.back]), like.order)


def _transpose(op: ir.Operation, sinking: _Sinking) -> Turned:
    x = sinking.first(op)
    return Turned(x.source, tuple(x.order[axis] for axis in numbers(op, "permutation")))


def _broadcast(op: ir.Operation, sinking: _Sinking) -> Turned:
    """As wide as what it is of, in the order of that; else what it is of stands in order again."""
    x, places, shape = sinking.first(op), numbers(op, "broadcast_dimensions"), spec(op.results[0]).shape
    if len(places) == len(shape):
        wide = broadcast_in_dim(x.source, tuple(shape[axis] for axis in x.back), tuple(range(len(shape))))
        return Turned(wide, x.order)
    of_source = [places[axis] for axis in x.back]
    order = sorted(range(len(of_source)), key=of_source.__getitem__)
    source = _in_order(x.source, order)
    return Turned(broadcast_in_dim(source, shape, tuple(sorted(of_source))), tuple(range(len(shape))))


def _reduce(op: ir.Operation, sinking: _Sinking) -> Turned | None:
    if len(op.results) != 1:
        return None
    x, along = sinking.first(op), numbers(op, "dimensions")
    reduced = sorted(x.order[axis] for axis in along)
    kept = [axis for axis in x.order if axis not in reduced]
    remaining = sorted(kept)
    shape = [x.source.shape[axis] for axis in remaining]
    y = _again(op, (x.source, tensor(op.operands[1])), shape, {"dimensions": tuple(reduced)})
    return Turned(y, tuple(remaining.index(axis) for axis in kept))


def _windows(op: ir.Operation, sinking: _Sinking) -> Turned | None:
    if len(op.results) != 1 or op.operands[0] not in sinking.turned:
        return None
    x, shape = sinking.first(op), spec(op.results[0]).shape
    padding = pairs_of(op, len(shape))
    changed: dict[str, Any] = {"padding": pairs_attribute([padding[axis] for axis in x.back])}
    for name in ("window_dimensions", "window_strides", "base_dilations", "window_dilations"):
        if name in op.attributes:
            changed[name] = tuple(numbers(op, name)[axis] for axis in x.back)
    y = _again(op, (x.source, tensor(op.operands[1])), [shape[axis] for axis in x.back], changed)
    return Turned(y, x.order)


def _by_axis(*names: str) -> Callable[[ir.Operation, _Sinking], Turned | None]:
    """An operation whose attributes have a number for each axis."""

    def rule(op: ir.Operation, sinking: _Sinking) -> Turned | None:
        if op.operands[0] not in sinking.turned:
            return None
        x, shape = sinking.first(op), spec(op.results[0]).shape
        changed = {name: tuple(numbers(op, name)[axis] for axis in x.back) for name in names}
        operands = (x.source, *(tensor(value) for value in list(op.operands)[1:]))
        return Turned(_again(op, operands, [shape[axis] for axis in x.back], changed), x.order)

    return rule


def _concatenate(op: ir.Operation, sinking: _Sinking) -> Turned:
    like, shape = (
        next(sinking.turned[value] for value in op.operands if value in sinking.turned),
        spec(op.results[0]).shape,
    )
    axis = like.order[ir.IntegerAttr(op.attributes["dimension"]).value]
    parts = [sinking.as_source(value, like) for value in op.operands]
    return Turned(_again(op, parts, [shape[axis] for axis in like.back], {"dimension": axis}), like.order)


def _reshape(op: ir.Operation, sinking: _Sinking) -> Turned | None:
    """Axes that are joined or cut stand side by side in the source, too; those of size 1 come and go."""
    x, new = sinking.first(op), spec(op.results[0]).shape
    groups = _groups(spec(op.operands[0]).shape, new)
    of_source: list[tuple[int, list[int]]] = []
    for before, after in groups:
        places = [x.order[axis] for axis in before if x.source.shape[x.order[axis]] != 1]
        steps = [
            axis
            for axis in range(min(places, default=0), max(places, default=-1) + 1)
            if x.source.shape[axis] != 1
        ]
        if places != steps:
            return None
        of_source.append((places[0] if places else -1, list(after)))
    stands = [axis for _, after in sorted(of_source) for axis in after]
    y = reshape(x.source, tuple(new[axis] for axis in stands))
    return Turned(y, tuple(stands.index(axis) for axis in range(len(new))))


def _groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """The axes that a reshape of values makes one another, as few as can be at a time: those before, and those after."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        start, begin, left, right = i, j, 1, 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(new) and (left != 1 or start == len(old)):
            right, j = new[j], j + 1
        while left != right:
            if left < right:
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
        groups.append((list(range(start, i)), list(range(begin, j))))
    return groups


def _product(op: ir.Operation, sinking: _Sinking) -> Turned | None:
    """The axes of a turned operand are others of its source; what is not summed over must stand in one order."""
    dot, operands, contract, batch = DotAxes.of(op), [], [], []
    for side, value in enumerate(op.operands):
        known = sinking.turned.get(value)
        order = tuple(range(len(spec(value).shape))) if known is None else known.order
        if _moves([order[axis] for axis in dot.free(side, len(order))]):
            return None
        operands.append(tensor(value) if known is None else known.source)
        contract.append(tuple(order[axis] for axis in dot.contract[side]))
        batch.append(tuple(order[axis] for axis in dot.batch[side]))
    axes = DotAxes((contract[0], contract[1]), (batch[0], batch[1]))
    y = product_like(axes, operands[0], operands[1], op)
    return Turned(y, tuple(range(y.ndim)))


_RULES: dict[str, Callable[[ir.Operation, _Sinking], Turned | None]] = {
    "convolution": _convolution,
    "transpose": _transpose,
    "broadcast_in_dim": _broadcast,
    "reduce": _reduce,
    "reduce_window": _windows,
    "pad": _by_axis("edge_padding_low", "edge_padding_high", "interior_padding"),
    "slice": _by_axis("start_indices", "limit_indices", "strides"),
    "concatenate": _concatenate,
    "reshape": _reshape,
    "dot_general": _product,
}
