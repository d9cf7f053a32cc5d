"""Choices, comparisons and logic whose answer is known."""

import math
from typing import Any

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import comparison_direction
from pcp.ir.toolkit.constants import splat_number
from pcp.ops.elementwise import bitwise_not
from pcp.rewrite.pattern import filled, of, of_itself, spec, tensor, undoing
from pcp.rewrite.row import Replace, Replacement, Row, exact
from pcp.tensor import Tensor, emit

_ALWAYS = {"EQ": True, "LE": True, "GE": True, "NE": False, "LT": False, "GT": False}
_OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}


def _select_known(op: ir.Operation) -> Replacement:
    predicate = splat_number(op.operands[0])
    return None if predicate is None else [tensor(op.operands[1 if predicate else 2])]


def _select_equal(op: ir.Operation) -> Replacement:
    return [tensor(op.operands[1])] if op.operands[1] == op.operands[2] else None


@of("not")
def _select_of_not(op: ir.Operation, inner: ir.Operation) -> Replacement:
    operands = (tensor(inner.operands[0]), tensor(op.operands[2]), tensor(op.operands[1]))
    return [emit("select", operands, (spec(op.results[0]),))]


def _select_of_truths(op: ir.Operation) -> Replacement:
    whole = spec(op.results[0])
    if whole.dtype is not DType.bool or spec(op.operands[0]) != whole:
        return None
    branches = splat_number(op.operands[1]), splat_number(op.operands[2])
    if branches == (True, False):
        return [tensor(op.operands[0])]
    return [bitwise_not(tensor(op.operands[0]))] if branches == (False, True) else None


def _compare_with_itself(op: ir.Operation) -> Replacement:
    if op.operands[0] != op.operands[1] or spec(op.operands[0]).dtype.is_differentiable:
        return None
    return [filled(spec(op.results[0]), _ALWAYS[comparison_direction(op)])]


def _compare_with_truth(op: ir.Operation) -> Replacement:
    if spec(op.operands[0]).dtype is not DType.bool or comparison_direction(op) not in ("EQ", "NE"):
        return None
    for place in (1, 0):
        truth, other = splat_number(op.operands[place]), tensor(op.operands[1 - place])
        if truth is not None:
            return [other if bool(truth) == (comparison_direction(op) == "EQ") else bitwise_not(other)]
    return None


def _compare_unsigned_with_zero(op: ir.Operation) -> Replacement:
    kind, direction = spec(op.operands[0]).dtype.kind, comparison_direction(op)
    if kind != "unsigned" or direction not in ("LT", "GE") or splat_number(op.operands[1]) != 0:
        return None
    return [filled(spec(op.results[0]), direction == "GE")]


@of("compare")
def _not_of_compare(op: ir.Operation, inner: ir.Operation) -> Replacement:
    direction = comparison_direction(inner)
    if spec(inner.operands[0]).dtype.is_differentiable and direction not in ("EQ", "NE"):
        return None  # of NaN, neither is true
    attributes: dict[str, Any] = {
        "comparison_direction": f"#stablehlo<comparison_direction {_OPPOSITE[direction]}>"
    }
    if "compare_type" in inner.attributes:
        attributes["compare_type"] = inner.attributes["compare_type"]
    operands = (tensor(inner.operands[0]), tensor(inner.operands[1]))
    return [emit("compare", operands, (spec(op.results[0]),), attributes)]


def _xor_of_itself(op: ir.Operation) -> Replacement:
    return [filled(spec(op.results[0]), 0)] if op.operands[0] == op.operands[1] else None


def _with_bits(ones: bool, result: str) -> Replace:
    """A pattern: all bits of one operand are ones, or all zeros; the result is the other operand, or that one."""

    def replace(op: ir.Operation) -> Replacement:
        for place in (1, 0):
            number = splat_number(op.operands[place])
            if number is not None and number in (_all_ones(spec(op.results[0]).dtype) if ones else (0,)):
                return [_chosen(op, place, result)]
        return None

    return replace


def _chosen(op: ir.Operation, place: int, result: str) -> Tensor:
    return tensor(op.operands[place if result == "constant" else 1 - place])


def _all_ones(dtype: DType) -> tuple[int, ...]:
    if dtype is DType.bool:
        return (1,)
    bits = 8 * dtype.itemsize
    return (-1,) if dtype.kind == "signed" else (int(math.ldexp(1, bits)) - 1,)


ROWS: tuple[Row, ...] = (
    exact("select_known", "select", _select_known),  # select(true, x, y) = x
    exact("select_equal", "select", _select_equal),  # select(p, x, x) = x
    exact("select_of_not", "select", _select_of_not),  # select(not p, x, y) = select(p, y, x)
    # select(p, true, false) = p; select(p, false, true) = not p
    exact("select_of_truths", "select", _select_of_truths),
    # (n <= n) = true; (n < n) = false, of integers
    exact("compare_with_itself", "compare", _compare_with_itself),
    exact("compare_with_truth", "compare", _compare_with_truth),  # (p == true) = p; (p == false) = not p
    # (n >= 0) = true; (n < 0) = false, unsigned
    exact("compare_unsigned_with_zero", "compare", _compare_unsigned_with_zero),
    exact("not_of_not", "not", undoing("not")),  # not not p = p
    exact("not_of_compare", "not", _not_of_compare),  # not (n < m) = (n >= m); of floats only == and !=
    exact("and_of_itself", "and", of_itself),  # p and p = p
    exact("and_of_ones", "and", _with_bits(True, "other")),  # p and true = p
    exact("and_of_zeros", "and", _with_bits(False, "constant")),  # p and false = false
    exact("or_of_itself", "or", of_itself),  # p or p = p
    exact("or_of_ones", "or", _with_bits(True, "constant")),  # p or true = true
    exact("or_of_zeros", "or", _with_bits(False, "other")),  # p or false = p
    exact("xor_of_itself", "xor", _xor_of_itself),  # p xor p = false
    exact("xor_of_zeros", "xor", _with_bits(False, "other")),  # p xor false = p
)
