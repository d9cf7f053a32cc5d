"""Scan: a loop along the first axis of tensors that stacks what its body returns."""

from collections.abc import Callable, Sequence
from typing import Any

from pcp.ir import DType, TensorSpec, Tree
from pcp.ir.bindings import ir
from pcp.ir.toolkit.tensor_types import mlir_type
from pcp.ir.tree import flatten
from pcp.ops.control.loops import Carry, CarryMismatch, LoopCarry, end_block
from pcp.ops.elementwise import equal, less, where
from pcp.ops.indexing.blocks import row_at, with_row
from pcp.ops.movement import iota, moveaxis, zeros
from pcp.ops.reductions.cumulative import ONE_AFTER_ANOTHER
from pcp.tensor import ShapeMismatch, Tensor, as_tensor, current_builder, export_operations, operation


@operation
def scan(
    body: Callable[[Any, Any], tuple[Any, Any]],
    carry: Carry,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Carry, Any]:
    """Apply `carry, y = body(carry, x)` to the slices of `xs` along their first axis, one after another, and stack every y.

    Arguments:
        body: from the carry and one slice of `xs`, nested like them, to a pair: the next carry and y, a nested container.
        carry: the first carry, a nested container.
        xs: a nested container of Tensors whose first axes are of one size, or None: then x is None.
        length: how many trips; needed where `xs` is None.
        reverse: whether to begin with the last slice; y stands at the place of its x.

    Returns:
        The last carry, and the y's stacked along a new first axis.

    Raises:
        CarryMismatch: the body returns another nesting, shape or element type; the message names the leaf.
        ShapeMismatch: the first axes of `xs` differ in size or from `length`, or there is neither.
    """
    state = LoopCarry("scan", carry)
    leaves, tree = flatten(xs)
    rows = [as_tensor(leaf) for leaf in leaves]
    trips = _trips(rows, tree, length)
    loop = _Scan(body, state, rows, tree, trips, reverse)
    results = state.built(loop.build)
    if not trips:
        return state.tree.unflatten(state.tensors), loop.stacked([])
    count = len(state.tensors)
    return state.nested(results[1 : 1 + count], current_builder()), loop.stacked(results[1 + count :])


def _trips(rows: Sequence[Tensor], tree: Tree, length: int | None) -> int:
    sizes = {} if length is None else {"length": int(length)}
    for name, row in zip(tree.names("xs"), rows, strict=True):
        if not row.shape:
            raise ShapeMismatch(f"scan: {name} is a scalar; expected an axis to go along")
        sizes[name] = row.shape[0]
    if not sizes:
        raise ShapeMismatch("scan: neither xs nor length was given; give one, for the number of trips")
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise ShapeMismatch(f"scan: the first axes differ in size: {shown}")
    return sizes.popitem()[1]


class _Scan:
    """A scan as a while loop: it counts up from 0, reads its slice of every x and writes its row of every stack of y."""

    def __init__(
        self,
        body: Callable[[Any, Any], tuple[Any, Any]],
        carry: LoopCarry,
        rows: Sequence[Tensor],
        tree: Tree,
        trips: int,
        reverse: bool,
    ) -> None:
        self.body = body
        self.carry = carry
        self.rows = rows
        self.tree = tree
        self.trips = trips
        self.reverse = reverse
        self.y_tree = tree
        self.y_specs: list[TensorSpec] = []

    def stacked(self, values: Sequence[ir.Value[Any]]) -> Any:
        """The stacks of y, nested like one y."""
        if not self.trips:
            return self.y_tree.unflatten(zeros((0, *spec.shape), spec.dtype) for spec in self.y_specs)
        return self.y_tree.unflatten(Tensor(value, current_builder()) for value in values)

    def build(self) -> Sequence[ir.Value[Any]]:
        """Emit the loop and return its results: counter, carry, stacks.

        The stacks have types that are known only when the body has been traced, so the body is built in a shell first.
        """
        builder = current_builder()
        shell = builder.emit("stablehlo.while", [], [], regions=2)
        try:
            with builder.region(shell, 1, [TensorSpec((), DType.i32), *self.carry.specs]) as values:
                block = shell.regions[1].blocks[0]
                following, ys = self._trip(Tensor(values[0], builder), values[1:])
                if self.trips:
                    stacks = [
                        Tensor(block.add_argument(mlir_type(self._stack(y)), builder.location), builder)
                        for y in ys
                    ]
                    self._store(Tensor(values[0], builder), following, ys, stacks)
            if not self.trips:
                return []
            return self._loop(block)
        finally:
            shell.erase()

    def _trip(self, trip: Tensor, values: Sequence[ir.Value[Any]]) -> tuple[list[Tensor], list[Tensor]]:
        place = self._place(trip)
        slices = [self._row(row, place) for row in self.rows]
        returned = self.body(self.carry.nested(values, current_builder()), self.tree.unflatten(slices))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise CarryMismatch(
                f"scan: the body returned {type(returned).__name__}; expected a pair, the next carry and y"
            )
        following = self.carry.following(returned[0])
        leaves, self.y_tree = flatten(returned[1])
        ys = [as_tensor(leaf) for leaf in leaves]
        self.y_specs = [y.spec for y in ys]
        return following, ys

    def _place(self, trip: Tensor) -> Tensor:
        return (self.trips - 1) - trip if self.reverse else trip

    def _row(self, rows: Tensor, place: Tensor) -> Tensor:
        if not self.trips:
            return zeros(rows.shape[1:], rows.dtype)
        return row_at(rows, place)

    def _stack(self, y: Tensor) -> TensorSpec:
        return TensorSpec((self.trips, *y.shape), y.dtype)

    def _store(
        self, trip: Tensor, following: Sequence[Tensor], ys: Sequence[Tensor], stacks: Sequence[Tensor]
    ) -> None:
        place = self._place(trip)
        stored = [with_row(stack, place, y) for stack, y in zip(stacks, ys, strict=True)]
        end_block([t.value for t in (trip + 1, *following, *stored)])

    def _loop(self, body: ir.Block) -> Sequence[ir.Value[Any]]:
        builder = current_builder()
        empty = [zeros((self.trips, *spec.shape), spec.dtype) for spec in self.y_specs]
        first = [as_tensor(0, DType.i32), *self.carry.tensors, *empty]
        specs = [t.spec for t in first]
        op = builder.emit("stablehlo.while", [t.value for t in first], specs, regions=2)
        with builder.region(op, 0, specs) as (trip, *_):
            end_block([less(Tensor(trip, builder), self.trips).value])
        body.append_to(op.regions[1])
        return list(op.results)


def _cumulative(combine: Callable[[Tensor, Tensor], Tensor], x: Tensor, axis: int) -> Tensor:
    """What `associative_scan` makes, by a loop."""
    rows = moveaxis(x, axis, 0)

    def step(before: Tensor, entry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        place, row = entry
        total = where(equal(place, 0), row, combine(before, row))
        return total, total

    _, totals = scan(step, zeros(rows.shape[1:], x.dtype), (iota(rows.shape[:1], 0), rows))
    return moveaxis(totals, 0, axis)


ONE_AFTER_ANOTHER.append(_cumulative)

export_operations(__name__)
