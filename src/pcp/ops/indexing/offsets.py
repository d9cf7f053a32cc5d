"""Blocks between bounds that the program calculates, `x[i : i + 2]`: their size is found from how the bounds are made."""

from collections.abc import Mapping
from typing import Any

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.constants import splat_number
from pcp.ops.elementwise import convert, less, where
from pcp.ops.indexing.keys import expanded
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor, as_tensor

_SAME = ("stablehlo.convert", "stablehlo.reshape", "stablehlo.broadcast_in_dim")
Block = tuple[list[Tensor | int], tuple[int, ...], tuple[Any, ...]]


def moving_block(key: Any, shape: tuple[int, ...]) -> Block | None:
    """A key with slices whose bounds are Tensors as a block, and the key inside of that block; None of a key without.

    Returns:
        Where the block begins along every axis, its sizes, and what is left of the key.

    Raises:
        ShapeMismatch: bounds do not have a distance that is known.
    """
    entries = key if isinstance(key, tuple) else (key,)
    if not any(_moves(entry) for entry in entries):
        return None
    start: list[Tensor | int] = []
    sizes, rest = [], []
    for entry in expanded(entries, shape):
        axis = len(start)
        if _moves(entry):
            begin, size = _begin_and_size(entry, axis, shape)
            start.append(begin)
            sizes.append(size)
            rest.append(slice(None, None, entry.step))
            continue
        rest.append(entry)
        if entry is not None:
            start.append(0)
            sizes.append(shape[axis])
    return start, tuple(sizes), tuple(rest)


def _moves(entry: Any) -> bool:
    return isinstance(entry, slice) and any(isinstance(bound, Tensor) for bound in (entry.start, entry.stop))


def _begin_and_size(entry: slice, axis: int, shape: tuple[int, ...]) -> tuple[Tensor, int]:
    bounds = [as_tensor(0 if bound is None else bound) for bound in (entry.start, entry.stop)]
    if any(bound.shape or not bound.dtype.is_integer for bound in bounds):
        shown = " and ".join(str(bound.spec) for bound in bounds)
        raise DTypeMismatch(f"index: bounds of a slice are {shown}; expected integer scalars")
    low, high = (_terms(bound.value) for bound in bounds)
    rest = {value: high.get(value, 0) - low.get(value, 0) for value in (*low, *high)}
    size = rest.pop(None, 0)
    if entry.stop is None or any(rest.values()) or (isinstance(entry.step, int) and entry.step < 1):
        places = ", ".join("i" if each == axis else "0" for each in range(len(shape)))
        sizes = ", ".join("n" if each == axis else str(size) for each, size in enumerate(shape))
        raise ShapeMismatch(
            f"index: a slice along axis {axis} of shape {shape} has bounds that the program calculates, and its size is not "
            f"known; expected bounds with a fixed distance, as x[i : i + 2]. Write pcp.dynamic_slice(x, ({places},), "
            f"({sizes},)) with a number for n, or choose elements by pcp.where(pcp.arange(n) < i, x, 0)"
        )
    if not 0 <= size <= shape[axis]:
        raise ShapeMismatch(f"index: a slice of {size} elements was given for axis {axis} of shape {shape}")
    begin = bounds[0]
    if begin.dtype.kind == "signed":
        begin = where(less(begin, 0), begin + shape[axis], begin)
    return convert(begin, "i32"), int(size)


def _terms(value: Value) -> Mapping[Value | None, float]:
    """An integer as a sum of multiples of values; that of None is the constant."""
    number = splat_number(value)
    if number is not None:
        return {None: number}
    op = value.owner
    if isinstance(op, ir.Block):
        return {value: 1}
    parts = [_terms(operand) for operand in op.operands] if op.name in _LINEAR else []
    return _LINEAR[op.name](value, *parts) if parts else {value: 1}


def _sum(sign: int) -> Any:
    def terms(_: Value, left: Mapping[Any, float], right: Mapping[Any, float]) -> Mapping[Any, float]:
        return {each: left.get(each, 0) + sign * right.get(each, 0) for each in (*left, *right)}

    return terms


def _multiple(value: Value, left: Mapping[Any, float], right: Mapping[Any, float]) -> Mapping[Any, float]:
    for some, factor in ((left, right), (right, left)):
        if factor.keys() <= {None}:
            return {each: count * factor.get(None, 0) for each, count in some.items()}
    return {value: 1}


_LINEAR: dict[str, Any] = {
    "stablehlo.add": _sum(1),
    "stablehlo.subtract": _sum(-1),
    "stablehlo.multiply": _multiple,
    **dict.fromkeys(_SAME, lambda _, part: part),
}
"""How terms follow from those of the operands."""
