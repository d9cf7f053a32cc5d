"""Branches that are known to be taken, and loops that never run."""

import operator
from collections.abc import Callable
from typing import Any

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import comparison_direction
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.editing import copy_region
from pcp.ir.toolkit.regions import returned_by
from pcp.rewrite.pattern import defined_by, tensor
from pcp.rewrite.row import Replacement, Row, exact
from pcp.tensor import current_builder

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}


def _if_known(op: ir.Operation) -> Replacement:
    predicate = splat_number(op.operands[0])
    return None if predicate is None else _branch(op, 0 if predicate else 1)


def _case_known(op: ir.Operation) -> Replacement:
    index, last = splat_number(op.operands[0]), len(op.regions) - 1
    if index is None:
        return None
    return _branch(op, int(index) if 0 <= index <= last else last)


def _branch(op: ir.Operation, index: int) -> Replacement:
    return [tensor(value) for value in copy_region(current_builder(), op, index, [])[1]]


def _while_never(op: ir.Operation) -> Replacement:
    (block,) = op.regions[0].blocks
    initial = dict(zip(block.arguments, op.operands, strict=True))
    (condition,) = returned_by(block)

    def at_start(value: Value) -> Any:
        return splat_number(initial.get(value, value))

    goes_on = at_start(condition)
    comparison = defined_by(condition, "compare") if goes_on is None else None
    if comparison is not None:
        left, right = (at_start(value) for value in comparison.operands)
        if left is not None and right is not None:
            goes_on = _COMPARE[comparison_direction(comparison)](left, right)
    return [tensor(value) for value in op.operands] if goes_on is not None and not goes_on else None


ROWS: tuple[Row, ...] = (
    exact("if_known", "if", _if_known),  # if(true, f, g) = f()
    exact("case_known", "case", _case_known),  # case(1, f, g) = g(); beyond the last, the last
    exact("while_never", "while", _while_never),  # while(condition, f, x) = x, where condition(x) is false
)
