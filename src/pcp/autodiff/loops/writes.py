"""Carries that a loop only writes to, each place once: the stacked results of a scan."""

from typing import Any

import numpy as np

from pcp.autodiff.loops.trips import known_integer, steps_of
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import comparison_direction
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.regions import returned_by
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.elementwise.comparison import COMPARISONS

Numbers = np.ndarray[Any, np.dtype[np.int64]]

_DEPTH = 16  # of the arithmetic on counters that is followed
_ARITHMETIC: dict[str, Any] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "select": np.where,
    "negate": np.negative,
    "convert": np.positive,
    "reshape": np.positive,
}


def is_written_once(op: ir.Operation, index: int, trips: int) -> bool:
    """Whether a carry is only written to, by a `dynamic_update_slice` for which no two trips take the same place.

    Arguments:
        op: a `while`.
        index: the carry.
        trips: how often the loop runs.
    """
    body = op.regions[1].blocks[0]
    argument, following = body.arguments[index], returned_by(body)[index]
    write = defining_op(following)
    if (
        write is None
        or write.block != body
        or write.name != "stablehlo.dynamic_update_slice"
        or write.operands[0] != argument
    ):
        return False
    if len(list(argument.uses)) != 1 or len(list(following.uses)) != 1:
        return False
    shape, sizes = spec_of(argument.type).shape, spec_of(write.operands[1].type).shape
    numbers: dict[Value, Numbers | None] = {}
    starts = [_in_every_trip(op, place, trips, _DEPTH, numbers) for place in list(write.operands)[2:]]
    for start, extent, size in zip(starts, shape, sizes, strict=True):
        if start is None or start.min() < 0 or start.max() > extent - size:
            continue
        ordered = np.sort(start)
        if trips == 1 or (np.diff(ordered) >= size).all():
            return True
    return False


def _in_every_trip(
    op: ir.Operation, value: Value, trips: int, depth: int, numbers: dict[Value, Numbers | None]
) -> Numbers | None:
    """The integer that a scalar is in each trip, if it is made of constants and counters alone."""
    if value not in numbers:  # a value that is used twice is computed once
        numbers[value] = _computed(op, value, trips, depth, numbers)
    return numbers[value]


def _computed(
    op: ir.Operation, value: Value, trips: int, depth: int, numbers: dict[Value, Numbers | None]
) -> Numbers | None:
    known = known_integer(value)
    if known is not None:
        return np.full(trips, known)
    body = op.regions[1].blocks[0]
    if isinstance(value, ir.BlockArgument) and value.owner == body:
        index = value.arg_number
        start, step = known_integer(op.operands[index]), steps_of(op).get(index)
        return None if start is None or step is None else start + step * np.arange(trips)
    maker = defining_op(value)
    if maker is None or not depth:
        return None
    name = maker.name.removeprefix("stablehlo.")
    if name == "compare":
        direction = comparison_direction(maker)
        function = COMPARISONS[direction]
    elif name in _ARITHMETIC:
        function = _ARITHMETIC[name]
    else:
        return None
    operands = [_in_every_trip(op, operand, trips, depth - 1, numbers) for operand in maker.operands]
    return None if any(each is None for each in operands) else np.asarray(function(*operands))
