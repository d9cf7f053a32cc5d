"""How far one result of a kernel from outside is from what it should be: as a whole, and where it is worst."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.planning.judging.distances import Scale, distance, scale_of
from pcp.planning.judging.tolerance import least_tolerance
from pcp.planning.verification.expected import Expectation, Outcome
from pcp.planning.verification.fault import Fault
from pcp.planning.verification.values import Values, smallest_normal

Array = np.ndarray[Any, Any]

PART = 1 << 21
"""Elements of a large result that are compared at once."""
FEWEST = 16
"""Elements of a result from which on its relative error says something; fewer may be small by chance."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """How wrong one result is.

    Arguments:
        fault: where an element is not finite that should be, or the other way round.
        detail: which element, and what it is.
        error: the smallest tolerance that it is within; None where that says nothing.
        worst: the largest error of one element on its scale.
        place: of that element, in words.
        plain_error, plain_worst: the same of the plain program.
        same_bits: whether it has the bits of the plain program.
    """

    fault: Fault | None
    detail: str
    error: float | None
    worst: float
    place: str
    plain_error: float
    plain_worst: float
    same_bits: bool


def judged(result: Array, outcome: Outcome, typical: bool, nonfinite: str) -> Deviation:
    """Compare a result with what it should be.

    Arguments:
        result: what the kernel returned.
        outcome: what it should be.
        typical: whether `error` is asked for.
        nonfinite: what the kernel claims to do where an operand is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = outcome.exact.astype(result.dtype)
        fault, detail = _not_finite(result, rounded, outcome.plain, nonfinite)
        compared = np.isfinite(rounded) & np.isfinite(outcome.plain) & np.isfinite(result)
        scaled, plain_scaled = (_scaled(each, outcome, compared) for each in (result, outcome.plain))
    error = plain_error = None
    if typical and result.size >= FEWEST and compared.all():
        scale = scale_of(outcome.exact)
        error, plain_error = (_error(each, outcome.exact, scale) for each in (result, outcome.plain))
    at = np.unravel_index(int(np.argmax(scaled)), scaled.shape) if scaled.size else ()
    words = f"element {tuple(map(int, at))} is {result[at]}, expected {rounded[at]}"
    return Deviation(
        fault,
        detail,
        error,
        float(scaled.max(initial=0.0)),
        words,
        plain_error or 0.0,
        float(plain_scaled.max(initial=0.0)),
        result.tobytes() == outcome.plain.tobytes(),
    )


def _error(y: Array, exact: Array, scale: Scale) -> float:
    """The smallest tolerance that a result is within, as `pcp.planning.judging.tolerance` says."""
    found = distance(y, exact, scale)
    return least_tolerance(found.error, found.slice_error)


def judged_in_parts(result: Array, exact: Array, plain: Array) -> Deviation:
    """Compare a large result with what it should be, a part at a time; its elements are finite.

    An element is judged on the scale of its own value, or of the typical one where that is larger.
    """
    flat = [array.reshape(-1) for array in (result, exact, plain)]
    parts = [slice(start, start + PART) for start in range(0, result.size, PART)]
    own = scale_of(exact)
    # Where most is 0, as in the gradient of a large table, its norm says nothing of the size of the rest.
    typical = own.whole / math.sqrt(max(1, sum(int(np.count_nonzero(flat[1][part])) for part in parts)))
    worst, at = [0.0, 0.0], 0
    for part in parts:
        y, right, other = (each[part].astype(np.float64) for each in flat)
        bad = ~np.isfinite(y) & np.isfinite(other)
        if bad.any():
            at = part.start + int(np.argmax(bad))
            place = tuple(map(int, np.unravel_index(at, result.shape)))
            detail = f"element {place} is {flat[0][at]}, expected {flat[1][at]}"
            return Deviation(Fault.not_finite, detail, None, 0.0, detail, 0.0, 0.0, False)
        scale = np.maximum(np.abs(right), typical)
        for which, each in enumerate((y, other)):
            difference = np.abs(each - right)
            scaled = np.divide(difference, scale, out=np.zeros_like(difference), where=difference > 0)
            largest = float(scaled.max(initial=0.0))
            if which == 0 and largest > worst[0]:
                at = part.start + int(np.argmax(scaled))
            worst[which] = max(worst[which], largest)
    place = tuple(map(int, np.unravel_index(at, result.shape)))
    words = f"element {place} is {flat[0][at]}, expected {flat[1][at]}"
    error, plain_error = (_error(each, exact, own) for each in (result, plain))
    is_same = all(flat[0][part].tobytes() == flat[2][part].tobytes() for part in parts)
    return Deviation(None, "", error, worst[0], words, plain_error, worst[1], is_same)


def judgements_of(
    expected: Expectation, results: Sequence[Sequence[Array]], nonfinite: str
) -> list[tuple[Values, Deviation]]:
    """One judgement of every list of arguments: that of its worst result.

    Arguments:
        nonfinite: as for `judged`.
    """
    made = []
    for values, outcomes, found in zip(expected.kinds, expected.outcomes, results, strict=True):
        claimed = "exact" if values.finite else nonfinite
        each = [
            judged(result, outcome, values.typical, claimed)
            for result, outcome in zip(found, outcomes, strict=True)
        ]
        made.append((values, max(each, key=lambda one: (one.fault is not None, one.error or 0.0, one.worst))))
    return made


def difference(result: Array, again: Array, outcome: Outcome) -> float:
    """How far two results for the same operands lie apart: the worst element, on its scale; infinite where one is no number."""
    with np.errstate(over="ignore", invalid="ignore"):
        a, b = result.astype(np.float64), again.astype(np.float64)
        if not _same_kind(a, b).all():
            return math.inf
        finite = np.isfinite(a)
        distance = np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0))
        scaled = np.divide(
            distance, outcome.scale, out=np.where(distance > 0, np.inf, 0.0), where=outcome.scale > 0
        )
    return float(scaled.max(initial=0.0))


def pooled(results: Sequence[Array], outcomes: Sequence[Outcome]) -> Deviation:
    """Compare several small results, of operands of one size and scale, as if they were one."""
    parts = (
        np.concatenate([getattr(each, name).reshape(-1) for each in outcomes])
        for name in ("exact", "flushed", "plain", "scale")
    )
    return judged(np.concatenate([each.reshape(-1) for each in results]), Outcome(*parts), True, "exact")


def same(results: Sequence[Array], others: Sequence[Array]) -> bool:
    """Whether two calls returned the same bits."""
    return all(a.tobytes() == b.tobytes() for a, b in zip(results, others, strict=True))


def repeats(results: Sequence[Sequence[Array]], expected: Expectation, old: int, new: int) -> bool:
    """Whether a call returned the results of an earlier one, which were right there and are not constant."""
    varied = any(np.unique(each).size > 1 for each in results[old])
    plain = ([outcome.plain for outcome in expected.outcomes[place]] for place in (old, new))
    return varied and same(results[old], results[new]) and not same(*plain)


def _scaled(result: Array, outcome: Outcome, compared: Array) -> Array:
    """The error of every element on its scale; operands and results that are denormal may be read and written as 0."""
    wide = result.astype(np.float64)
    low = np.minimum(outcome.exact, outcome.flushed)
    high = np.maximum(outcome.exact, outcome.flushed)
    slack = smallest_normal(result.dtype)
    distance = np.where(compared, np.maximum(low - wide, wide - high) - slack, 0.0)
    distance = np.maximum(distance, 0.0)
    scaled: Array = np.divide(
        distance, outcome.scale, out=np.where(distance > 0, np.inf, 0.0), where=outcome.scale > 0
    )
    return scaled


def _not_finite(result: Array, rounded: Array, plain: Array, nonfinite: str) -> tuple[Fault | None, str]:
    certain = _same_kind(rounded, plain)
    finite, is_nan = np.isfinite(rounded), np.isnan(result)
    allowed_nan = is_nan & (~finite if nonfinite == "nan" else np.full(finite.shape, nonfinite == "spreads"))
    # Infinity hides nothing where NaN was expected: some forms of the same mathematics are defined there.
    loud = np.isnan(rounded) & ~np.isfinite(result)
    hidden = certain & ~finite & ~_same_kind(result, rounded) & ~allowed_nan & ~loud
    broken = certain & finite & ~np.isfinite(result) & ~allowed_nan
    for where, fault in ((hidden, Fault.hides_nonfinite), (broken, Fault.not_finite)):
        if where.any():
            at = tuple(int(each[0]) for each in np.nonzero(where))
            return fault, f"element {at} is {result[at]}, expected {rounded[at]}"
    return None, ""


def _same_kind(a: Array, b: Array) -> Array:
    """Where both are finite, both NaN, or the same infinity."""
    infinite = np.isinf(a) & np.isinf(b) & (np.signbit(a) == np.signbit(b))
    made: Array = (np.isfinite(a) & np.isfinite(b)) | (np.isnan(a) & np.isnan(b)) | infinite
    return made
