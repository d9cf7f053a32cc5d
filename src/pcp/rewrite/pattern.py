"""What the patterns of rows are made of: who makes a value, whether it is constant, and values to put in its place."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
from pcp.ops.movement import broadcast_to
from pcp.rewrite.row import Replace, Replacement
from pcp.tensor import Tensor, as_tensor, current_builder

LARGEST_CONSTANT = 1024
"""The most elements that a constant made by a rewrite has, unless all are equal: MLIR keeps every constant for ever."""

Array = np.ndarray[Any, Any]


def defined_by(value: Value, *names: str) -> ir.Operation | None:
    """The operation that makes a value, if it is one of `names` (any, without them) and bears no mark."""
    op = defining_op(value)
    if op is None or (names and op.name.removeprefix("stablehlo.") not in names):
        return None
    return None if is_beyond_rows(op) else op


def of(
    *names: str, place: int = 0
) -> Callable[[Callable[[ir.Operation, ir.Operation], Replacement]], Replace]:
    """A pattern: the operand in a place is made by an operation of one of `names`; the rest is told both operations."""

    def with_inner(rest: Callable[[ir.Operation, ir.Operation], Replacement]) -> Replace:
        def replace(op: ir.Operation) -> Replacement:
            inner = defined_by(op.operands[place], *names)
            return None if inner is None else rest(op, inner)

        return replace

    return with_inner


def undoing(name: str) -> Replace:
    """A pattern: what an operation did before is done again, and thereby undone."""
    return of(name)(lambda _, inner: [tensor(inner.operands[0])])


def unchanged(op: ir.Operation) -> Replacement:
    """A pattern: the result has the shape and the element type of the operand, so it is the operand."""
    same = op.operands[0].type == op.results[0].type
    return [tensor(op.operands[0])] if same else None


def of_itself(op: ir.Operation) -> Replacement:
    """A pattern: both operands are the same, and so is the result."""
    return [tensor(op.operands[0])] if op.operands[0] == op.operands[1] else None


def is_beyond_rows(op: ir.Operation) -> bool:
    """Whether rows leave an operation alone: PCP does not know its types, or it bears a mark, an attribute as `pcp.tap`."""
    if any(spec_if_tensor(value.type) is None for value in (*op.operands, *op.results)):
        return True
    # The bindings cannot list those of a complex one.
    if not len(op.attributes) or op.name == "stablehlo.constant":
        return False
    return any("." in name for name in op.attributes.keys())  # noqa: SIM118  (iterating gives pairs in some versions)


def tensor(value: Value) -> Tensor:
    """The value as a Tensor of the program that is being rewritten."""
    return Tensor(value, current_builder())


def spec(value: Value) -> TensorSpec:
    """Shape and element type of a value."""
    return spec_of(value.type)


def numbers(op: ir.Operation, name: str) -> tuple[int, ...]:
    """The attribute of an operation that is an array of integers."""
    return integers_of(op.attributes[name])


def elements(value: Value) -> Array | None:
    """The elements of a constant value, if they are not too many, and, where they differ, neither complex nor bfloat16."""
    shape, dtype = spec(value).shape, spec(value).dtype
    if spec(value).size > LARGEST_CONSTANT or dtype.kind == "complex":
        return None
    number = splat_number(value)
    if number is not None:
        return np.full(shape, number, dtype.numpy)
    op = defined_by(value, "constant") if dtype is not DType.bf16 else None  # the bindings cannot read those
    if op is None or not isinstance(attribute := op.attributes["value"], ir.DenseElementsAttr):
        return None
    return np.array(attribute).reshape(shape)


def filled(wanted: TensorSpec, number: Any) -> Tensor:
    """A tensor of one repeated number."""
    return broadcast_to(as_tensor(np.array(number, wanted.dtype.numpy)), wanted.shape)


def inserted(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """For each axis of a shape its place in another that has it and more axes of size 1; None if that is not so."""
    places: list[int] = []
    for place, size in enumerate(new):
        if len(places) < len(old) and old[len(places)] == size:
            places.append(place)
        elif size != 1:
            return None
    return tuple(places) if len(places) == len(old) else None


def without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of a shape that are not 1."""
    return tuple(size for size in shape if size != 1)


def wide_places(old: tuple[int, ...], new: tuple[int, ...]) -> dict[int, int] | None:
    """Where each axis not of size 1 goes in a reshape that only adds or drops axes of size 1; None for other reshapes."""
    if without_ones(old) != without_ones(new):
        return None
    before = (axis for axis, size in enumerate(old) if size != 1)
    after = (axis for axis, size in enumerate(new) if size != 1)
    return dict(zip(before, after, strict=True))


def is_integral(op: ir.Operation) -> bool:
    """Whether an operation returns integers or booleans, whose sums are exact in any order."""
    return spec(op.results[0]).dtype.kind in ("bool", "signed", "unsigned")


def is_default_accuracy(op: ir.Operation) -> bool:
    """Whether the program leaves it open how accurate an operation is."""
    return "result_accuracy" not in op.attributes or "DEFAULT" in str(op.attributes["result_accuracy"])
