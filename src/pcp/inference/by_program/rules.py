"""What becomes of places in operations that are not computed element by element: a rule by the operation's name."""

from collections.abc import Sequence

from pcp.inference.by_program.axes import MOVES, Product, index_axes, looked_up_axes, moved, refused, shape_of
from pcp.inference.by_program.chunking import Chunking, Places, Rule
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import dimension_numbers, integer_of, integers_of
from pcp.ir.toolkit.dataflow import result_owner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.movement import reshape


def _moves(walk: Chunking, op: ir.Operation) -> None:
    value = op.operands[0]
    own, others = walk.places[value]
    places = Places(moved(op, own), None if others is None else moved(op, others))
    if shape_of(op.results[0])[places.own] != shape_of(value)[own]:
        raise refused(op, "cuts places")
    walk.emit(op, [walk.known[value]], places)


def _slice(walk: Chunking, op: ir.Operation) -> None:
    places = walk.places[op.operands[0]]
    starts, limits, strides = (
        integers_of(op.attributes[f"{name}s" if name == "stride" else f"{name}_indices"])
        for name in ("start", "limit", "stride")
    )
    if _is_last(walk, op, [starts[places.own]], limits[places.own] - starts[places.own]):
        _keep_all(walk, op, places)
        return
    for axis in places:
        if axis is not None and (starts[axis], limits[axis], strides[axis]) != (
            0,
            shape_of(op.operands[0])[axis],
            1,
        ):
            raise refused(op, "takes some of the places")
    walk.emit(op, [walk.known[op.operands[0]]], places)
    _resize(walk, op, "limit_indices", limits, places.own)


def _concatenate(walk: Chunking, op: ir.Operation) -> None:
    places = walk.common(op, list(op.operands))
    if integer_of(op.attributes["dimension"]) in places:
        raise refused(op, "puts places behind others")
    walk.emit_joined(op, places)


def _pad(walk: Chunking, op: ir.Operation) -> None:
    places = walk.places[op.operands[0]]
    for name in ("edge_padding_low", "edge_padding_high", "interior_padding"):
        sizes = integers_of(op.attributes[name])
        if any(axis is not None and sizes[axis] for axis in places):
            raise refused(op, "shifts places")
    walk.emit(op, [walk.known[value] for value in op.operands], places)


def _reduce(walk: Chunking, op: ir.Operation) -> None:
    count = len(op.operands) // 2
    values = list(op.operands)[:count]
    places = walk.common(op, values)
    axes = integers_of(op.attributes["dimensions"])
    if places.own in axes:
        raise refused(op, "sums over the places of the tokens themselves")

    def left(axis: int) -> int:
        return axis - sum(each < axis for each in axes)

    gone = places.others is None or places.others in axes
    after = Places(left(places.own), None if gone else left(int(places.others or 0)))
    operands = [walk.operand(value, places) for value in values]
    walk.emit(op, [*operands, *(walk.known[value] for value in list(op.operands)[count:])], after)


def _gather(walk: Chunking, op: ir.Operation) -> None:
    table, indices = op.operands
    numbers = dimension_numbers(str(op.attributes["dimension_numbers"]))
    if table in walk.places:
        _picked(walk, op, numbers)
        return
    own, others = walk.places[indices]
    batch = looked_up_axes(op)
    inner = index_axes(op)
    places = Places(batch[inner.index(own)], None if others is None else batch[inner.index(others)])
    walk.emit(op, [walk.known[table], walk.known[indices]], places)


def _picked(walk: Chunking, op: ir.Operation, numbers: dict[str, tuple[int, ...]]) -> None:
    """Features are picked, by numbers that depend on no token."""
    table, indices = op.operands
    own, others = walk.places[table]
    if numbers.get("start_index_map") == (own,) and spec_of(indices.type).size == 1:
        _keep_all(walk, op, walk.places[table])  # the last place, which is the last of every chunk
        return
    gone = (*numbers.get("collapsed_slice_dims", ()), *numbers.get("start_index_map", ()))
    if indices in walk.places or others is not None or own in gone or "operand_batching_dims" in numbers:
        raise refused(op, "looks up what depends on tokens")
    left = [
        axis for axis in range(len(shape_of(table))) if axis not in numbers.get("collapsed_slice_dims", ())
    ]
    places = Places(numbers["offset_dims"][left.index(own)])
    walk.emit(op, [walk.known[table], walk.known[indices]], places)
    sizes = integers_of(op.attributes["slice_sizes"])
    _resize(walk, op, "slice_sizes", sizes, own)


def _keep_all(walk: Chunking, op: ir.Operation, places: Places) -> None:
    """Take all places of the chunk where a program takes the last place of a text, which each is once."""
    if places.others is not None:
        raise refused(op, "takes some of the places")
    value, made = op.operands[0], spec_of(op.results[0].type)
    own = next((axis for axis, size in enumerate(made.shape) if size == 1 and axis >= places.own), None)
    if own is None or made.size * shape_of(value)[places.own] != spec_of(value.type).size:
        raise refused(op, "takes some of the places")
    shape = walk.spec_cut(made, own).shape
    walk.known[op.results[0]] = reshape(walk.tensor(walk.known[value]), shape).value
    walk.places[op.results[0]] = Places(own)


def _is_last(walk: Chunking, op: ir.Operation, starts: Sequence[int], count: int) -> bool:
    own = walk.places[op.operands[0]].own
    return count == 1 and starts[0] == walk.length - 1 and shape_of(op.operands[0])[own] == walk.length


def _resize(walk: Chunking, op: ir.Operation, name: str, sizes: Sequence[int], axis: int) -> None:
    """Cut what an attribute of an operation's copy says of an axis."""
    copy = result_owner(walk.known[op.results[0]])
    copy.attributes[name] = ir.DenseI64ArrayAttr.get((*sizes[:axis], walk.chunk, *sizes[axis + 1 :]))


def _sort(walk: Chunking, op: ir.Operation) -> None:
    places = walk.common(op, list(op.operands))
    if integer_of(op.attributes["dimension"]) in places:
        raise refused(op, "sorts places")
    walk.emit_joined(op, places)


def _product(walk: Chunking, op: ir.Operation) -> None:
    values, sides = list(op.operands), [walk.places.get(value) for value in op.operands]
    asking = _asking(op, sides, walk.queries)
    product = Product(DotAxes.of(op), [len(shape_of(value)) for value in values])
    mine, theirs = sides[asking], sides[1 - asking]
    assert mine is not None
    operands = list(values)
    operands[asking] = walk.known[values[asking]]
    beside = product.beside(asking, mine.own)
    if product.sums(asking, mine.own):
        raise refused(op, "sums over the places of the tokens themselves")
    if beside is None:
        operands[1 - asking] = walk.whole(values[1 - asking])
    elif theirs is None:
        operands[1 - asking] = walk.at_chunk(values[1 - asking], beside)
    elif theirs.own == beside:
        operands[1 - asking] = walk.known[values[1 - asking]]
    else:
        raise refused(op, "mixes places")
    others = mine.others
    if others is not None:
        looked_at = product.summed_with(asking, others)
        if theirs is not None and beside is None and theirs.own != looked_at:
            raise refused(op, "mixes places")
        others = None if looked_at is not None else product.result(asking, others)
    elif theirs is not None and beside is None:
        if product.sums(1 - asking, theirs.own) or product.beside(1 - asking, theirs.own) is not None:
            raise refused(op, "sums over places that no mask can leave out")
        others = product.result(1 - asking, theirs.own)
    walk.emit(op, operands, Places(product.result(asking, mine.own), others))


def _asking(op: ir.Operation, sides: Sequence[Places | None], queries: int) -> int:
    """The operand of a product that is the chunk's: shares before values, queries, which stand on one side, before keys."""
    left, right = sides
    if left is None or right is None:
        return 0 if right is None else 1
    if left.others is not None and right.others is not None:
        raise refused(op, "mixes places")
    return queries if left.others is right.others else int(right.others is not None)


RULES: dict[str, Rule] = {
    **dict.fromkeys(MOVES, _moves),
    "stablehlo.slice": _slice,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.pad": _pad,
    "stablehlo.reduce": _reduce,
    "stablehlo.gather": _gather,
    "stablehlo.sort": _sort,
    "stablehlo.dot_general": _product,
}
