"""Whether a kernel holds at a site: at its very shapes, on operands of many kinds, in the process that measures it.

What was tried elsewhere says nothing of these shapes. This runs in the child, beside the measurement of the kernel. What is
right is the operation in float64; where that takes too long, the operation as it is.

How wrong a kernel may be on operands of a kind depends on how sensitive the operation is there: its results are also computed
for operands that are a few roundings away. A kernel as precise as its results on normal operands say may err as much more as
results move more there, so one that keeps 8 bits of its operands need not tell apart what lies beyond them, and one that
claims the roundings of float32 has to. What it claims bounds its own error: one that says that it only sums up in another order
gets no more for being wrong on normal operands, too.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pcp.backends.base import Buffer
from pcp.ir.toolkit.functions import entry_block
from pcp.kernels import Claims
from pcp.kernels.registry import family_of
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.distances import Scale
from pcp.planning.judging.judge import result_name
from pcp.planning.judging.pair import Pair
from pcp.planning.measuring.measurement import Failure
from pcp.planning.measuring.site_operands import KINDS, MOVED_UNITS, NORMAL, Kind, moved, unit_of
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
"""The largest error of such a kernel that the sensitivity of the operation explains, where float64 says what is right."""
BESIDE = 1e-2
"""What finite numbers may err by beside others that are not: some kernels compute in another way then."""
ROUNDING = 8.0
"""Roundings by which two calls on the same operands may differ; the order of atomic additions is left to chance."""
NOISE = 0.25
"""Or by this part of the error: where results are rounded to fewer bits, a last bit that is left to chance is one of those."""
FEWEST = 16
"""Elements of a result from which on its own norm is its scale; fewer may be small by chance."""
REPEATS = 3
EXACT = 1 << 22
"""Elements of the operands and results up to which float64 says what is right, on a processor."""
MANY = 1 << 24
"""Elements from which on only the kinds of operands are tried that matter most."""
KEPT = 1 << 19
"""Elements up to which what is right is kept for the next kernel."""
TINY = 1e-30
"""The size of elements below which a result is as good as 0."""


class Case:
    """One kind of operands at a site, and what is right for them.

    Arguments:
        subject: the operation alone.
        kind: how the operands that it is measured on are changed.
        count: of the kind, for the generator.
        exact: whether float64 may say what is right.
        normal: the case of the operands as they are; None for that itself.
    """

    def __init__(
        self, subject: Subject, kind: Kind, count: int, *, exact: bool, normal: "Case | None"
    ) -> None:
        self.kind, self._subject, self._count, self._normal = kind, subject, count, normal
        self.is_judged = kind.is_judged and not (kind.is_far and _saturates(subject))
        self.buffers = _operands(subject, kind, count)
        self.plain = self._by_plain(self.buffers)
        self.is_exact = exact and subject.target.device.kind == "cpu" and size_of(subject) <= EXACT
        self._run = subject.exact if self.is_exact else self._by_plain

    def _by_plain(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        return timed(self._subject.plain, buffers, self._subject.target)[0]

    @functools.cached_property
    def usual(self) -> float:
        """The size of usual operands."""
        return _usual(self.buffers)

    @functools.cached_property
    def right(self) -> list[Any]:
        """Every result, not finite where that of the operation itself is not."""
        pairs = zip(self._run(self.buffers), self.plain, strict=True)
        return [_where_finite(y, plain) if y is not plain else y for y, plain in pairs]

    @functools.cached_property
    def plain_errors(self) -> list[float]:
        """Of the operation itself, by result; 0 where it says what is right."""
        return self.errors(self.plain)

    @functools.cached_property
    def moves(self) -> list[float]:
        """How far each result moves where operands move by `MOVED_UNITS` roundings."""
        return self.errors(self._run(_moved(self._subject, self.buffers, self._count)))

    def errors(self, results: Sequence[Any]) -> list[float]:
        """Of every result; 0 of integers."""
        return [
            self.error_of(place, self._subject.comparison.pair(y, right)) if right.dtype.kind in "fV" else 0.0
            for place, (y, right) in enumerate(zip(results, self.right, strict=True))
        ]

    def error_of(self, place: int, pair: Pair) -> float:
        """Of one result; where operands are not small, on the scale of the same result on normal operands at least.

        What cancels out, as gradients of what saturates, errs by the roundings of what cancels.
        """
        least = 0.0 if self.kind.shrinks or self._normal is None else self._normal.sizes[place]
        return _error_of(pair, lambda: self.usual, least)

    @functools.cached_property
    def sizes(self) -> list[float]:
        """Of the elements of every result of the operation itself."""
        return [_size_of_elements(each) for each in self.plain]


class _Trial:
    """One kernel at a site, and how wrong it is on normal operands."""

    def __init__(self, subject: Subject, candidate: Runnable, claims: Claims, stage: Stage) -> None:
        self._subject, self._candidate, self._stage, self._claims = subject, candidate, stage, claims
        self._normal = self._case(NORMAL, 0, None)
        self._first = self._called(self._normal.buffers)
        compare = subject.comparison
        pairs = zip(self._first, self._normal.plain, strict=True)
        self._errors = [
            _error_of(compare.pair(y, plain), lambda: 1.0) if plain.dtype.kind in "fV" else 0.0
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
        return self._differs(again, " on another thread") or self._differs(
            self._called(self._normal.buffers), " after other calls"
        )

    def _called(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        self._stage("candidate")
        results, _ = timed(self._candidate, buffers, self._subject.target)
        self._stage("judging")
        return results

    def _differs(self, again: Sequence[Buffer], words: str) -> tuple[Failure, str] | None:
        error, compare = max(self._errors, default=0.0), self._subject.comparison
        if all(
            is_noise(compare, a, b, self._claims.is_exact, error)
            for a, b in zip(self._first, again, strict=True)
        ):
            return None
        return (
            Failure.nondeterministic,
            f"at its site it returns something else for the same operands{words}, by more than roundings",
        )

    def _cases(self) -> Iterator[Case]:
        yield self._normal
        size = size_of(self._subject)
        for count, kind in enumerate(KINDS, 1):
            if size <= MANY or kind.matters:
                yield self._case(kind, count, self._normal)

    def _case(self, kind: Kind, count: int, normal: Case | None) -> Case:
        """Kept with the subject, as all kernels of a site are tried on the same operands."""
        key = (kind.name, self._claims.is_exact)
        if key in self._subject.cases:
            kept: Case = self._subject.cases[key]
            return kept
        self._stage("judging")
        made = Case(self._subject, kind, count, exact=not self._claims.is_exact, normal=normal)
        if size_of(self._subject) <= KEPT:
            self._subject.cases[key] = made
        return made

    def _fault_on(self, case: Case, found: Sequence[Buffer]) -> tuple[Failure, str] | None:
        for place, (y, plain) in enumerate(zip(found, case.plain, strict=True)):
            fault = self._fault_of(case, place, y, plain)
            if fault is not None:
                where = "" if case.kind is NORMAL else f", on {case.kind.name} operands,"
                name = result_name(self._subject.program, place)
                return fault[0], f"at its site{where} result {name} {fault[1]}"
        return None

    def _fault_of(self, case: Case, place: int, y: Any, plain: Any) -> tuple[Failure, str] | None:
        if y.dtype.kind not in "fV":
            same = np.array_equal(np.asarray(y), np.asarray(plain))
            return None if same else (Failure.inaccurate, "is not that of the operation")
        pair = self._subject.comparison.pair(y, plain)
        skipped = self._claims.nonfinite == "skips" and (pair.is_right_finite or not pair.is_finite)
        if pair.has_finite and not skipped:
            return Failure.not_finite, "is finite where infinities or NaN are expected"
        may_spread = not case.kind.is_finite and (self._claims.nonfinite == "spreads" or case.kind.may_spread)
        if pair.lacks_finite and not may_spread:
            return Failure.not_finite, "is infinite or NaN where finite numbers are expected"
        if self._claims.is_exact:
            words = "is not bit for bit that of the operation"
            return None if pair.is_equal else (Failure.inaccurate, words)
        error = case.error_of(place, pair) if case.is_judged else 0.0
        if error <= self._least_limit(place):
            return None
        limit = self._limit(case, place)
        error = case.errors([*case.right[:place], y, *case.right[place + 1 :]])[place]
        if error <= limit or limit > LARGEST:
            return None
        return Failure.inaccurate, f"has an error of {error:.2g}; at most {limit:.2g} is expected there"

    def _least_limit(self, place: int) -> float:
        """How wrong a result may be on any operands, however insensitive the operation is there."""
        return max(SLACK * min(self._own(place), LARGEST / SLACK), FLOOR_UNITS * _unit(self._subject, place))

    def _own(self, place: int) -> float:
        """The error on normal operands, and no more than it claims; of few elements it may be small by chance."""
        is_few = self._subject.program.results[place].spec.size < FEWEST
        found = self._errors[place] * (SLACK if is_few else 1.0)
        claimed = PRECISE_UNITS * self._claimed_unit(place)
        return (
            found
            if found <= claimed
            else min(found, max(claimed, TIMES_PLAIN * self._normal.plain_errors[place]))
        )

    def _claimed_unit(self, place: int) -> float:
        """The coarsest rounding of operands and of a result that a kernel claims to make."""
        unit = _unit(self._subject, place)
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
        if own <= PRECISE_UNITS * _unit(self._subject, place) and case.is_exact:
            return max(limit, min(SMALL_MOVES, SLACK * case.moves[place] / MOVED_UNITS))
        move, usual = case.moves[place], self._normal.moves[place]
        more = move / usual if usual else math.inf if move else 1.0
        explained = 0.0 if case is self._normal or not own else own * more
        return max(limit, SLACK * move / MOVED_UNITS, SLACK * explained)


def fault_at_site(
    subject: Subject, candidate: Runnable, claims: Claims, stage: Stage
) -> tuple[Failure, str] | None:
    """What is wrong with a kernel at a site, if anything.

    Arguments:
        subject: the operation alone, and operands that the kernel is measured on.
        candidate: the operation computed by the kernel.
        claims: what the kernel is held to.
        stage: told whose code runs.
    """
    return _Trial(subject, candidate, claims, stage).fault()


def _operands(subject: Subject, kind: Kind, count: int) -> list[Buffer]:
    entries = subject.program.arguments
    floats = [place for place, entry in enumerate(entries) if entry.spec.dtype.is_float]
    rng = np.random.default_rng([7, count])
    if kind is NORMAL:
        return list(subject.inputs[0])
    made = []
    for place, (entry, given) in enumerate(zip(entries, subject.inputs[0], strict=True)):
        spec = entry.spec
        if place in floats and spec.size:
            made.append(subject.comparison.changed(given, *kind.floats(rng, spec.shape, place == floats[0])))
        elif not spec.dtype.is_differentiable and spec.size and spec.dtype.kind != "bool":
            array = kind.integers(rng, np.asarray(given)).astype(spec.dtype.numpy, copy=False)
            made.append(subject.target.place(array, spec))
        else:
            made.append(given)
    return subject.completed(made)


def _moved(subject: Subject, buffers: Sequence[Buffer], count: int) -> list[Buffer]:
    """The operands, some roundings away."""
    rng = np.random.default_rng([8, count])
    made = []
    for entry, given in zip(subject.program.arguments, buffers, strict=True):
        spec = entry.spec
        is_moved = spec.dtype.is_float and spec.size
        change = moved(rng, spec.shape, spec.dtype) if is_moved else None
        made.append(given if change is None else subject.comparison.changed(given, *change))
    return subject.completed(made)


def _saturates(subject: Subject) -> bool:
    """Whether the operation, if it is one alone, is of a family in which bits are lost far from 0."""
    module = subject.program.module()
    operation, *rest = (op.operation for op in entry_block(module).operations)
    family = family_of(operation) if len(rest) == 1 else None
    return family is not None and family.saturates


def _where_finite(exact: Any, plain: Any) -> Any:
    """What is exactly right, and what the operation returns where that is not finite."""
    if plain.dtype.kind not in "fV":
        return plain
    wide, right = np.asarray(plain).astype(np.float64), np.asarray(exact)
    made: Array = np.where(np.isfinite(wide) & np.isfinite(right), right, wide)
    return made


def _unit(subject: Subject, place: int) -> float:
    """The coarsest rounding of operands and of a result."""
    specs = [entry.spec for entry in subject.program.arguments]
    specs.append(subject.program.results[place].spec)
    return max((unit_of(spec.dtype) for spec in specs if spec.dtype.is_float), default=0.0)


def size_of(subject: Subject) -> int:
    """Elements of its operands and results."""
    program = subject.program
    return sum(entry.spec.size for entries in (program.arguments, program.results) for entry in entries)


def _usual(buffers: Sequence[Buffer]) -> float:
    """The size of usual operands: what cancels out to 0 has errors of that scale."""
    return max((_size_of_elements(each) for each in buffers if each.dtype.kind in "fV"), default=1.0)


def _size_of_elements(buffer: Buffer) -> float:
    """The root mean square of those that are finite."""
    if buffer.dtype.kind not in "fV":
        return 0.0
    wide = np.asarray(buffer).astype(np.float64)
    return float(np.sqrt(np.mean(np.where(np.isfinite(wide), wide, 0.0) ** 2))) if wide.size else 0.0


def _error_of(pair: Pair, usual: Callable[[], float], least: float = 0.0) -> float:
    """The error of the whole or of a slice, whichever is larger; what is as good as 0 is judged on the scale of usual numbers.

    So is what has few elements, which may be small by chance.

    Arguments:
        usual: the size of usual operands.
        least: the least size of elements that errors are relative to.
    """
    own, size = pair.scale, math.prod(pair.shape)
    if own.whole == 0.0 and pair.distance(Scale.of_elements(1.0, pair.shape)).error == 0.0:
        return 0.0  # on every scale, of which none need be computed
    typical = own.whole / math.sqrt(max(1, size))
    if size < FEWEST or max(least, typical) < TINY:
        scale = usual()
        least = max(scale if scale > TINY else 1.0, least)
    if least > typical:
        own = Scale.of_elements(least, pair.shape)
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
