"""Sorting: by NumPy where elements are compared by a number that is made of each, else in a network of any comparison."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.bits import total_order
from pcp.backends.arena.lowerings.elementwise import BLOCK, blocks_of, in_blocks
from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import comparison_direction, integer_of
from pcp.ir.toolkit.dataflow import result_owner
from pcp.ir.toolkit.regions import returned_by

Array = np.ndarray[Any, Any]


def _sort(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    rank = len(operands[0].shape)
    axis = integer_of(op.attributes["dimension"]) if "dimension" in op.attributes else -1
    axis += rank if axis < 0 else 0
    block = op.regions[0].blocks[0]
    key = key_of(block)
    if not operands[0].size or operands[0].shape[axis] < 2:
        outs = [r.result(op, index) for index in range(len(operands))]
        for x, out in zip(operands, outs, strict=True):
            r.copy(x, out)
        return outs
    if (
        key is not None
        and key[0] == block.arguments[0]
        and len(operands) == 1
        and operands[0].dtype.kind in "iub"
    ):
        out = r.result(op, reuse=operands)
        r.copy(operands[0], out)
        r.emit(_ordered, axis, key[1], out)
        return [out]
    outs = [r.result(op, index) for index in range(len(operands))]
    last = [*(a for a in range(rank) if a != axis), axis]
    if key is not None:
        _by_keys(r, block, key, operands, outs, last)
    else:
        _by_network(r, block, operands, outs, [axis, *last[:-1]])
    return outs


def key_of(block: ir.Block) -> tuple[Value, bool] | None:
    """What is made of the first of two elements to compare them by; and whether the larger comes first.

    None if the two are not treated alike, or compared by more than one number.
    """
    (result,) = returned_by(block)
    if isinstance(result.owner, ir.Block) or result.owner.name != "stablehlo.compare":
        return None
    direction = comparison_direction(result.owner.operation)
    one, other = result.owner.operation.operands
    pairs: dict[Value, Value] = dict(
        zip(list(block.arguments)[::2], list(block.arguments)[1::2], strict=True)
    )
    for first, second, less in ((one, other, "LT"), (other, one, "GT")):
        if direction in ("LT", "GT") and _is_alike(first, second, pairs):
            return first, direction != less
    return None


def _is_alike(first: Value, second: Value, pairs: dict[Value, Value]) -> bool:
    """Whether a value is made of some arguments as another is of those that belong to them."""
    if isinstance(first.owner, ir.Block) or isinstance(second.owner, ir.Block):
        return first in pairs and pairs[first] == second
    one, other = first.owner.operation, second.owner.operation
    return (
        one.name == other.name
        and not len(one.regions)
        and one.attributes == other.attributes
        and [r.type for r in one.results] == [r.type for r in other.results]
        and len(one.operands) == len(other.operands)
        and all(_is_alike(a, b, pairs) for a, b in zip(one.operands, other.operands, strict=True))
    )


def _ordered(axis: int, descending: bool, out: Array) -> None:
    """In place: what is less in its inverted bits is larger."""
    if descending:
        np.invert(out, out)
    out.sort(axis)
    if descending:
        np.invert(out, out)


def _by_keys(
    r: Recorder,
    block: ir.Block,
    key: tuple[Value, bool],
    operands: list[View],
    outs: list[View],
    axes: list[int],
) -> None:
    """A row, or some short ones, in the order of whole numbers: NumPy's order has 8 bytes for each, and 4 while it is made."""
    value, descending = key
    twice = [x for x in operands for _ in range(2)]  # both elements of a pair; nothing is made of the second
    (keyed,) = r.body(block, twice, [value])
    keyed = keyed.broadcast(operands[0].shape)
    kind = "u" if keyed.dtype.kind in "ub" else "i"
    keys = r.new([operands[0].shape[a] for a in axes], np.dtype(f"{kind}{keyed.dtype.itemsize}"))
    is_total = "TOTALORDER" in str(result_owner(returned_by(block)[0]).attributes.get("compare_type", ""))
    r.emit(in_blocks(_keys(is_total, descending), keys.size), keyed.transposed(axes), keys)
    *rest, n = keys.shape
    together = min(max(1, BLOCK // n), math.prod(rest)) * n
    moved = [x.transposed(axes) for x in (*operands, *outs)]
    direct = n > BLOCK and all(x.strides[-1] == x.dtype.itemsize for x in moved)
    most = 4 if direct else max(4, *(x.dtype.itemsize for x in operands))
    r.emit(_in_order_of_keys, direct, keys, *moved, writes=range(-len(outs), 0), beside=together * (8 + most))


def _keys(is_total: bool, descending: bool) -> Any:
    """Whole numbers in the order of others; without a total order zeros of either sign are equal."""

    def compute(x: Array, out: Array) -> None:
        if x.dtype.kind == "b":
            x = x.view(np.uint8)
        elif x.dtype.kind not in "iu" and not is_total:
            x = x + x.dtype.type(0)
        keys = total_order(x)
        np.copyto(out, ~keys if descending else keys)

    return compute


def _in_order_of_keys(direct: bool, keys: Array, *arrays: Array) -> None:
    half = len(arrays) // 2
    *rest, n = keys.shape
    for place in np.ndindex(*rest) if direct else blocks_of(rest, max(1, BLOCK // n)):
        order = np.argsort(keys[place], -1, kind="stable")
        for x, out in zip(arrays[:half], arrays[half:], strict=True):
            if direct:
                x[place].take(order, 0, out[place], "clip")
            else:
                np.copyto(out[place], np.take_along_axis(x[place], order, -1))


def _by_network(
    r: Recorder, block: ir.Block, operands: list[View], outs: list[View], axes: list[int]
) -> None:
    """The body compares up to half of all elements with as many others, in each round; equal ones keep their order."""
    columns = [r.new([x.shape[a] for a in axes], x.dtype) for x in operands]
    for x, column in zip(operands, columns, strict=True):
        r.copy(x.transposed(axes), column)
    columns.append(r.new(columns[0].shape, np.dtype(np.int32)))  # where an element was
    shape = (columns[0].shape[0] // 2, *columns[0].shape[1:])
    left, right = ([r.new(shape, x.dtype) for x in columns] for _ in range(2))
    less, more, later = (r.new(shape, np.dtype(bool)) for _ in range(3))
    arrays = (*columns, *left, *right, less, more, later)
    r.emit(
        _number, *arrays[len(operands) :], writes=range(len(arrays) - len(operands))
    )  # all live from here on
    pairs = list(zip(left[:-1], right[:-1], strict=True))
    with r.looping():
        with r.apart() as steps:
            for answer, compared in (
                (less, [x for a, b in pairs for x in (a, b)]),
                (more, [x for a, b in pairs for x in (b, a)]),
            ):
                (is_first,) = r.body(block, compared)
                r.copy(is_first.broadcast(shape), answer)
        r.emit(_in_rounds, steps, *arrays, writes=range(1, 1 + len(arrays)))
    for column, out in zip(columns, outs, strict=False):
        r.copy(column, out.transposed(axes))


def _number(order: Array, *others: Array) -> None:
    del others
    np.copyto(order, np.arange(len(order), dtype=np.int32).reshape(-1, *[1] * (order.ndim - 1)))


def _in_rounds(steps: Any, *arrays: Array) -> None:
    third = len(arrays) // 3 - 1
    columns, left, right = (arrays[i : i + third] for i in range(0, 3 * third, third))
    less, more, later = arrays[3 * third :]
    for period, first, distance in network(len(columns[0])):
        runs = [_Runs(x, period, first, distance) for x in columns]
        for each, a, b in zip(runs, left, right, strict=True):
            each.read(a, b)
        for function, arguments in steps:
            function(*arguments)
        # They change places unless the first is less, or neither is and it was before the other.
        np.greater(left[-1], right[-1], later)
        np.logical_or(later, more, later)
        np.greater(later, less, later)
        for each, a, b in zip(runs, left, right, strict=True):
            each.exchange(a, b, later)


class _Runs:
    """The rows of an array that a round compares: half of each period from `first` on, with those at a distance behind it."""

    def __init__(self, x: Array, period: int, first: int, distance: int) -> None:
        half, rest = period // 2, x.shape[1:]
        whole, left = divmod(len(x) - distance - first, period)
        end = first + whole * period
        self.pieces: list[tuple[slice, Array, Array]] = []
        if whole:
            low, high = (
                x[at : at + whole * period].reshape(whole, period, *rest)[:, :half]
                for at in (first, first + distance)
            )
            self.pieces.append((slice(0, whole * half), low, high))
        if count := min(left, half):
            low, high = (x[at : at + count] for at in (end, end + distance))
            self.pieces.append((slice(whole * half, whole * half + count), low, high))

    def read(self, left: Array, right: Array) -> None:
        for place, low, high in self.pieces:
            np.copyto(left[place].reshape(low.shape), low)
            np.copyto(right[place].reshape(low.shape), high)

    def exchange(self, left: Array, right: Array, where: Array) -> None:
        for place, low, high in self.pieces:
            chosen = where[place].reshape(low.shape)
            np.copyto(low, right[place].reshape(low.shape), where=chosen)
            np.copyto(high, left[place].reshape(low.shape), where=chosen)


def network(n: int) -> Iterator[tuple[int, int, int]]:
    """The rounds of Batcher's merge exchange for any number of entries: period, first and distance of those compared.

    Source: Knuth, volume 3, 5.2.2, algorithm M. Compared are i and i + distance for i from `first` on, of each period the
    first half.
    """
    top = 1
    while top < n:
        top *= 2
    p = top // 2
    while p > 0:
        q, rest, distance = top // 2, 0, p
        while True:
            if n - distance > rest:
                yield 2 * p, rest, distance
            if q == p:
                break
            distance, q, rest = q - p, q // 2, p
        p //= 2


LOWERINGS: dict[str, Lowering] = {"sort": _sort}
