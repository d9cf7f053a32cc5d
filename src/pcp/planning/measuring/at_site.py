"""Whether a kernel holds at a site: at its very shapes, on operands of many kinds, in the process that measures it.

What was tried elsewhere says nothing of these shapes. This runs in the child, beside the measurement of the kernel. What is
right is the operation in float64; where that takes too long, the operation as it is.

How wrong a kernel may be on operands of a kind depends on how sensitive the operation is there: its results are also computed
for operands that are a few roundings away. A kernel as precise as its results on normal operands say may err as much more as
results move more there. So one that keeps 8 bits of its operands need not tell apart what lies beyond them; one that claims the
roundings of float32 has to. What it claims bounds its own error: one that says that it only sums up in another order
gets no more for being wrong on normal operands, too.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pcp.backends.base import Buffer
from pcp.kernels import Claims
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.judge import result_name
from pcp.planning.measuring.measurement import Failure
from pcp.planning.measuring.site_case import FEWEST, Case, distance_of, roundings_of, size_of
from pcp.planning.measuring.site_operands import KINDS, MOVED_UNITS, NORMAL, Kind
from pcp.planning.measuring.subject import Subject
from pcp.planning.measuring.timing import Runnable, timed
from pcp.rewrite.row import Effect

Array = np.ndarray[Any, Any]
Stage = Callable[[str], None]

LARGEST = 0.3
"""The largest error on any operands, of the whole and of every slice; where results are more sensitive, errors say nothing."""
TIMES_PLAIN = 8.0
"""How much more than the operation itself a kernel may err."""
SLACK = 32.0
"""How much more than its roundings on normal operands explain."""
FLOOR_UNITS = 512.0
"""Roundings that every kernel may err by: exp(x - logsumexp(x)) loses some hundred of large numbers."""
PRECISE_UNITS = 64.0
"""Roundings up to which a kernel on normal operands is as precise as its element type."""
SMALL_MOVES = 1e-3
"""The largest error of such a precise kernel that the operation's sensitivity explains, where float64 says what is right."""
BESIDE = 1e-2
"""What finite numbers may err by beside others that are not: some kernels compute in another way then."""
ROUNDING = 8.0
"""Roundings by which two calls on the same operands may differ; the order of atomic additions is left to chance."""
NOISE = 0.25
"""Or by this part of the error: where results are rounded to fewer bits, a last bit that is left to chance is one of those."""
REPEATS = 3
CALLS = REPEATS + 6
"""Of a kernel on normal operands, with those that come before and after."""
MANY = 1 << 24
"""Elements from which on only the kinds of operands are tried that matter most."""
KEPT_PART = 1 / 64
"""Of the device's memory, that operands of a site and what is right for them may take, to be kept for its next kernel."""


class _Trial:
    """One kernel at a site, and how wrong it is on normal operands."""

    def __init__(
        self,
        subject: Subject,
        candidate: Runnable,
        claims: Claims,
        stage: Stage,
        donating: Callable[[], Runnable] | None,
    ) -> None:
        self._subject, self._candidate, self._stage, self._claims = subject, candidate, stage, claims
        self._donating = donating
        self._roundings = [roundings_of(subject, place) for place in range(len(subject.program.results))]
        self._normal = self._case(NORMAL, None)
        self._first = self._called(self._normal.buffers)
        compare = subject.comparison
        pairs = zip(self._first, self._normal.plain, strict=True)
        self._errors = [
            distance_of(compare.pair(y, plain), lambda: 1.0) if plain.dtype.kind in "fV" else 0.0
            for y, plain in pairs
        ]

    def fault(self) -> tuple[Failure, str] | None:
        """What is wrong, if anything."""
        for _ in range(REPEATS):
            fault = self._differs(self._called(self._normal.buffers), "")
            if fault is not None:
                return fault
        for case in self._cases():
            fault = self._fault_on(case, self._called(case.buffers))
            if fault is not None:
                return fault
        with ThreadPoolExecutor(1) as other:
            again = other.submit(self._called, self._normal.buffers).result()
        fault = self._differs(again, " on another thread") or self._differs(
            self._called(self._normal.buffers), " after other calls"
        )
        if fault is not None or self._donating is None:
            return fault
        self._stage("candidate")
        donating = self._donating()
        for words in (" in whose memory results are written", " whose memory was that of results before"):
            fault = fault or self._differs(self._called(self._normal.buffers, donating), words)
        return fault

    def _called(self, buffers: Sequence[Buffer], candidate: Runnable | None = None) -> list[Buffer]:
        self._stage("candidate")
        results, _ = timed(candidate or self._candidate, buffers, self._subject.target)
        self._stage("judging")
        return results

    def _differs(self, again: Sequence[Buffer], words: str) -> tuple[Failure, str] | None:
        error, compare = max(self._errors, default=0.0), self._subject.comparison
        if all(
            is_noise(compare, a, b, self._claims.repeats_bits, self._claims.explains(error))
            for a, b in zip(self._first, again, strict=True)
        ):
            return None
        return (
            Failure.nondeterministic,
            f"at its site it returns something else for the same operands{words}, by more than roundings",
        )

    def _cases(self) -> Iterator[Case]:
        yield self._normal
        for kind in kinds_at(size_of(self._subject)):
            yield self._case(kind, self._normal)

    def _case(self, kind: Kind, normal: Case | None) -> Case:
        """Kept with the subject, as all kernels of a site are tried on the same operands."""
        subject = self._subject
        kept: Case | None = subject.cases.get(kind.name)
        if kept is not None:
            return kept
        self._stage("judging")
        case = Case(subject, kind, normal)
        if subject.bytes_of_cases + case.bytes <= KEPT_PART * subject.target.capacity:
            subject.cases[kind.name] = case
            subject.bytes_of_cases += case.bytes
        return case

    def _fault_on(self, case: Case, results: Sequence[Buffer]) -> tuple[Failure, str] | None:
        for place, (y, plain) in enumerate(zip(results, case.plain, strict=True)):
            fault = self._fault_of(case, place, y, plain)
            if fault is not None:
                where = "" if case.kind is NORMAL else f", on {case.kind.name} operands,"
                name = result_name(self._subject.program, place)
                if case.kind is not NORMAL and self._is_stale(case, results):
                    return (
                        Failure.stale,
                        f"at its site{where} it returned what it had returned for normal ones",
                    )
                return fault[0], f"at its site{where} result {name} {fault[1]}"
        return None

    def _is_stale(self, case: Case, results: Sequence[Buffer]) -> bool:
        """Whether results on other operands are those on normal ones, which differ."""
        compare, normal = self._subject.comparison, self._normal.plain
        return all(map(compare.same_bits, self._first, results)) and not all(
            map(compare.same_bits, normal, case.plain)
        )

    def _fault_of(self, case: Case, place: int, y: Any, plain: Any) -> tuple[Failure, str] | None:
        if y.dtype.kind not in "fV":
            same = np.array_equal(np.asarray(y), np.asarray(plain))
            return None if same else (Failure.wrong, "is not that of the operation")
        pair = self._subject.comparison.pair(y, plain)
        skipped = self._claims.nonfinite == "skips" and (pair.is_right_finite or not pair.is_finite)
        if pair.has_finite and not skipped:
            return Failure.hides_nonfinite, "is finite where infinities or NaN are expected"
        may_spread = not case.kind.is_finite and (self._claims.nonfinite == "spreads" or case.kind.may_spread)
        if pair.lacks_finite and not may_spread:
            return Failure.not_finite, "is infinite or NaN where finite numbers are expected"
        if self._claims.is_exact:
            words = "is not bit for bit that of the operation"
            return None if pair.is_equal else (Failure.overclaimed, words)
        error = case.error_of(place, pair) if case.is_judged else 0.0
        if error <= self._least_limit(place):
            return None
        limit = self._limit(case, place)
        error = case.error(place, y) if case.is_exact else error
        if error > limit and self._claims.effect is Effect.lowers_precision:
            limit = max(limit, self._moved_limit(case, place))
        if error <= limit or limit > LARGEST:
            return None
        fault = Failure.wrong if error > LARGEST else Failure.overclaimed
        return fault, f"has an error of {error:.2g}; at most {limit:.2g} is expected there"

    def _moved_limit(self, case: Case, place: int) -> float:
        """How wrong a kernel of fewer bits may be: as far as results move where operands move by its error on normal ones.

        Where the largest score takes all, roundings to many bits move nothing, and roundings to fewer bits move everything.
        """
        own = self._own(place)
        if case is self._normal or own <= PRECISE_UNITS * self._roundings[place]:
            return 0.0
        return TIMES_PLAIN * case.moves_by(min(own, LARGEST / SLACK))[place]

    def _least_limit(self, place: int) -> float:
        """How wrong a result may be on any operands, however insensitive the operation is there."""
        return max(SLACK * min(self._own(place), LARGEST / SLACK), FLOOR_UNITS * self._roundings[place])

    def _own(self, place: int) -> float:
        """The error on normal operands, and no more than it claims; of few elements it may be small by chance."""
        is_few = self._subject.program.results[place].spec.size < FEWEST
        error = self._errors[place] * (SLACK if is_few else 1.0)
        claimed = PRECISE_UNITS * self._claimed_unit(place)
        return (
            error
            if error <= claimed
            else min(error, max(claimed, TIMES_PLAIN * self._normal.plain_errors[place]))
        )

    def _claimed_unit(self, place: int) -> float:
        """The coarsest rounding of operands and of a result that a kernel claims to make."""
        unit = self._roundings[place]
        keeps_bits = self._claims.effect is not Effect.lowers_precision
        return unit if keeps_bits else max(unit, 2.0 ** -(self._claims.bits + 1))

    def _limit(self, case: Case, place: int) -> float:
        """How wrong it may be where it is tried."""
        limit = max(
            self._least_limit(place),
            0.0 if case.kind.is_finite else BESIDE,
            TIMES_PLAIN * case.plain_errors[place],
        )
        own = self._own(place)
        if own <= PRECISE_UNITS * self._roundings[place] and case.is_exact:
            return max(limit, min(SMALL_MOVES, SLACK * case.moves[place] / MOVED_UNITS))
        move, usual = case.moves[place], self._normal.moves[place]
        more = move / usual if usual else math.inf if move else 1.0
        explained = 0.0 if case is self._normal or not own else own * more
        return max(limit, SLACK * move / MOVED_UNITS, SLACK * explained)


def kinds_at(size: int) -> list[Kind]:
    """The kinds of operands that are tried where operands and results have so many elements, beside normal ones."""
    return [kind for kind in KINDS if size <= MANY or kind.matters]


def fault_at_site(
    subject: Subject,
    candidate: Runnable,
    claims: Claims,
    stage: Stage,
    donating: Callable[[], Runnable] | None = None,
) -> tuple[Failure, str] | None:
    """What is wrong with a kernel at a site, if anything.

    Arguments:
        subject: the operation alone, and operands that the kernel is measured on.
        candidate: the operation computed by the kernel.
        claims: what the kernel is held to.
        stage: told whose code runs.
        donating: compiles the candidate to be given the memory of its operands; None tries no such calls.
    """
    return _Trial(subject, candidate, claims, stage, donating).fault()


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
    return distance_of(pair, lambda: 1.0) <= max(roundings, NOISE * error)
