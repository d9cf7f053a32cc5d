"""Whether another backend runs a program, or some of its operations, faster than the path that was found, within the tolerance.

The whole program, as it is written, is measured there in turn with the plain path, and judged by the same float64; so are the
best placements of the operations of the path that was found. What is faster is timed once more, in turn with that path.
"""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace

from pcp.backends import Device, Target, UnknownBackend, backend_names, devices
from pcp.backends.registry import DEFAULT
from pcp.errors import PCPError
from pcp.planning.capacity import memory_limit
from pcp.planning.conditions import Conditions
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.path import Path
from pcp.planning.placing.measured import measured_whole
from pcp.planning.placing.search import Placing
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import Found
from pcp.planning.search.question import Asking, Here
from pcp.planning.search.this_process import difference_here
from pcp.planning.search.whole import Whole

log = logging.getLogger("pcp.planning.search")

ANY = "any"
"""The name for the default device, and what every other backend that is installed has first."""

Place = str | Device | Target


class NoPlaces(PCPError):
    """An empty list of places to plan for."""


def places_of(where: Place | Sequence[Place] | None) -> tuple[Place | None, list[Target]]:
    """Where a program is searched for, and where else it is measured.

    Raises:
        NoPlaces: a list of devices is empty.
        UnknownBackend, UnknownDevice: as `Target.of`.
    """
    if where == ANY:
        return None, [Target.of(f"{name}:{place}") for name in backend_names() for place in _first(name)]
    if where is None or isinstance(where, str | Device | Target):
        return where, []
    if not where:
        raise NoPlaces("the list of devices is empty; give one or more, as ['cpu:0', 'iree:llvm-cpu']")
    first, *others = where
    return first, [Target.of(each) for each in others]


def _first(name: str) -> list[Device]:
    """The first device of a backend that is not the default one; none where it is not installed."""
    try:
        return [] if name == DEFAULT else devices(name)[:1]
    except UnknownBackend as error:
        log.info("%s is not measured: %s", name, error)
        return []


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
        self._evidence = evidence
        self.best, self.target = found, conditions.target
        self.notes = list(found.notes)
        self._plain_seconds: list[float] = []

    def run_whole(self, other: Target) -> Asking[None]:
        """Try the program, as it is written, in another place."""
        path = self._whole.plain_on(other)
        row = yield from measured_whole(
            self._whole, self._whole.plain, path, other, self._evidence, is_judged=True
        )
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
        yield from placing.measure(evidence, until=evidence.strategy.for_placements * evidence.seconds_left)
        if not placing.is_known:  # nothing runs elsewhere, or nothing was measured there
            return
        worthwhile = 1 - evidence.strategy.margin
        for expected, path in itertools.islice(
            placing.paths(placing.costs(seconds)), evidence.strategy.placements
        ):
            if expected > worthwhile:
                break
            row = yield from measured_whole(
                self._whole, self._whole.plain, path, None, evidence, is_judged=True
            )
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
        self.best = replace(self._found, path=path, measurement=row, classes=[], choices={}, prediction=None)
        self.target = target

    def _wins(self, path: Path, target: Target) -> Asking[bool]:
        """Whether a path is faster than the one that was found, in turn with it."""
        duel = yield from measured_whole(
            self._whole,
            self._found.path,
            path,
            None if path.placement is not None else target,
            self._evidence,
            is_judged=False,
        )
        return duel is not None and duel.failure is None and self._evidence.strategy.is_faster(duel.blocks)
