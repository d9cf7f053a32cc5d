"""How far one result of a kernel from outside is from what it should be: as a whole, and where it is worst."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.planning.judging.distances import distance, scale_of
from pcp.planning.judging.tolerance import least_tolerance
from pcp.planning.measuring.measurement import Failure
from pcp.planning.measuring.site_case import FEWEST
from pcp.planning.verification.expected import Expectation, Outcome
from pcp.planning.verification.values import Values, smallest_normal

Array = np.ndarray[Any, Any]

PART = 1 << 21
"""Elements of a large result that are compared at once."""


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

    fault: Failure | None
    detail: str
    error: float | None
    worst: float
    place: str
    plain_error: float
    plain_worst: float
    same_bits: bool


def judged(result: Array, outcome: Outcome, typical: bool, nonfinite: str) -> Deviation:
    """Compare a result with what it should be, of a large one a part at a time.

    Arguments:
        result: what the kernel returned.
        outcome: what it should be.
        typical: whether `error` is asked for.
        nonfinite: what the kernel claims to do where an operand is not finite.
    """
    fault, detail, at, worst, plain_worst = None, "", 0, -1.0, 0.0
    all_compared = same_bits = True
    scales = (
        outcome.scale
        if isinstance(outcome.scale, np.ndarray)
        else np.broadcast_to(outcome.scale, result.size)
    )
    flat = [each.reshape(-1) for each in (result, outcome.exact, outcome.flushed, outcome.plain, scales)]
    for start in range(0, result.size, PART):
        y, exact, read, plain, scale = (each[start : start + PART] for each in flat)
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = exact.astype(result.dtype)
            where, part_fault = _not_finite(y, rounded, plain, nonfinite)
            compared = np.isfinite(rounded) & np.isfinite(plain) & np.isfinite(y)
            limits = np.minimum(exact, read), np.maximum(exact, read), np.maximum(np.abs(exact), scale)
            scaled, plain_scaled = (_scaled(each, *limits, compared) for each in (y, plain))
        if part_fault is not None and fault is None:
            fault, detail = part_fault, _element(result, outcome, start + where)
        all_compared = all_compared and bool(compared.all())
        same_bits = same_bits and y.tobytes() == plain.tobytes()
        if scaled.max() > worst:
            at, worst = start + int(np.argmax(scaled)), float(scaled.max())
        plain_worst = max(plain_worst, float(plain_scaled.max()))
    error = plain_error = None
    if typical and result.size >= FEWEST and all_compared:
        whole = scale_of(outcome.exact)
        gaps = (distance(each, outcome.exact, whole) for each in (result, outcome.plain))
        error, plain_error = (least_tolerance(gap.error, gap.slice_error) for gap in gaps)
    place = _element(result, outcome, at) if result.size else ""
    return Deviation(fault, detail, error, max(worst, 0.0), place, plain_error or 0.0, plain_worst, same_bits)


def _element(result: Array, outcome: Outcome, at: int) -> str:
    """What an element is, and what it should be."""
    place = tuple(map(int, np.unravel_index(at, result.shape)))
    with np.errstate(over="ignore"):
        return f"element {place} is {result[place]}, expected {outcome.exact[place].astype(result.dtype)}"


def judgements_of(
    expected: Expectation, results: Sequence[Sequence[Array]], nonfinite: str
) -> list[tuple[Values, Deviation]]:
    """For every list of arguments the judgement of its worst result.

    Arguments:
        nonfinite: as for `judged`.
    """
    worst = []
    for values, outcomes, returned in zip(expected.kinds, expected.outcomes, results, strict=True):
        claimed = "exact" if values.finite else nonfinite
        each = [
            judged(result, outcome, values.typical, claimed)
            for result, outcome in zip(returned, outcomes, strict=True)
        ]
        worst.append(
            (values, max(each, key=lambda one: (one.fault is not None, one.error or 0.0, one.worst)))
        )
    return worst


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


def _scaled(result: Array, low: Array, high: Array, scale: Array, compared: Array) -> Array:
    """The error of every element on its scale; operands and results that are denormal may be read and written as 0."""
    wide = result.astype(np.float64)
    distance = np.maximum(low - wide, wide - high) - smallest_normal(result.dtype)
    distance = np.where(compared, np.maximum(distance, 0.0), 0.0)
    scaled: Array = np.divide(distance, scale, out=np.where(distance > 0, np.inf, 0.0), where=scale > 0)
    return scaled


def _not_finite(result: Array, rounded: Array, plain: Array, nonfinite: str) -> tuple[int, Failure | None]:
    """The first element that is not finite where it should be, or the other way round."""
    certain = _same_kind(rounded, plain)
    finite, is_nan = np.isfinite(rounded), np.isnan(result)
    allowed_nan = is_nan & (~finite if nonfinite == "nan" else np.full(finite.shape, nonfinite == "spreads"))
    # Infinity hides nothing where NaN was expected: some forms of the same mathematics are defined there.
    loud = np.isnan(rounded) & ~np.isfinite(result)
    hidden = certain & ~finite & ~_same_kind(result, rounded) & ~allowed_nan & ~loud
    broken = certain & finite & ~np.isfinite(result) & ~allowed_nan
    for where, fault in ((hidden, Failure.hides_nonfinite), (broken, Failure.not_finite)):
        if where.any():
            return int(np.argmax(where)), fault
    return 0, None


def _same_kind(a: Array, b: Array) -> Array:
    """Where both are finite, both NaN, or the same infinity."""
    infinite = np.isinf(a) & np.isinf(b) & (np.signbit(a) == np.signbit(b))
    same: Array = (np.isfinite(a) & np.isfinite(b)) | (np.isnan(a) & np.isnan(b)) | infinite
    return same
