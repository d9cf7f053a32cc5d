"""Sizes that a StableHLO program with open sizes (`?`) calculates itself, as exact ones whose comparisons become constraints.

Operations on small tensors of integers are calculated with the sizes that a trace shows, as far as a shape, an assertion or a
number of the program needs them: a branch that is not taken asks nothing. Where a size is calculated in a way that is not
known here, the trace notes it.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from pcp.ir.bindings import Value, context, ir
from pcp.ir.toolkit.attributes import (
    comparison_direction,
    integer_elements,
    integer_of,
    integers_of,
    string_of,
)
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.walking import walk_block
from pcp.symbolic.expressions import Expression
from pcp.symbolic.open_shapes import UnknownSize, open_shape
from pcp.symbolic.sizes import Size
from pcp.symbolic.watched import as_number
from pcp.symbolic.watching import WATCH, unseen

_MOST_ELEMENTS = 64
Elements = list[Any]
"""Integers, sizes, conditions, and None for a float that a size became."""


class _Condition:
    """A comparison that is made when its outcome is needed."""

    def __init__(self, decide: Callable[[], bool]) -> None:
        self._decide = decide

    def __bool__(self) -> bool:
        return self._decide()


def watch_sizes(module: ir.Module, shapes: Sequence[Sequence[Expression] | None]) -> None:
    """Record what a program asks of its sizes in the trace of this thread, if its answers are recorded there.

    Arguments:
        module: with a `main`, whose calls are inlined, in place.
        shapes: of each argument the sizes; None where the program says them itself.
    """
    watch = WATCH.get()
    if watch is None or not watch.is_first:
        return
    inline_calls(module)
    main = main_of(module).regions[0].blocks[0]
    known = {
        argument: [watch.exact(size) if size.symbols else size.number for size in shape]
        for argument, shape in zip(main.arguments, shapes, strict=False)
        if shape is not None
    }
    if len(shapes) != len(main.arguments) or not all(map(_has_rank, known, map(len, known.values()))):
        return  # as whoever gives the open sizes values will say
    with context():
        calculation = _Calculation(known)
        for op in walk_block(main):
            try:
                calculation.use(op)
            except UnknownSize:
                unseen()


class _Calculation:
    """What is known of the values of a program: the elements of small ones that sizes determine, the shapes of the others."""

    def __init__(self, shapes: dict[Value, list[Any]]) -> None:
        self._shapes = shapes
        self._known: dict[Value, Elements | None] = {}

    def use(self, op: ir.Operation) -> None:
        """Ask what an operation, as one that is not calculated here, needs of its operands and says of its shapes."""
        if op.name == "stablehlo.custom_call" and _target(op) == "shape_assertion":
            self._settled(op.operands[0])
            return
        if any(self._elements(result) is not None for result in op.results):
            return
        for operand in op.operands:
            self._settled(operand)
        if op.name in _BRANCHES and self._elements(op.operands[0]) is not None:
            raise UnknownSize
        if op.name != "func.return":
            for result in op.results:
                self._shape(result)

    def _settled(self, value: Value) -> None:
        """Let the elements of a value be numbers of the program: sizes record which, conditions become constraints."""
        for element in self._elements(value) or ():
            if isinstance(element, Size):
                _ = element.number
            else:
                bool(element)

    def _elements(self, value: Value) -> Elements | None:
        """The elements of a value that constants and sizes say; None for any other."""
        if value not in self._known:
            self._known[value] = None  # of a value in a cycle, and until it is known
            self._known[value] = self._calculated(value)
        return self._known[value]

    def _calculated(self, value: Value) -> Elements | None:
        op = defining_op(value)
        if op is None or len(op.results) != 1 or not _is_small(value.type):
            return None
        if op.name == "stablehlo.constant":
            return _constant(op)
        if op.name == "stablehlo.get_dimension_size":
            return [self._shape(op.operands[0])[integer_of(op.attributes["dimension"])]]
        rows = [self._elements(operand) for operand in op.operands]
        known = [row for row in rows if row is not None]
        if not rows or len(known) < len(rows):
            return None
        elements = self._combined(op, known)
        if elements is None and _varies(known):
            raise UnknownSize
        return elements

    def _combined(self, op: ir.Operation, rows: list[Elements]) -> Elements | None:
        """The elements of a result, from those of the operands; None where they are not known."""
        if op.regions:
            return None
        if not _is_integer(op.results[0].type):
            if op.name not in _SMOOTH:
                return None
            for operand in op.operands:
                self._settled(operand)
            return [None if _varies(rows) else 0.0] * _count(op.results[0].type)
        if any(isinstance(each, float) or each is None for row in rows for each in row):
            return None
        if op.name in _FUNCTIONS:
            return [_FUNCTIONS[op.name](*each) for each in zip(*rows, strict=True)]
        return _ARRANGED[op.name](op, rows) if op.name in _ARRANGED else None

    def _shape(self, value: Value) -> list[Any]:
        """The sizes of a value."""
        if value not in self._shapes:
            type_ = value.type
            if not isinstance(type_, ir.RankedTensorType):
                return []
            open_ = [axis for axis in range(type_.rank) if type_.is_dynamic_dim(axis)]
            sizes: list[Any] = [
                None if axis in open_ else type_.get_dim_size(axis) for axis in range(type_.rank)
            ]
            if open_:
                calculated = open_shape(value, self._shape, self._sizes)
                sizes = [calculated[axis] if axis in open_ else size for axis, size in enumerate(sizes)]
                if any(size is None for size in sizes):
                    raise UnknownSize
            self._shapes[value] = sizes
        return self._shapes[value]

    def _sizes(self, value: Value) -> list[Any]:
        """The elements of a value that are sizes of another."""
        elements = self._elements(value)
        if elements is None:
            raise UnknownSize
        return elements


_SMOOTH = {
    f"stablehlo.{name}"
    for name in (
        "add", "broadcast_in_dim", "concatenate", "convert", "divide", "exponential", "log", "multiply", "negate", "power",
        "reshape", "rsqrt", "select", "slice", "sqrt", "subtract", "tanh",
    )
}  # fmt: skip
"""Operations on floats that choose nothing by them."""
_BRANCHES = ("stablehlo.case", "stablehlo.if")


def _least(a: Any, b: Any) -> Any:
    """The smaller one; which it is becomes a constraint that equal ones keep."""
    below = as_number(a) <= as_number(b)
    _ = a <= b if below else a >= b
    return a if below else b


def _divided(a: Any, b: Any) -> Any:
    """The quotient rounded towards 0, as StableHLO rounds."""
    if b == 0:
        raise UnknownSize
    return abs(a) // abs(b) if (a >= 0) == (b >= 0) else -(abs(a) // abs(b))


def _rest(a: Any, b: Any) -> Any:
    if b == 0:
        raise UnknownSize
    return a % abs(b) if a >= 0 else -(-a % abs(b))


def _shifted(a: Any, b: Any) -> Any:
    if not isinstance(b, int) or not 0 <= b < 31:
        raise UnknownSize
    return a * 2**b


def _condition(decide: Callable[..., bool]) -> Callable[..., Any]:
    """A function of truth values; of integers it is one of bits, which is not known here."""

    def combined(*truths: Any) -> Any:
        if not all(isinstance(each, bool | _Condition) for each in truths):
            raise UnknownSize
        return _Condition(lambda: decide(*truths))

    return combined


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "stablehlo.add": operator.add,
    "stablehlo.subtract": operator.sub,
    "stablehlo.multiply": operator.mul,
    "stablehlo.divide": _divided,
    "stablehlo.remainder": _rest,
    "stablehlo.minimum": _least,
    "stablehlo.maximum": lambda a, b: -_least(-a, -b),
    "stablehlo.negate": operator.neg,
    "stablehlo.abs": abs,
    "stablehlo.sign": lambda a: 1 if a > 0 else -1 if a < 0 else 0,
    "stablehlo.shift_left": _shifted,
    "stablehlo.not": _condition(lambda a: not a),
    "stablehlo.and": _condition(lambda a, b: bool(a) and bool(b)),
    "stablehlo.or": _condition(lambda a, b: bool(a) or bool(b)),
    "stablehlo.xor": _condition(lambda a, b: bool(a) != bool(b)),
}
_DIRECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge,
}  # fmt: skip


def _compared(op: ir.Operation, rows: list[Elements]) -> Elements:
    function = _DIRECTIONS[comparison_direction(op)]

    def asked(a: Any, b: Any) -> _Condition:
        return _Condition(lambda: bool(function(_plain(a), _plain(b))))

    return [asked(a, b) for a, b in zip(*rows, strict=True)]


def _plain(value: Any) -> Any:
    return bool(value) if isinstance(value, _Condition) else value


def _is_true(value: Any) -> bool:
    return bool(_plain(value))


def _selected(_: ir.Operation, rows: list[Elements]) -> Elements:
    chosen, one, other = rows
    return [
        a if condition else b
        for condition, a, b in zip(chosen * (len(one) // len(chosen)), one, other, strict=True)
    ]


def _clamped(_: ir.Operation, rows: list[Elements]) -> Elements:
    low, middle, high = (row * (len(rows[1]) // len(row)) for row in rows)
    return [_least(-_least(-a, -b), c) for a, b, c in zip(low, middle, high, strict=True)]


def _converted(op: ir.Operation, rows: list[Elements]) -> Elements:
    if _is_truth(op.results[0].type):
        return [_Condition(functools.partial(_is_true, each)) for each in rows[0]]
    return [int(bool(each)) if isinstance(each, bool | _Condition) else each for each in rows[0]]


def _repeated(op: ir.Operation, rows: list[Elements]) -> Elements | None:
    count = _count(op.results[0].type)
    return rows[0] * count if len(rows[0]) == 1 else rows[0] if len(rows[0]) == count else None


def _part(op: ir.Operation, rows: list[Elements]) -> Elements | None:
    names = ("start_indices", "limit_indices", "strides")
    bounds = [integers_of(op.attributes[name]) for name in names]
    return rows[0][slice(*(each[0] for each in bounds))] if len(bounds[0]) == 1 else None


def _sequence(op: ir.Operation, rows: list[Elements]) -> Elements | None:
    is_row = integer_of(op.attributes["dimension"]) == 0
    return list(itertools.chain.from_iterable(rows)) if is_row else None


_ARRANGED: dict[str, Callable[[ir.Operation, list[Elements]], Elements | None]] = {
    "stablehlo.compare": _compared,
    "stablehlo.select": _selected,
    "stablehlo.clamp": _clamped,
    "stablehlo.convert": _converted,
    "stablehlo.reshape": lambda _, rows: rows[0],
    "stablehlo.broadcast_in_dim": _repeated,
    "stablehlo.slice": _part,
    "stablehlo.concatenate": _sequence,
}


def _varies(rows: Sequence[Elements]) -> bool:
    """Whether elements follow from sizes."""
    return any(isinstance(each, Size | _Condition) or each is None for row in rows for each in row)


def _constant(op: ir.Operation) -> Elements | None:
    type_ = op.results[0].type
    if not _is_integer(type_):
        return [0.0] * _count(type_)
    values = integer_elements(op.attributes["value"])
    elements = list(values) * (_count(type_) // max(len(values), 1))
    return [bool(each) for each in elements] if _is_truth(type_) else elements


def _has_rank(value: Value, rank: int) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and value.type.rank == rank


def _target(op: ir.Operation) -> str:
    return string_of(op.attributes["call_target_name"])


def _is_small(type_: ir.Type) -> bool:
    ranked = isinstance(type_, ir.RankedTensorType) and type_.has_static_shape
    return ranked and _count(type_) <= _MOST_ELEMENTS


def _count(type_: Any) -> int:
    return math.prod(type_.shape)


def _is_integer(type_: Any) -> bool:
    return isinstance(type_.element_type, ir.IntegerType)


def _is_truth(type_: Any) -> bool:
    return _is_integer(type_) and ir.IntegerType(type_.element_type).width == 1
