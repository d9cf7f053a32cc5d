"""Comparing results where they lie: on a GPU by small compiled programs, of which only sums are read; elsewhere by NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pcp.backends import Executable, Target
from pcp.backends.base import Buffer
from pcp.ir import DType, Program, TensorSpec
from pcp.ir.types import dtype_of
from pcp.ops.elementwise import bitcast, convert, imag, is_finite, maximum, real, where
from pcp.ops.elementwise.composed import is_nan, logical_and, logical_not, logical_or
from pcp.ops.movement import stack
from pcp.ops.reductions.primitives import any_, sum_
from pcp.planning.judging import distances
from pcp.planning.judging.changes import Change, changed
from pcp.planning.judging.distances import SAFE_NORM, Distance, Scale, Squares, relative, sliced
from pcp.planning.judging.pair import Pair
from pcp.tensor import Tensor
from pcp.tracing import spec, trace

SMALL = 1 << 18
"""Elements of an array up to which reading it is quicker than compiling something, some thirty times."""
_UNSIGNED = {1: DType.u8, 2: DType.u16, 4: DType.u32, 8: DType.u64}

Array = np.ndarray[Any, Any]


class Comparison:
    """Compares results; what it compiles is kept by shape and element types: one program compares, and one changes.

    Arguments:
        target: what results are computed for.
        compiled: whether programs compare; None says on a GPU.
    """

    def __init__(self, target: Target, compiled: bool | None = None) -> None:
        self._target = target.with_options({})
        self._is_compiled = target.platform != "cpu" if compiled is None else compiled
        self._made: dict[tuple[Any, ...], Executable] = {}

    def same_bits(self, a: Any, b: Any) -> bool:
        """Whether two arrays are equal bit for bit."""
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        specs = [_spec(a), _spec(b)]
        if not self._compiles(specs[0]):
            return same_bits(a, b)
        if ("pair", *specs) in self._made:
            return not np.asarray(self._run("pair", _pair, specs, [a, b])[0])[-1]
        return float(self._run("bits", _differing, specs, [a, b])[0]) == 0.0

    def scale(self, right: Any, kept: float = 0.0, before: Any = None) -> Scale:
        """What the errors of a result are relative to: the norms of what is new in it.

        Arguments:
            right: the result as it should be.
            kept, before: how much stays in it of what it came from; see `pcp.ir.Argument`.
        """
        if self._compiles(_spec(right)):
            own = self._squares(right, right if before is None else before, 0.0 if before is None else kept)
            if own.is_safe:
                return Scale.of(own)
        return distances.scale_of(np.asarray(right), kept, None if before is None else np.asarray(before))

    def distance(
        self, result: Any, right: Any, scale: Scale, stored: bool = False, noise: Squares | None = None
    ) -> Distance:
        """How far a result is from what it should be, relative to a scale.

        Arguments:
            stored: whether what no way to store the result avoids is left out: the squares of what rounding `right` to the type
                of the result makes wrong are taken off those of the distance.
            noise: squares that are taken off as well.
        """
        if self._compiles(_spec(right)):
            difference = self._squares(result, right, 1.0, stored).less(noise)
            if np.isfinite(difference.whole) and scale.whole > SAFE_NORM:
                return relative(difference, scale)
        return distances.distance(np.asarray(result), np.asarray(right), scale, stored, noise)

    def pair(self, result: Any, right: Any) -> Pair:
        """A floating-point result beside what it should be, not finite numbers included."""
        if self._compiles(_spec(right)):
            specs = [_spec(result), _spec(right)]
            counts, *sums = (np.asarray(each) for each in self._run("pair", _pair, specs, [result, right]))
            middle = len(sums) // 2
            difference, own = (
                Squares.of_axes(specs[0].shape, part) for part in (sums[:middle], sums[middle:])
            )
            # Squares of float32 and what is shorter are numbers of float64, so 0 is 0: nothing is finite in both, or all is 0.
            is_nothing = own.whole == difference.whole == 0.0 and specs[1].dtype is not DType.f64
            if is_nothing or (own.is_safe and np.isfinite(difference.whole)):
                return Pair(
                    specs[0].shape, *_flags(counts), Scale.of(own), lambda scale: relative(difference, scale)
                )
        return Pair.of(np.asarray(result), np.asarray(right))

    def changed(self, array: Any, change: Change) -> Buffer:
        """A floating-point array, changed."""
        own = _spec(array)
        if not self._compiles(own):
            return self._target.place(change.of(np.asarray(array)).astype(own.dtype.numpy), own)
        return self._changed(array, own, change)[0]

    def size(self, array: Any) -> float:
        """The root mean square of the elements of a floating-point array that are finite; of others they count as 0."""
        own = _spec(array)
        if not self._compiles(own):
            wide = np.asarray(array).astype(np.float64)
            with np.errstate(over="ignore"):
                return (
                    float(np.sqrt(np.mean(np.where(np.isfinite(wide), wide, 0.0) ** 2))) if own.size else 0.0
                )
        if ("pair", own, own) in self._made:
            square = np.sum(np.asarray(self._run("pair", _pair, [own, own], [array, array])[-1]))
        else:
            square = np.asarray(self._changed(array, own, Change())[1])
        return float(np.sqrt(square / own.size))

    def _changed(self, array: Any, own: TensorSpec, change: Change) -> list[Buffer]:
        numbers = change.numbers(own.shape)
        return self._run("changed", changed, [own, *map(_spec, numbers)], [array, *numbers])

    def _squares(self, a: Any, b: Any, factor: float, stored: bool = False) -> Squares:
        """Sums of the squares of a - factor b; without those of rounding b to the type of a where that is stored."""
        specs = [_spec(a), _spec(b), TensorSpec((), DType.f64)]
        what, function = ("stored", _stored_sums) if stored else ("squares", _sums)
        sums = self._run(what, function, specs, [a, b, np.float64(factor)])
        return Squares.of_axes(specs[0].shape, [np.asarray(each) for each in sums])

    def _compiles(self, of: TensorSpec) -> bool:
        return self._is_compiled and of.size > SMALL

    def _run(
        self, what: str, function: Callable[..., Any], specs: list[TensorSpec], arrays: list[Any]
    ) -> list[Buffer]:
        key = (what, *specs)
        executable = self._made.get(key)
        if executable is None:
            program: Program = trace(function, *(spec(each.shape, each.dtype) for each in specs))
            executable = self._made[key] = self._target.compile(program)
        there = self._target
        pairs = zip(arrays, specs, strict=True)
        return executable.run(
            [each if there.holds(each) else there.place(np.asarray(each), spec) for each, spec in pairs]
        )


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays are equal bit for bit, on the processor."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(_bytes(a), _bytes(b)))


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _spec(array: Any) -> TensorSpec:
    return TensorSpec(tuple(array.shape), dtype_of(array.dtype))


def _sums(a: Tensor, b: Tensor, factor: Tensor) -> tuple[Tensor, ...]:
    """The squares of a - factor b, summed over all axes but one, for each axis that has slices."""
    wide = DType.c128 if "complex" in (a.dtype.kind, b.dtype.kind) else DType.f64
    difference = convert(a, wide) - convert(factor, wide) * convert(b, wide)
    parts = [real(difference), imag(difference)] if wide is DType.c128 else [difference]
    squares = [part * part for part in parts]
    square = squares[0] + squares[1] if len(squares) > 1 else squares[0]
    return _along_slices(square)


def _stored_sums(a: Tensor, b: Tensor, factor: Tensor) -> tuple[Tensor, ...]:
    """As `_sums`, without the squares of what rounding b to the type of a makes wrong."""
    exact, factor = convert(b, DType.f64), convert(factor, DType.f64)
    difference = convert(a, DType.f64) - factor * exact
    rounding = convert(convert(b, a.dtype), DType.f64) - exact
    # A compiler may round twice, by float32 to float16: that is not the nearest, and nothing is below zero.
    return _along_slices(maximum(difference * difference - rounding * rounding, 0.0))


def _along_slices(square: Tensor) -> tuple[Tensor, ...]:
    axes = range(len(square.shape))
    return tuple(
        sum_(square, axis=tuple(other for other in axes if other != axis)) for axis in sliced(square.shape)
    )


def _pair(result: Tensor, right: Tensor) -> tuple[Tensor, ...]:
    """The numbers that `_flags` reads, and sums of squares of the difference and of what is right, where both are finite."""
    here, there = is_finite(result), is_finite(right)
    both = logical_and(here, there)
    equal = logical_or(result == right, logical_and(is_nan(result), is_nan(right)))
    flags = [
        logical_and(here, logical_not(there)),
        logical_and(there, logical_not(here)),
        *map(logical_not, (here, there, equal)),
        _other_bits(result, right) if result.dtype is right.dtype else logical_not(equal),
    ]
    counts = stack([convert(any_(each), DType.i32) for each in flags])
    y, exact = (where(both, convert(each, DType.f64), 0.0) for each in (result, right))
    return counts, *_along_slices((y - exact) * (y - exact)), *_along_slices(exact * exact)


def _flags(counts: Array) -> tuple[bool, bool, bool, bool, bool]:
    has_finite, lacks_finite, not_finite, not_right_finite, not_equal, _ = map(bool, counts)
    return has_finite, lacks_finite, not not_finite, not not_right_finite, not not_equal


def _differing(a: Tensor, b: Tensor) -> Tensor:
    """How many elements have other bits."""
    if a.dtype.kind == "complex":
        return _differing(real(a), real(b)) + _differing(imag(a), imag(b))
    return sum_(convert(_other_bits(a, b), DType.f32))


def _other_bits(a: Tensor, b: Tensor) -> Tensor:
    """Which elements have other bits."""
    if not a.dtype.is_float:
        return a != b
    size = np.dtype(a.dtype.numpy).itemsize
    return bitcast(a, _UNSIGNED[size]) != bitcast(b, _UNSIGNED[size])
