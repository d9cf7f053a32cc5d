"""Reductions: ufuncs of NumPy along axes, and any body as a tree of elementwise steps."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.elementwise import maximum, minimum
from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.regions import combiner

Array = np.ndarray[Any, Any]

_LOGICAL: dict[str, Any] = {
    "add": np.logical_or,
    "multiply": np.logical_and,
    "and": np.logical_and,
    "or": np.logical_or,
}
_UFUNCS: dict[str, Any] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_NEUTRAL = {"add": 0, "multiply": 1, "or": 0, "xor": 0}


def ufunc_of(name: str | None, dtype: "np.dtype[Any]") -> Any:
    """The ufunc that combines two elements as a body does; None where NumPy has none."""
    if dtype.kind == "b":
        return {**_UFUNCS, **_LOGICAL, "xor": np.logical_xor}.get(name or "")
    return _UFUNCS.get(name or "")


def combined(ufunc: Any) -> Callable[..., object]:
    """A ufunc of two arrays and the one to write, none of which NumPy warns about."""
    known: dict[Any, Callable[..., object]] = {np.maximum: maximum, np.minimum: minimum}
    function: Callable[..., object] = known.get(ufunc, ufunc)
    return function


def _reduce(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    axes = integers_of(op.attributes["dimensions"])
    name = combiner(op.regions[0]) if len(operands) == 2 else None
    ufunc = ufunc_of(name, operands[0].dtype)
    if ufunc is None:
        return _by_body(r, op, operands, axes)
    (x, init), out = operands, r.result(op)
    number = splat_number(op.operands[1])
    is_neutral = number is not None and name in _NEUTRAL and number == _NEUTRAL[name]
    if not x.size:
        r.emit(np.copyto, out, init, writes=(0,))
        return [out]
    if x.dtype.itemsize <= 2 and x.dtype.kind in "fV" and name in ("add", "multiply"):
        wide = r.new(out.shape, np.dtype(np.float32))
        r.emit(along, ufunc, x, axes, wide)
        if not is_neutral:
            r.emit(ufunc, wide, init, wide)
        r.copy_narrowed(wide, out)
        return [out]
    while x.dtype.kind == "V" and len(axes) > 1:  # NumPy knows no initial element of ml_dtypes' types
        *rest, axis = sorted(axes)
        part = r.new((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype)
        r.emit(along, ufunc, x, (axis,), part)
        x, axes = part, tuple(rest)
    r.emit(along, ufunc, x, axes, out)
    if not is_neutral:
        r.emit(combined(ufunc), out, init, out)
    return [out]


def along(ufunc: Any, x: Array, axes: tuple[int, ...], out: Array) -> None:
    """All axes at once."""
    ufunc.reduce(x, axes, out.dtype, out)


def _by_body(r: Recorder, op: ir.Operation, operands: list[View], axes: tuple[int, ...]) -> Sequence[View]:
    """Axes in front as one, whose neighbours are combined until one is left, which is combined with the initial values."""
    half = len(operands) // 2
    inputs, inits = operands[:half], operands[half:]
    rest = [a for a in range(len(inputs[0].shape)) if a not in axes]
    shape = tuple(inputs[0].shape[a] for a in rest)
    count = math.prod(inputs[0].shape[a] for a in axes)
    moved = [r.reshaped(x.transposed([*axes, *rest]), (count, *shape)) for x in inputs]
    left = [init.broadcast(shape) for init in inits]
    reduced = folded(r, op.regions[0].blocks[0], moved, left)
    results = [r.result(op, index) for index in range(half)]
    for source, target in zip(reduced, results, strict=True):
        r.copy(source, target)
    return results


def folded(r: Recorder, block: ir.Block, rows: list[View], inits: list[View]) -> list[View]:
    """What a body makes of the entries along the first axis, neighbours with neighbours, and of initial values."""
    while (count := rows[0].shape[0]) > 1:
        pairs = count // 2

        def along(x: View, start: int, stop: int, step: int = 1) -> View:
            ranges = [(0, n, 1) for n in x.shape]
            ranges[0] = (start, stop, step)
            return x.sliced(*zip(*ranges, strict=True))

        left = [along(x, 0, 2 * pairs, 2) for x in rows]
        right = [along(x, 1, 2 * pairs, 2) for x in rows]
        halved = [r.owned(x, left + right) for x in r.body(block, left + right)]
        if count % 2:
            ends = [along(x, pairs - 1, pairs) for x in halved]
            odd = [along(x, count - 1, count) for x in rows]
            for source, target in zip(r.body(block, ends + odd), ends, strict=True):
                r.copy(source, target)
        rows = halved
    if not rows[0].shape[0]:
        return inits
    return r.body(block, [*inits, *(x.at(0) for x in rows)])


def _map(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    mapped = r.body(op.regions[0].blocks[0], operands)
    out = r.result(op)
    r.copy(mapped[0].broadcast(out.shape) if mapped[0].shape != out.shape else mapped[0], out)
    return [out]


LOWERINGS: dict[str, Lowering] = {
    "reduce": _reduce,
    "map": _map,
}
