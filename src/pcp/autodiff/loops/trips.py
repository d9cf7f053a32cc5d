"""How often a `while` runs: a number, a value that is there before the loop, or only known when it is over.

A condition is read as a conjunction of comparisons of a counter with a bound. A counter is an integer carry to which the body
adds a constant; a bound is a constant, a carry that does not change, or a value from outside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from pcp.ir import DType
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import comparison_direction
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.regions import returned_by
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.elementwise import convert, less, minimum, where
from pcp.tensor import Tensor, as_tensor, current_builder

_NEGATED = {"LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT", "EQ": "NE", "NE": "EQ"}
_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "EQ": "EQ", "NE": "NE"}
_DEPTH = 32  # of the arithmetic on constants that is followed


@dataclass(frozen=True, slots=True)
class _Comparison:
    """`start + trip * step` compared with `bound`: the loop goes on while it holds."""

    direction: str
    start: Value
    bound: Value
    step: int


def static_trips(op: ir.Operation) -> int | float | None:
    """How often a `while` runs, if its operations tell: infinity for one that never ends, None if they do not."""
    (chosen,) = returned_by(op.regions[0].blocks[0])
    constant = splat_number(chosen)
    if constant is not None:
        return inf if constant else 0
    comparisons = _conjunction(op, chosen)
    if comparisons is None:
        return None
    counts = [_static_count(comparison) for comparison in comparisons]
    # One that is 0 decides, whatever the others are.
    if 0 in counts:
        return 0
    return min(c for c in counts if c is not None) if None not in counts else None


def trips_around(op: ir.Operation, known: dict[ir.Operation, int]) -> int:
    """How often an operation runs in one call; a loop of which that is not known counts as one trip.

    Arguments:
        known: trips of loops that were counted, which is added to.
    """
    trips, around = 1, op.parent
    while around is not None and around.name != "func.func":
        loop = around.operation
        if loop.name == "stablehlo.while":
            if loop not in known:
                counted = static_trips(loop)
                known[loop] = counted if isinstance(counted, int) else 1
            trips *= known[loop]
        around = loop.parent
    return trips


def trips_before(op: ir.Operation) -> Tensor | None:
    """The number of trips of a `while`, computed where the current builder stands, before the loop; None if it cannot be."""
    (chosen,) = returned_by(op.regions[0].blocks[0])
    comparisons = _conjunction(op, chosen)
    if comparisons is None or not all(_is_monotone(c) for c in comparisons):
        return None
    counts = [_dynamic_count(comparison) for comparison in comparisons]
    least = counts[0]
    for count in counts[1:]:
        least = minimum(least, count)
    return least


def steps_of(op: ir.Operation) -> dict[int, int]:
    """The carries of a `while` that are integer scalars to which the body adds a constant, and that constant."""
    body = op.regions[1].blocks[0]
    steps = {}
    for index, (argument, following) in enumerate(zip(body.arguments, returned_by(body), strict=True)):
        step = _step(argument, following)
        if step is not None:
            steps[index] = step
    return steps


def is_invariant(op: ir.Operation, index: int) -> bool:
    """Whether no trip of a `while` changes a carry."""
    body = op.regions[1].blocks[0]
    return bool(returned_by(body)[index] == body.arguments[index])


def known_integer(value: Value) -> int | None:
    """The number that an integer scalar is, if it is made of constants alone."""
    return _known_integer(value, _DEPTH, {})


def _known_integer(value: Value, depth: int, known: dict[Value, int | None]) -> int | None:
    if value not in known:  # a value that is used twice is folded once
        known[value] = _folded_integer(value, depth, known)
    return known[value]


def _folded_integer(value: Value, depth: int, known: dict[Value, int | None]) -> int | None:
    value = _origin(value)
    spec = spec_of(value.type)
    if not spec.dtype.is_integer or spec.shape or not depth:
        return None
    constant = splat_number(value)
    if constant is not None:
        return int(np.asarray(int(constant)).astype(spec.dtype.numpy))
    op = defining_op(value)
    if op is None:
        return None
    name = op.name.removeprefix("stablehlo.")
    if name not in ("add", "subtract", "multiply", "maximum", "minimum", "convert", "reshape", "negate"):
        return None
    operands = [_known_integer(operand, depth - 1, known) for operand in op.operands]
    numbers = [number for number in operands if number is not None]
    return None if len(numbers) < len(operands) else _wrapped(_apply(name, numbers), spec.dtype)


def _apply(name: str, numbers: Sequence[int]) -> int:
    first, last = numbers[0], numbers[-1]
    if name == "negate":
        return -first
    arithmetic = {"add": first + last, "subtract": first - last, "multiply": first * last}
    return arithmetic.get(name, min(numbers) if name == "minimum" else max(numbers))


def _wrapped(number: int, dtype: DType) -> int:
    limits = np.iinfo(dtype.numpy)
    return (number - int(limits.min)) % (int(limits.max) - int(limits.min) + 1) + int(limits.min)


def _origin(value: Value) -> Value:
    """The value that a carry has in every trip, from outside of the loops that carry it unchanged; else the value itself."""
    while isinstance(value, ir.BlockArgument):
        op = value.owner.owner
        if (
            op is None
            or op.operation.name != "stablehlo.while"
            or not is_invariant(op.operation, value.arg_number)
        ):
            break
        value = op.operation.operands[value.arg_number]
    return value


def _conjunction(op: ir.Operation, chosen: Value) -> list[_Comparison] | None:
    """The comparisons that must all hold for another trip; None if the condition is anything else."""
    comparisons: list[_Comparison] = []
    waiting, seen = [(chosen, False)], set()
    while waiting:
        value, negated = each = waiting.pop()
        if each in seen:
            continue
        seen.add(each)
        condition = defining_op(value)
        if condition is None:
            return None
        if condition.name == "stablehlo.not":
            waiting.append((condition.operands[0], not negated))
        elif condition.name == ("stablehlo.or" if negated else "stablehlo.and"):
            waiting += [(operand, negated) for operand in reversed(list(condition.operands))]
        else:
            comparison = _compared(op, condition, negated)
            if comparison is None:
                return None
            comparisons.append(comparison)
    return comparisons


def _compared(op: ir.Operation, condition: ir.Operation, negated: bool) -> _Comparison | None:
    if condition.name != "stablehlo.compare":
        return None
    direction = comparison_direction(condition)
    if negated:
        direction = _NEGATED[direction]
    left, right = condition.operands
    return _comparison(op, direction, left, right) or _comparison(op, _MIRRORED[direction], right, left)


def _comparison(op: ir.Operation, direction: str, counter: Value, bound: Value) -> _Comparison | None:
    condition = op.regions[0].blocks[0]
    if not isinstance(counter, ir.BlockArgument) or counter.owner != condition:
        return None
    if not spec_of(counter.type).dtype.is_integer:
        return None
    index = counter.arg_number
    body = op.regions[1].blocks[0]
    step = 0 if is_invariant(op, index) else _step(body.arguments[index], returned_by(body)[index])
    bound = _origin(bound)
    if step is None or bound.owner == condition:
        return None
    maker = defining_op(bound)
    if maker is not None and maker.block == condition and known_integer(bound) is None:
        return None
    return _Comparison(direction, _origin(op.operands[index]), bound, step)


def _step(argument: Value, following: Value) -> int | None:
    """The constant that a body adds to an integer carry."""
    spec = spec_of(argument.type)
    add = defining_op(following)
    if add is None or not spec.dtype.is_integer or spec.shape:
        return None
    operands = list(add.operands)
    if add.name not in ("stablehlo.add", "stablehlo.subtract") or argument not in operands:
        return None
    place = operands.index(argument)
    step = known_integer(operands[1 - place])
    if step is None or (add.name == "stablehlo.subtract" and place == 1):
        return None
    # An unsigned carry goes down by adding nearly the whole range.
    top = int(np.iinfo(spec.dtype.numpy).max)
    if int(np.iinfo(spec.dtype.numpy).min) == 0 and step > top // 2:
        step -= top + 1
    return step if add.name == "stablehlo.add" else -step


def _static_count(comparison: _Comparison) -> int | float | None:
    """The first trip at which a comparison of known numbers fails; infinity if there is none before the counter overflows."""
    start, bound = known_integer(comparison.start), known_integer(comparison.bound)
    if start is None or bound is None:
        return None
    step, direction = comparison.step, comparison.direction
    if direction in ("EQ", "NE"):
        if (start == bound) is (direction == "NE"):
            return 0
        if direction == "EQ":
            return 1 if step else inf
        exact = step != 0 and (bound - start) % step == 0 and (bound - start) // step > 0
        return (bound - start) // step if exact else inf
    if direction in ("GT", "GE"):
        start, bound, step = -start, -bound, -step
    if direction in ("LE", "GE"):
        bound += 1
    if start >= bound:
        return 0
    count = -((start - bound) // step) if step > 0 else inf
    limits = np.iinfo(spec_of(comparison.start.type).dtype.numpy)
    last = known_integer(comparison.start)
    assert last is not None
    return count if limits.min <= last + count * comparison.step <= limits.max else inf


def _is_monotone(comparison: _Comparison) -> bool:
    """Whether the counter goes towards a bound that it cannot step over."""
    if comparison.direction in ("LT", "LE"):
        return comparison.step > 0
    return comparison.direction in ("GT", "GE") and comparison.step < 0


def _dynamic_count(comparison: _Comparison) -> Tensor:
    builder = current_builder()
    low, high = (Tensor(value, builder) for value in (comparison.start, _here(comparison.bound)))
    if comparison.step < 0:
        low, high = high, low
    # The distance of unsigned numbers is never negative, so it is only taken where it counts.
    distance = where(less(low, high), high - low, 0)
    step = abs(comparison.step)
    count = distance if step == 1 else (distance + (step - 1)) // step
    if comparison.direction in ("LE", "GE"):
        count = where(less(high, low), 0, distance // step + 1)
    return convert(count, DType.i32)


def _here(bound: Value) -> Value:
    """A bound as a value from outside of the loop: one that the condition makes from constants is made again."""
    number = known_integer(bound)
    return bound if number is None else as_tensor(number, spec_of(bound.type).dtype).value
