"""Normalisation over all axes but that of the features, in float64, some rows at a time."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.lowerings.elementwise import BLOCK, blocks_of
from pcp.backends.arena.recording import Lowering, Recorder
from pcp.backends.arena.storage import View
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integer_of

Array = np.ndarray[Any, Any]


def _batch_norm(r: Recorder, op: ir.Operation, operands: list[View]) -> Sequence[View]:
    axis = integer_of(op.attributes["feature_index"])
    epsilon = ir.FloatAttr(op.attributes["epsilon"]).value
    outs = [r.result(op, index) for index in range(len(op.results))]
    function = _BATCH_NORMS[op.name.removeprefix("stablehlo.")]
    r.emit(function, axis, epsilon, *operands, *outs, writes=range(-len(outs), 0))
    return outs


def _blocks(axis: int, *arrays: Array) -> Iterator[list[Array]]:
    """Some rows of arrays at once, the features last; what is written to one of them is written to its array."""
    moved = [np.moveaxis(x, axis, -1) for x in arrays]
    *rest, features = moved[0].shape
    if moved[0].size:
        for place in blocks_of(rest, max(1, BLOCK // features)):
            yield [x[(*place, ...)] for x in moved]


def _sum(x: Array) -> Array:
    """Over all but the features."""
    total: Array = x.reshape(-1, x.shape[-1]).sum(0)
    return total


def _count(axis: int, x: Array) -> np.float64:
    """How many elements a feature has."""
    return np.float64(math.prod(n for a, n in enumerate(x.shape) if a != axis))


def _wide(x: Array) -> Array:
    return x.astype(np.float64)


def _inference(
    axis: int, epsilon: float, x: Array, scale: Array, offset: Array, mean: Array, variance: Array, out: Array
) -> None:
    scale, offset, mean = _wide(scale), _wide(offset), _wide(mean)
    deviation = np.sqrt(_wide(variance) + epsilon)
    for rows, target in _blocks(axis, x, out):
        np.copyto(target, (_wide(rows) - mean) / deviation * scale + offset, casting="unsafe")


def _training(
    axis: int, epsilon: float, x: Array, scale: Array, offset: Array, out: Array, mean: Array, variance: Array
) -> None:
    zero, count = np.zeros(x.shape[axis]), _count(axis, x)
    average = sum((_sum(_wide(rows)) for (rows,) in _blocks(axis, x)), zero) / count
    spread = sum((_sum((_wide(rows) - average) ** 2) for (rows,) in _blocks(axis, x)), zero) / count
    np.copyto(mean, average, casting="unsafe")
    np.copyto(variance, spread, casting="unsafe")
    _inference(axis, epsilon, x, scale, offset, average, spread, out)


def _gradient(
    axis: int, epsilon: float, x: Array, scale: Array, mean: Array, variance: Array, cotangent: Array,
    out: Array, of_scale: Array, of_offset: Array,
) -> None:  # fmt: skip
    mean, deviation = _wide(mean), 1 / np.sqrt(_wide(variance) + epsilon)
    factor, count = _wide(scale) * deviation, _count(axis, x)
    total = aligned = np.zeros_like(mean)
    for rows, g in _blocks(axis, x, cotangent):
        total = total + _sum(_wide(g))
        aligned = aligned + _sum(_wide(g) * (_wide(rows) - mean) * deviation)
    for rows, g, target in _blocks(axis, x, cotangent, out):
        normal = (_wide(rows) - mean) * deviation
        np.copyto(target, factor * (_wide(g) - total / count - normal * (aligned / count)), casting="unsafe")
    np.copyto(of_scale, aligned, casting="unsafe")
    np.copyto(of_offset, total, casting="unsafe")


_BATCH_NORMS: dict[str, Callable[..., None]] = {
    "batch_norm_inference": _inference,
    "batch_norm_training": _training,
    "batch_norm_grad": _gradient,
}

LOWERINGS: dict[str, Lowering] = dict.fromkeys(_BATCH_NORMS, _batch_norm)
