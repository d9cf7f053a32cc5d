"""Whether a kernel holds at a site: at its very shapes, on operands of several kinds, in the process that measures it.

What was tried elsewhere says nothing of these shapes. This runs in the child, beside the measurement of the kernel; what is
compared with is the plain operation.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.backends.base import Buffer
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.distances import Scale
from pcp.planning.judging.judge import result_name
from pcp.planning.judging.pair import Pair
from pcp.planning.measuring.measurement import Failure
from pcp.planning.measuring.subject import Subject
from pcp.planning.measuring.timing import Runnable, timed

Array = np.ndarray[Any, Any]
Stage = Callable[[str], None]

LARGEST = 0.3
"""The largest error on any operands, of the whole and of every slice."""
LEAST, TIMES = 1e-2, 1000.0
"""What may be wrong on other operands than normal ones: so many times the error on those, but at least this."""
ROUNDING = 8.0
"""Roundings by which two calls on the same operands may differ; the order of atomic additions is left to chance."""
NOISE = 0.25
"""Or by this part of the error: where results are rounded to fewer bits, a last bit that is left to chance is one of those."""
FEWEST = 16
"""Elements of a result from which on its own norm is its scale; fewer may be small by chance."""
REPEATS = 3
MANY = 1 << 24
"""Elements of the operands and results from which on only the kinds of operands are tried that matter most."""


Change = tuple[Array, Array]
"""A factor and an addend for an array; both broadcast to it, and are small."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of operands at a site.

    Arguments:
        name: for messages.
        floats: from a generator, a shape and whether the array is the first, what changes the array on which the kernel was
            judged.
        integers: from a generator and the array to another one of values in it.
        is_judged: whether errors are compared; otherwise only what is not finite.
        matters: whether it is tried at large sites, too.
    """

    name: str
    floats: Callable[[np.random.Generator, tuple[int, ...], bool], Change]
    integers: Callable[[np.random.Generator, Array], Array]
    is_judged: bool = True
    matters: bool = False


_ONE, _ZERO = np.ones((), np.float32), np.zeros((), np.float32)


def _skewed(rng: np.random.Generator, shape: tuple[int, ...], first: bool) -> Change:  # noqa: ARG001  (as all kinds)
    """Rows of unlike size."""
    rows = (*shape[:-1], 1) if shape else ()
    return np.exp(0.5 * np.asarray(rng.standard_normal(rows), np.float32)), _ZERO


def _equal(rng: np.random.Generator, array: Array) -> Array:
    return np.full_like(array, array.reshape(-1)[rng.integers(array.size)])


def _zipf(rng: np.random.Generator, array: Array) -> Array:
    ranks = np.exp(rng.random(array.shape) * math.log(array.size + 1.0)) - 1.0
    made: Array = array.reshape(-1)[np.minimum(ranks.astype(np.int64), array.size - 1)]
    return made


def _as_it_is(rng: np.random.Generator, array: Array) -> Array:  # noqa: ARG001  (as all kinds)
    return array


def _large(rng: np.random.Generator, shape: tuple[int, ...], first: bool) -> Change:  # noqa: ARG001  (as all kinds)
    return np.full((), 100, np.float32), _ZERO


def _half_masked(rng: np.random.Generator, shape: tuple[int, ...], first: bool) -> Change:  # noqa: ARG001  (as all kinds)
    if not first or not shape:
        return _ONE, _ZERO
    return _ONE, np.where(np.arange(shape[-1]) < shape[-1] // 2, -np.inf, 0).astype(np.float32)


def _with_nan(rng: np.random.Generator, shape: tuple[int, ...], first: bool) -> Change:
    addend = np.zeros(shape, np.float32)
    if first:
        addend.reshape(-1)[rng.integers(addend.size)] = np.nan
    return _ONE, addend


KINDS = (
    Kind("skewed", _skewed, _equal, matters=True),
    Kind("differently skewed", _skewed, _zipf),
    Kind("large", _large, _as_it_is, is_judged=False),
    Kind("masked", _half_masked, _as_it_is, matters=True),
    Kind("NaN", _with_nan, _as_it_is),
)


def fault_at_site(
    subject: Subject, candidate: Runnable, nonfinite: str, *, bits: bool, stage: Stage
) -> tuple[Failure, str] | None:
    """What is wrong with a kernel at a site, if anything.

    Arguments:
        subject: the operation alone, and operands that the kernel is measured on.
        candidate: the operation computed by the kernel.
        nonfinite: what the kernel claims of infinities and NaN; see `Kernel.nonfinite`.
        bits: whether it has to return the bits of the operation.
        stage: told whose code runs.
    """

    comparison = subject.comparison

    def called(which: Runnable, buffers: Sequence[Buffer]) -> list[Buffer]:
        stage("candidate" if which is candidate else "judging")
        results, _ = timed(which, buffers, subject.target)
        stage("judging")
        return results

    first = subject.inputs[0]
    plain, found = called(subject.plain, first), called(candidate, first)
    error = max((_error(comparison, y, right) for y, right in zip(found, plain, strict=True)), default=0.0)
    for _ in range(REPEATS):
        again = called(candidate, first)
        if not all(is_noise(comparison, a, b, bits, error) for a, b in zip(found, again, strict=True)):
            return (
                Failure.nondeterministic,
                "at its site it returns something else for the same operands, by more than roundings",
            )
    limit = min(LARGEST, max(LEAST, TIMES * error))
    del plain, found, again
    for kind, buffers in _operands(subject):
        plain, found = called(subject.plain, buffers), called(candidate, buffers)
        usual = functools.cache(functools.partial(_usual, buffers))
        for place, (y, right) in enumerate(zip(found, plain, strict=True)):
            if not subject.program.results[place].spec.dtype.is_float:
                same = np.array_equal(np.asarray(y), np.asarray(right))
                fault = None if same else (Failure.inaccurate, "is not that of the operation")
            else:
                fault = _fault(comparison.pair(y, right), kind, limit, usual, nonfinite, bits)
            if fault is not None:
                name = result_name(subject.program, place)
                return fault[0], f"at its site, on {kind.name} operands, result {name} {fault[1]}"
    return None


def _operands(subject: Subject) -> Iterator[tuple[Kind, list[Buffer]]]:
    entries = subject.program.arguments
    specs = [entry.spec for entry in entries] + [entry.spec for entry in subject.program.results]
    sizes = sum(spec.size for spec in specs)
    floats = [place for place, entry in enumerate(entries) if entry.spec.dtype.is_float]
    for count, kind in enumerate(KINDS):
        if sizes > MANY and not kind.matters:
            continue
        rng = np.random.default_rng([7, count])
        made = []
        for place, (entry, given) in enumerate(zip(entries, subject.inputs[0], strict=True)):
            spec = entry.spec
            if place in floats and spec.size:
                change = kind.floats(rng, spec.shape, place == floats[0])
                made.append(subject.comparison.changed(given, *change))
            elif not spec.dtype.is_differentiable and spec.size and spec.dtype.kind != "bool":
                array = kind.integers(rng, np.asarray(given)).astype(spec.dtype.numpy, copy=False)
                made.append(subject.target.place(array, spec))
            else:
                made.append(given)
        yield kind, subject.completed(made)


def _fault(
    pair: Pair, kind: Kind, limit: float, usual: Callable[[], float], nonfinite: str, bits: bool
) -> tuple[Failure, str] | None:
    skipped = nonfinite == "skips" and (pair.is_right_finite or not pair.is_finite)
    if pair.has_finite and not skipped:
        return Failure.not_finite, "is finite where infinities or NaN are expected"
    if nonfinite != "spreads" and pair.lacks_finite:
        return Failure.not_finite, "is infinite or NaN where finite numbers are expected"
    if bits and not pair.is_equal:
        return Failure.inaccurate, "is not bit for bit that of the operation"
    if kind.is_judged:
        error = _error_of(pair, usual)
        if error > limit:
            return Failure.inaccurate, f"has an error of {error:.2g}; at most {limit:.2g} is expected there"
    return None


def _usual(buffers: Sequence[Buffer]) -> float:
    """The size of usual operands: what cancels out to 0 has errors of that scale."""
    sizes = []
    for buffer in buffers:
        array = np.asarray(buffer)
        if array.dtype.kind in "fV":
            wide = array.astype(np.float64)
            sizes.append(float(np.sqrt(np.mean(np.where(np.isfinite(wide), wide, 0.0) ** 2))))
    return max(sizes, default=1.0)


def _error(comparison: Comparison, y: Any, right: Any) -> float:
    return _error_of(comparison.pair(y, right), lambda: 1.0) if right.dtype.kind in "fV" else 0.0


def _error_of(pair: Pair, usual: Callable[[], float]) -> float:
    """The error of the whole or of a slice, whichever is larger; what is exactly 0 is judged on the scale of usual numbers.

    So is what has few elements, which may be small by chance.
    """
    own, size = pair.scale, math.prod(pair.shape)
    if own.whole == 0.0 and pair.distance(Scale.of_elements(1.0, pair.shape)).error == 0.0:
        return 0.0  # on every scale, of which none need be computed
    if size < FEWEST or own.whole == 0.0:
        own = Scale.of_elements(max(usual(), own.whole / math.sqrt(max(1, size))) or 1.0, pair.shape)
    found = pair.distance(own)
    return max(found.error, found.slice_error)


def is_noise(comparison: Comparison, a: Any, b: Any, bits: bool, error: float = 0.0) -> bool:
    """Whether two results for the same operands, with such an error, differ by roundings at most."""
    if comparison.same_bits(a, b):
        return True
    if bits or a.dtype.kind not in "fV":
        return False
    pair = comparison.pair(b, a)
    if pair.has_finite or pair.lacks_finite:
        return False
    roundings = ROUNDING * 2.0 ** (-8 if a.dtype.itemsize == 2 else -24 if a.dtype.itemsize == 4 else -53)
    return _error_of(pair, lambda: 1.0) <= max(roundings, NOISE * error)
