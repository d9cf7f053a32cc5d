"""How a plan comes to its path: kernels, then other forms of the program, then what fits in memory, then other places.

In another place the whole program is measured, as it is written, in turn with the plain path, and judged by the same float64.
So are the best placements of the operations of the path that was found. What is faster is timed once more, in turn with that
path.
"""

import functools
import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace

from pcp.backends import CompilationFailed, OutOfMemory, Target
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.planning.binding import bound_where_it_pays, computes_once
from pcp.planning.capacity import check_capacity, memory_limit
from pcp.planning.conditions import Conditions, check_tolerance, example_of, ignored_by
from pcp.planning.forms import searched as searched_with_forms
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.kinds import BOUND
from pcp.planning.paths.path import Path
from pcp.planning.placing.search import Placing
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import Duels, Found
from pcp.planning.search.question import Asking, Here
from pcp.planning.search.search import ToleranceUnreachable
from pcp.planning.search.this_process import difference_here
from pcp.planning.search.whole import Whole
from pcp.planning.search.within_memory import that_fits, within_memory
from pcp.planning.settled import settle, settled

log = logging.getLogger("pcp.planning.search")


class PathDiffers(PCPError):
    """Paths that compute something else in this process than in the child that measured them."""


def searched(
    program: Program, tolerance: float, conditions: Conditions, others: Sequence[Target], evidence: Evidence
) -> Asking[tuple[Found, Target]]:
    """The fastest path that is known or found in time, and where it runs: all that a plan asks.

    Arguments:
        others: where else the program may run.

    Raises:
        InvalidTolerance: the tolerance is not valid.
        ToleranceUnreachable: the plain path misses the tolerance.
        ReferenceNotFinite: a result is mostly NaN or infinite on the arguments that it is judged on.
        MemoryUnreachable: no path that was tried fits in the memory that was asked for.
        PathDiffers: the best paths compute something else in this process than where they were measured.
        UnknownResult, InvalidJudge: as `ignored_by`.
        TreeMismatch: the example is nested otherwise than the program's arguments.
    """
    check_tolerance(tolerance)
    whole = Whole(
        program,
        tolerance,
        conditions.target,
        *example_of(program, conditions.example),
        ignored_by(program, conditions.judge),
        strategy=conditions.strategy,
        bound=conditions.bound,
        narrows=conditions.narrows,
    )
    try:
        return (yield from _within(whole, conditions, others, evidence))
    except ToleranceUnreachable as error:
        missed = error
    # What cancels is rounding alone, and so is what an optimizer makes of it, on the plain path, too.
    zeros = yield from Here("sums that cancel", whole.with_zeros).asked()
    if zeros is None:
        raise missed
    log.info("with zeros for sums that are zero in exact arithmetic, because %s", missed)
    return (yield from _within(zeros, conditions, others, evidence))


def _within(
    whole: Whole, conditions: Conditions, others: Sequence[Target], evidence: Evidence
) -> Asking[tuple[Found, Target]]:
    """As `searched`, of a program whose paths are measured."""
    if not others:
        found_before = yield from settled(whole, conditions, evidence)
        if found_before is not None and not (yield from _difference_here(found_before, whole, evidence)):
            return _noted(found_before, evidence), conditions.target
    fitting = yield from that_fits(whole, evidence, conditions.memory_limit)
    with evidence.leaving(conditions.strategy.for_others if others else 0.0):
        found = yield from _at_home(fitting, evidence, conditions)
    if not others:
        if fitting.fit is None:
            settle(found, whole, conditions, evidence)
        return _noted(found, evidence), conditions.target
    noted = _noted(found, evidence)
    return (yield from fastest_elsewhere(fitting, noted, evidence, conditions, others))


def _noted(found: Found, evidence: Evidence) -> Found:
    """The same, which says so if nobody could compare it in this process."""
    return replace(found, notes=[*found.notes, evidence.uncompared]) if evidence.uncompared else found


def _at_home(whole: Whole, evidence: Evidence, conditions: Conditions) -> Asking[Found]:
    """The fastest path on the conditions' target that computes in this process what it did where it was measured.

    Raises:
        as `searched`.
    """
    found = yield from _fastest(whole, evidence, conditions)
    different = yield from _difference_here(found, whole, evidence)
    with evidence.leaving(1.0):  # what is known will do
        for _ in range(1, conditions.strategy.most_dropped):
            if different is not None:
                found = yield from _fastest(whole, evidence, conditions)
                different = yield from _difference_here(found, whole, evidence)
    if different is not None:
        raise PathDiffers(
            f"{conditions.strategy.most_dropped} paths of program {whole.program.digest[:12]} that were measured in child "
            f"processes compute something else in this one, the last one because {different}; run `pcp doctor`, and "
            "plan without a tolerance meanwhile"
        )
    if found.prediction is not None:
        found = _compiling(found, whole, conditions)
    if found.path == whole.plain:
        found = replace(found, fit=found.fit or whole.fit)
    if found.path.bound and not computes_once(found.path, whole.program):
        found = replace(found, path=found.path.having(BOUND.name))
    name = "the plain path" if found.path.is_plain else f"path {found.path.digest[:12]}"
    log.info("tolerance %g: %s, after %d measurements", whole.tolerance, name, found.measured)
    return found


def _difference_here(found: Found, whole: Whole, evidence: Evidence) -> Asking[str | None]:
    """How a path computes something else in this process than where it was measured; it is dropped then."""
    evidence.end_measuring()
    comparing = functools.partial(difference_here, whole, found.path, evidence)
    different = yield from Here("results here", comparing).asked()
    if different is not None:
        evidence.refute(whole.subject, found.path, different)
        log.warning(
            "path %s is dropped: in this process it is not what was measured in a child: %s",
            found.path.digest[:12],
            different,
        )
    return different


def _fastest(whole: Whole, evidence: Evidence, conditions: Conditions) -> Asking[Found]:
    """The fastest path; where memory was asked for, or the program does not fit as it is written, that fits."""
    limit, memory = conditions.memory_limit, conditions.memory
    memory = limit if memory is None and whole.fit is not None else memory
    if memory is None:
        found, _ = yield from searched_with_forms(whole, evidence, limit)
        return (yield from bound_where_it_pays(found, whole, evidence, limit))
    with evidence.leaving(evidence.strategy.for_memory):
        found, search = yield from searched_with_forms(whole, evidence, limit, memory)
    row = found.measurement
    if not found.complete and row is not None and row.peak_bytes is not None and row.peak_bytes <= memory:
        # It goes on with what is left.
        found, search = yield from searched_with_forms(whole, evidence, limit, memory)
    return (yield from within_memory(found, search, memory))


def _compiling(found: Found, whole: Whole, conditions: Conditions) -> Found:
    """A predicted path, or the plain one if that does not compile: nobody has tried it before."""
    target = found.path.target(conditions.target.devices)
    try:
        executable = target.compile(found.path.applied(whole.program))
        check_capacity(whole.program, executable.memory, target, conditions.memory_limit)
    except (CompilationFailed, OutOfMemory) as error:
        log.warning("the predicted path is not taken, because it does not compile: %s", error)
        return replace(found, path=whole.plain, prediction=None, complete=False)
    return found


def fastest_elsewhere(
    whole: Whole, found: Found, evidence: Evidence, conditions: Conditions, others: Sequence[Target]
) -> Asking[tuple[Found, Target]]:
    """What was found at home, or the program elsewhere, or some of its operations, whichever is the fastest.

    Arguments:
        others: where else the program may run.
    """
    contest = _Contest(whole, found, conditions, evidence)
    for other in others:
        yield from contest.run_whole(other)
    yield from contest.run_in_regions(others)
    evidence.end_measuring()
    best, target = contest.best, contest.target
    if best.path.placement is not None:
        path = best.path
        different = yield from Here("results here", lambda: difference_here(whole, path)).asked()
        if different is not None:
            log.warning(
                "operations are not placed elsewhere: in this process that is not what was measured: %s",
                different,
            )
            contest.notes.append(
                f"with {best.path.placement} operations results differ in this process: {different}"
            )
            best, target = found, conditions.target
    return replace(best, notes=contest.notes, measured=evidence.measured), target


class _Contest:
    """What was found at home against what runs elsewhere.

    Arguments:
        whole: the program.
        found: by the search at home.
    """

    def __init__(self, whole: Whole, found: Found, conditions: Conditions, evidence: Evidence) -> None:
        self._whole, self._found, self._conditions = whole, found, conditions
        self._evidence, self._duels = evidence, Duels(whole, evidence)
        self.best, self.target = found, conditions.target
        self.notes = list(found.notes)
        self._plain_seconds: list[float] = []

    def run_whole(self, other: Target) -> Asking[None]:
        """Try the program, as it is written, in another place."""
        path = self._whole.plain_on(other)
        row = yield from self._duels.fought(path, self._whole.plain, other, is_judged=True)
        yield from self._enter(row, path, other, f"on {other}", "the whole takes")

    def run_in_regions(self, others: Sequence[Target]) -> Asking[None]:
        """Try to run some operations of the path that was found in other places, where their times say that it should pay."""
        home, evidence = self._conditions.target, self._evidence
        placing = Placing.of(self._whole.program, self._found.path, home, others)
        seconds = self._seconds_at_home()
        if not placing.others or seconds is None:
            return
        yield from placing.time_copies()
        if placing.least_copy >= seconds:
            self.notes.append(
                "no operation was tried elsewhere: to go there and back takes longer than the whole"
            )
            return
        with evidence.leaving(evidence.strategy.for_placements, of=evidence.seconds_left):
            yield from placing.measure(evidence)
        if not placing.is_known:  # nothing runs elsewhere, or nothing was measured there
            return
        worthwhile = 1 - evidence.strategy.margin
        for expected, path in itertools.islice(
            placing.paths(placing.costs(seconds)), evidence.strategy.placements
        ):
            if expected > worthwhile:
                break
            row = yield from self._duels.fought(path, self._whole.plain, is_judged=True)
            yield from self._enter(row, path, home, f"with {path.placement}", "operations: the whole takes")
            if row is None or row.ratio >= 1:
                break  # the next are hardly different

    def _seconds_at_home(self) -> float | None:
        """Of a call of the path that was found; None if that was not measured."""
        row = self._found.measurement
        if row is not None and row.seconds:
            return row.typical
        return min(self._plain_seconds, default=None)

    def _enter(
        self, row: Measurement | None, path: Path, target: Target, where: str, what: str
    ) -> Asking[None]:
        """Note what was measured in turn with the plain path, and take it if it is the fastest."""
        strategy = self._evidence.strategy
        if row is None or row.failure is not None or not row.seconds:
            why = self._evidence.trouble if row is None else f"{row.failure}: {row.detail}"
            self.notes.append(f"{where} it was not measured, or does not count: {why}")
            return
        self._plain_seconds.append(row.typical / row.ratio)
        is_faster = strategy.is_faster(row.blocks)
        doubt = "" if is_faster or row.ratio >= 1 else ", which may be noise"
        self.notes.append(
            f"{where} {what} {row.ratio:.2f} of the plain path's time{doubt}, error {row.error or 0.0:.1e}"
        )
        limit = memory_limit(target, self._conditions.memory)
        if not self._whole.accepts(row, limit) or not is_faster:
            return
        if self.best is self._found:
            if not self._found.path.is_plain and not (yield from self._wins(path, target)):
                return
        elif self.best.measurement is not None and self.best.measurement.ratio <= row.ratio:
            return
        self.best = replace(self._found, path=path, measurement=row, look=list, prediction=None)
        self.target = target

    def _wins(self, path: Path, target: Target) -> Asking[bool]:
        """Whether a path is faster than the one that was found, in turn with it."""
        there = None if path.placement is not None else target
        duel = yield from self._duels.fought(path, self._found.path, there)
        return duel is not None and duel.failure is None and self._evidence.strategy.is_faster(duel.blocks)
