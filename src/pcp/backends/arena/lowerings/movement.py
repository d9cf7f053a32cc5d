"""Operations that move elements: views where strides say it, copies where they do not."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.constants import array_of
from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import Kind, View, row_major
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integer_of, integers_of
from pcp.ir.toolkit.tensor_types import spec_of

Array = np.ndarray[Any, Any]


def _constant(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    del operands
    spec = spec_of(op.results[0].type)
    array = array_of(op, spec)
    return [r.constant(array).broadcast(spec.shape)]


def _iota(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    del operands
    spec = spec_of(op.results[0].type)
    axis = integer_of(op.attributes["iota_dimension"])
    numbers = np.arange(spec.shape[axis]).astype(spec.dtype.numpy)
    return [r.constant(numbers).broadcast(spec.shape, [axis])]


def _reshape(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    return [r.reshaped(operands[0], spec_of(op.results[0].type).shape)]


def _transpose(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    del r
    return [operands[0].transposed(integers_of(op.attributes["permutation"]))]


def _broadcast(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    del r
    axes = integers_of(op.attributes["broadcast_dimensions"])
    return [operands[0].broadcast(spec_of(op.results[0].type).shape, axes)]


def _slice(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    """A view, unless that would keep much more memory alive than it has elements."""
    (x,) = operands
    bounds = [integers_of(op.attributes[name]) for name in ("start_indices", "limit_indices", "strides")]
    part = x.sliced(*bounds)
    large = x.storage.kind is Kind.transient and 2 * part.size * x.dtype.itemsize < x.storage.size
    if not large or x.storage.uses > 0 or x.storage.size < 1 << 16:
        return [part]
    out = r.result(op)
    r.copy(part, out)
    return [out]


def _reverse(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    del r
    return [operands[0].reversed(integers_of(op.attributes["dimensions"]))]


def _concatenate(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    axis, out, place = integer_of(op.attributes["dimension"]), r.result(op), 0
    for x in operands:
        starts, stops = [0] * len(out.shape), list(out.shape)
        starts[axis], stops[axis] = place, place + x.shape[axis]
        r.copy(x, out.sliced(starts, stops, [1] * len(out.shape)))
        place = stops[axis]
    return [out]


def padded(
    r: Recorder,
    x: View,
    value: View,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int],
    out: View | None = None,
) -> View:
    """An array with elements added around and between another's; negative edges are cut off."""
    shape = tuple(
        n + max(0, n - 1) * i + a + b for n, a, b, i in zip(x.shape, low, high, interior, strict=True)
    )
    out = r.new(shape, x.dtype) if out is None else out
    if not out.size:
        return out
    if shape != x.shape or any(low):
        r.emit(np.copyto, out, value, writes=(0,))
    starts, stops, source = [], [], []
    for n, total, a, i in zip(x.shape, shape, low, interior, strict=True):
        step = i + 1
        first = (-a + step - 1) // step if a < 0 else 0  # the first that is not cut off
        last = min(n - 1, (total - 1 - a) // step)
        source.append((first, last + 1))
        starts.append(a + first * step)
        stops.append(a + last * step + 1)
    if x.size and all(b > a for a, b in source):
        steps = [i + 1 for i in interior]
        part = x.sliced([a for a, _ in source], [b for _, b in source], [1] * len(shape))
        r.copy(part, out.sliced(starts, stops, steps))
    return out


def _pad(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, interior = (integers_of(op.attributes[name]) for name in names)
    x, value = operands
    return [padded(r, x, value, low, high, interior, r.result(op))]


def _bitcast(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    (x,), spec = operands, spec_of(op.results[0].type)
    dtype = spec.dtype.numpy
    if dtype.itemsize == x.dtype.itemsize:
        return [x.typed(dtype)]
    whole = r.contiguous(x)
    strides = row_major(spec.shape, dtype.itemsize)
    return [View(whole.storage, whole.offset, spec.shape, strides, dtype)]


def _barrier(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    del r, op
    return operands


LOWERINGS: dict[str, Lowering] = {
    "constant": _constant,
    "iota": _iota,
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "reverse": _reverse,
    "concatenate": _concatenate,
    "pad": _pad,
    "bitcast_convert": _bitcast,
    "optimization_barrier": _barrier,
}
