"""Norms of results and of differences between them: of the whole and of every slice along every axis. On the processor."""

import functools
import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcp.backends.processors import core_count
from pcp.interruption import all_of
from pcp.ir import DType

_CHUNK, _CHUNKS = 1 << 15, 64
"""Elements that are in the caches together, and chunks that one thread takes: larger arrays are walked by every processor."""
_SAFE_SQUARES = (1e-200, 1e300)
SAFE_NORM = 1e-90
"""Of a norm this large, a part of 1e-10 still has a square that float64 holds."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Squares:
    """Sums of the squares of an array's elements.

    Arguments:
        whole: of all.
        axes: by axis of more than one element, of each slice along it; shape (length of the axis,).
    """

    whole: float
    axes: dict[int, Array]

    @staticmethod
    def of_axes(shape: tuple[int, ...], sums: list[Array]) -> "Squares":
        """From the sums along `sliced(shape)`, or of the only element where there are none."""
        return Squares(float(np.sum(sums[0])), dict(zip(sliced(shape), sums, strict=False)))

    def less(self, other: "Squares | None") -> "Squares":
        """Without those of another, and none below zero."""
        if other is None:
            return self
        axes = {axis: np.maximum(sums - other.axes[axis], 0.0) for axis, sums in self.axes.items()}
        return Squares(max(self.whole - other.whole, 0.0), axes)

    @property
    def is_safe(self) -> bool:
        """Whether the sum is a number that float64 holds, and not too small for its root to be exact."""
        return bool(np.isfinite(self.whole)) and _SAFE_SQUARES[0] < self.whole < _SAFE_SQUARES[1]


@dataclass(frozen=True, slots=True)
class Scale:
    """What the errors of a result are relative to.

    Arguments:
        whole: the norm of all of it.
        axes: by axis, the scale of each slice; shape (length of the axis,).
        lost: the part of its elements that are no numbers to be judged by.
    """

    whole: float
    axes: dict[int, Array]
    lost: float = 0.0

    @staticmethod
    def of(right: Squares) -> "Scale":
        """Of a result by its own: a slice counts by its norm, or the mean norm of its axis if that is larger."""
        norms = {axis: np.sqrt(sums) for axis, sums in right.axes.items()}
        return Scale(
            float(np.sqrt(right.whole)),
            {axis: np.maximum(each, np.mean(each)) for axis, each in norms.items()},
        )

    @staticmethod
    def of_elements(size: float, shape: tuple[int, ...]) -> "Scale":
        """Of a result whose elements should be of some size."""
        count = int(np.prod(shape, dtype=np.int64))
        return Scale(
            size * float(np.sqrt(count)),
            {axis: np.full(shape[axis], size * np.sqrt(count / shape[axis])) for axis in sliced(shape)},
        )

    def times(self, factor: float) -> "Scale":
        """The same in other units."""
        with np.errstate(over="ignore"):
            return Scale(self.whole * factor, {axis: each * factor for axis, each in self.axes.items()})


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a result is from another one, relative to a scale.

    Arguments:
        error: of the whole.
        slice_error: the largest of any slice.
        slice: which slice that is; empty where there is none.
    """

    error: float
    slice_error: float = 0.0
    slice: str = ""


INFINITE = Distance(float("inf"), float("inf"))
"""Of a result with a number that is not finite where it should be, or the other way round."""


def sliced(shape: tuple[int, ...]) -> list[int]:
    """The axes along which there are slices."""
    return [axis for axis, length in enumerate(shape) if length > 1]


def relative(difference: Squares, scale: Scale) -> Distance:
    """A distance from the squares of a difference."""
    largest, where = 0.0, ""
    for axis, sums in difference.axes.items():
        parts = np.zeros_like(sums)
        roots = np.sqrt(sums)
        with np.errstate(divide="ignore"):
            np.divide(roots, scale.axes[axis], out=parts, where=roots > 0)
        index = int(np.argmax(parts))
        if parts[index] > largest:
            largest, where = float(parts[index]), f"axis {axis}, index {index}"
    return Distance(_ratio(float(np.sqrt(difference.whole)), scale.whole), largest, where)


def squares(
    result: Array,
    right: Array | None = None,
    kept: float = 0.0,
    before: Array | None = None,
    stored: bool = False,
) -> Squares:
    """The squares of result - right - kept * before, in one walk over memory, in float64.

    Arguments:
        result: of any shape and numerical type.
        right: what is subtracted, of that shape; None subtracts nothing.
        kept, before: as `Argument.kept`; None subtracts nothing.
        stored: whether squares of what rounding `right` to the type of the result makes wrong are taken off.
    """
    shape = result.shape
    axes = sliced(shape)
    if result.size == 0:
        return Squares(0.0, {axis: np.zeros(shape[axis]) for axis in axes})
    rows = shape[axes[0]] if axes else 1
    arrays = [None if each is None else each.reshape(rows, -1) for each in (result, right, before)]
    width = result.size // rows
    by_row, by_column = np.zeros(rows), np.zeros(width)
    step = max(1, _CHUNK // width)

    def summed(beginnings: range) -> list[Array]:
        columns = []
        with np.errstate(all="ignore"):
            for start in beginnings:
                parts = [None if each is None else each[start : start + step] for each in arrays]
                square = _square(_difference(parts[0], parts[1], kept, parts[2]))
                if stored and parts[1] is not None:
                    square -= _square(_difference(parts[1].astype(result.dtype), parts[1], 0.0, None))
                by_row[start : start + step] = np.sum(square, axis=1)
                columns.append(np.sum(square, axis=0))
        return columns

    starts = range(0, rows, step)
    tasks = [starts[first : first + _CHUNKS] for first in range(0, len(starts), _CHUNKS)]
    calls = [functools.partial(summed, task) for task in tasks]
    parts = all_of(calls, core_count()) if len(calls) > 1 else [call() for call in calls]
    for part in itertools.chain.from_iterable(parts):
        by_column += part
    rest = by_column.reshape([shape[axis] for axis in axes[1:]])
    sums = [by_row]
    for place in range(len(axes) - 1):
        sums.append(np.sum(rest, axis=tuple(i for i in range(rest.ndim) if i != place)))
    return Squares.of_axes(shape, sums)


def scale_of(right: Array, kept: float = 0.0, before: Array | None = None) -> Scale:
    """The scale of a result by its own: the norms of what is new in it, where its numbers are finite.

    Arguments:
        right: the result.
        kept, before: as `Argument.kept`.
    """
    own = squares(right, None, kept, before)
    if own.is_safe:
        return Scale.of(own)
    difference = _difference(right, None, kept, before)
    difference[~np.isfinite(difference)] = 0
    unit = float(np.max(np.abs(difference), initial=0.0))
    scale = Scale.of(squares(difference / unit)).times(unit) if unit else Scale.of_elements(0.0, right.shape)
    return replace(scale, lost=_lost(right))


def _lost(right: Array) -> float:
    """The part of a result's elements that are NaN or infinite. -inf beside numbers is one: what a mask hides, or a choice."""
    if not right.size:
        return 0.0
    finite = np.isfinite(right)
    if not finite.any():
        return 1.0
    return float(np.mean(~finite if right.dtype.kind == "c" else ~finite & (right != -np.inf)))


def rounded_by_chance(right: Array, kept: float, before: Array) -> Squares:
    """The squares that are wrong on average where a result is rounded to bfloat16 by chance, and what it came from to the
    nearest.

    Arguments:
        kept, before: as `Argument.kept`.
    """
    exact, was = right.astype(np.float64), before.astype(np.float64)
    bits = right.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    down, up = bits.view(np.float32), (bits + np.uint32(0x10000)).view(np.float32)
    with np.errstate(all="ignore"):
        variance = np.maximum((up - exact) * (exact - down), 0.0)
        return squares(
            np.sqrt(variance + (kept * (was.astype(DType.bf16.numpy).astype(np.float64) - was)) ** 2)
        )


def distance(
    result: Array, right: Array, scale: Scale, stored: bool = False, noise: Squares | None = None
) -> Distance:
    """How far a result is from what it should be, whatever numbers are in the two.

    Arguments:
        result, right: of one shape, real or complex.
        scale: what the distance is relative to.
        stored: whether rounding that no way to store it avoids is left out, where all numbers are finite.
        noise: squares that are taken off those of the difference then.
    """
    difference = squares(result, right, stored=stored).less(noise)
    if np.isfinite(difference.whole) and scale.whole > SAFE_NORM:
        return relative(difference, scale)
    wide = np.complex128 if "c" in (result.dtype.kind, right.dtype.kind) else np.float64
    y, exact = result.astype(wide), right.astype(wide)
    finite = np.isfinite(exact)
    if not np.array_equal(y[~finite], exact[~finite], equal_nan=True) or not np.isfinite(y[finite]).all():
        return INFINITE
    y[~finite] = exact[~finite] = 0
    with np.errstate(over="ignore"):
        unit = float(np.max(np.abs(y - exact), initial=0.0))
    if unit == 0.0:
        return Distance(0.0)
    if not np.isfinite(unit):
        return INFINITE
    return relative(squares((y - exact) / unit), scale.times(1 / unit))


def share(result: Array, right: Array) -> float:
    """The share of elements that differ."""
    return float(np.mean(result != right)) if result.size else 0.0


def _difference(result: Any, right: Any, kept: float, before: Any) -> Array:
    kind = np.complex128 if np.result_type(result).kind == "c" else np.float64
    difference: Array = result.astype(kind)
    if right is not None:
        difference -= right
    if before is not None and kept:
        difference -= kept * before.astype(kind)
    return difference


def _square(x: Array) -> Array:
    return x.real**2 + x.imag**2 if x.dtype.kind == "c" else np.multiply(x, x, out=x)


def _ratio(distance: float, scale: float) -> float:
    return 0.0 if distance == 0.0 else distance / scale if scale > 0.0 else float("inf")
