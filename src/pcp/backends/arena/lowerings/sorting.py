"""Sorting by any comparison, in a network of comparisons that stands in the plan."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import comparison_direction, integer_of
from pcp.ir.toolkit.regions import block_operations, returned_by

Array = np.ndarray[Any, Any]


def _sort(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    axis = integer_of(op.attributes["dimension"]) if "dimension" in op.attributes else -1
    rank = len(operands[0].shape)
    axis += rank if axis < 0 else 0
    block = op.regions[0].blocks[0]
    outs = [r.result(op, index) for index in range(len(operands))]
    if not outs[0].size:
        return outs
    direction = _plain(block, operands)
    if direction is not None:
        r.emit(_by_numpy(axis, direction), *operands, *outs, writes=range(len(outs), 2 * len(outs)))
        return outs
    n = operands[0].shape[axis]
    axes = [axis, *(a for a in range(rank) if a != axis)]
    columns = [r.new(tuple(x.shape[a] for a in axes), x.dtype) for x in operands]
    for x, column in zip(operands, columns, strict=True):
        r.copy(x.transposed(axes), column)
    order = r.new(columns[0].shape, np.dtype(np.int32))  # equal entries keep their order
    r.emit(_number, order)
    for low, high in network(n):
        shape = (len(low), *columns[0].shape[1:])
        left = [r.new(shape, x.dtype) for x in (*columns, order)]
        right = [r.new(shape, x.dtype) for x in (*columns, order)]
        for x, a, b in zip((*columns, order), left, right, strict=True):
            r.emit(_pick, x, low, high, a, b, writes=(3, 4))
        pairs = list(zip(left[:-1], right[:-1], strict=True))
        (less,) = r.body(block, [x for a, b in pairs for x in (a, b)])
        less = r.owned(less.broadcast(shape), [*left, *right])
        (more,) = r.body(block, [x for a, b in pairs for x in (b, a)])
        r.emit(_keeps, less, more.broadcast(shape), left[-1], right[-1], writes=(0,))
        for x, a, b in zip((*columns, order), left, right, strict=True):
            r.emit(_exchange, x, low, high, a, b, less, writes=(0,))
    for column, out in zip(columns, outs, strict=True):
        r.copy(column, out.transposed(axes))
    return outs


def network(n: int) -> Iterator[tuple[Array, Array]]:
    """The rounds of Batcher's merge exchange for any number of entries (Knuth, volume 3, 5.2.2, algorithm M)."""
    top = 1
    while top < n:
        top *= 2
    p = top // 2
    while p > 0:
        q, rest, distance = top // 2, 0, p
        while True:
            low = np.array([i for i in range(n - distance) if i & p == rest], np.intp)
            if low.size:
                yield low, low + distance
            if q == p:
                break
            distance, q, rest = q - p, q // 2, p
        p //= 2


def _plain(block: ir.Block, operands: Sequence[View]) -> str | None:
    """The direction of a comparison of the first operand alone, where NumPy's order is the same."""
    operations = block_operations(block)
    if (
        len(operations) != 1
        or operands[0].dtype.kind not in "iub"
        or operations[0].name != "stablehlo.compare"
    ):
        return None
    compare = operations[0]
    first = list(block.arguments)[:2]
    direction = comparison_direction(compare)
    if list(compare.operands) != first or returned_by(block) != [compare.results[0]]:
        return None
    return direction if direction == "LT" or (direction == "GT" and len(operands) == 1) else None


def _by_numpy(axis: int, direction: str) -> Any:
    def compute(*arrays: Array) -> None:
        half = len(arrays) // 2
        operands, outs = arrays[:half], arrays[half:]
        if half == 1:
            ordered = np.sort(operands[0], axis)
            np.copyto(outs[0], ordered if direction == "LT" else np.flip(ordered, axis))
            return
        order = np.argsort(operands[0], axis, kind="stable")
        for x, out in zip(operands, outs, strict=True):
            np.copyto(out, np.take_along_axis(x, order, axis))

    return compute


def _number(out: Array) -> None:
    np.copyto(out, np.arange(len(out)).reshape(-1, *[1] * (out.ndim - 1)))


def _pick(x: Array, low: Array, high: Array, left: Array, right: Array) -> None:
    x.take(low, 0, left, "clip")
    x.take(high, 0, right, "clip")


def _keeps(less: Array, more: Array, left: Array, right: Array) -> None:
    """Where the first of a pair stays in front: it is less, or neither is and it was."""
    np.logical_or(less, ~more & (left < right), less)


def _exchange(x: Array, low: Array, high: Array, left: Array, right: Array, keeps: Array) -> None:
    x[low] = np.where(keeps, left, right)
    x[high] = np.where(keeps, right, left)


LOWERINGS: dict[str, Lowering] = {"sort": _sort}
