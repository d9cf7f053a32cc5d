"""Refining the fastest selection: other kernels for one class of sites at a time, each tried in the whole program; and what
should have been faster by its parts, and was not in the whole, measured again.

Alone, small operations are measured with noise, and do not meet what surrounds them in the whole; so where the whole can be
measured often, it decides, in duels with the best so far. What else a machine does lasts for seconds, and all calls of one
measurement are disturbed alike by it.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.significance import undisturbed
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import Duels, is_won
from pcp.planning.search.question import Answer, Asking
from pcp.planning.search.selection import Experience, Selection, path_by, saved
from pcp.planning.search.strategy import Strategy
from pcp.planning.search.tuning import PLAIN, Alternative, MeasuredClass, considered
from pcp.planning.search.whole import Whole


@dataclass(slots=True)
class Refinement:
    """The refining of one program's fastest selection.

    Arguments:
        experience: of the search, which is added to.
        memory_limit: bytes that a call may take.
        champion: the fastest selection, which is replaced.
        left_out: how many changes were not tried, because they cannot save what noise leaves to see.
    """

    duels: Duels
    classes: Sequence[MeasuredClass]
    experience: Experience
    memory_limit: int
    champion: Selection
    left_out: int = 0
    _hopeless: set[tuple[str, str]] = field(default_factory=set)
    _later: float = 0.0

    def run(self) -> Asking[None]:
        """Find a faster selection; what it is, the evidence says."""
        evidence, strategy = self.duels.evidence, self.duels.evidence.strategy
        left = evidence.seconds_left - strategy.effort * evidence.seconds_spent
        self._later = max(left, strategy.for_last * evidence.budget)
        yield from self._drop_families()
        yield from self._change_classes()
        yield from self._confirm()

    def path(self, selection: Selection) -> Path:
        """The path of a selection."""
        return path_by(selection, self.classes, self.duels.whole)

    def _confirm(self) -> Asking[None]:
        """Measure the champion against the plain program once more, and again where two blocks disagree."""
        whole, path = self.duels.whole, self.path(self.champion)
        strategy = self.duels.evidence.strategy
        for times in range(2, 2 + len(strategy.gaps)):
            row = yield from whole.measured_again(path, self.duels.evidence, times)
            if row is None or row.failure is not None or strategy.is_faster(row.blocks):
                return

    def _change_classes(self) -> Asking[None]:
        """Try changes, those first that may save most, until none saves anything that can be told from noise."""
        strategy = self.duels.evidence.strategy
        changed = True
        while changed:
            changed = False
            changes = [
                (self._at_most(each, other), each, other)
                for each in self.classes
                for other in considered(each, strategy)
            ]
            self.left_out = sum(0 < at_most < strategy.small_gain for at_most, *_ in changes)
            for at_most, each, other in sorted(changes, key=lambda change: -change[0]):
                if at_most >= strategy.small_gain:
                    changed |= yield from self._change(each, other)

    def _at_most(self, each: MeasuredClass, other: Alternative) -> float:
        """The part of the whole's time that a change may save: alone, a kernel may seem slower than it is there."""
        now = self.champion.get(each.sites.digest)
        ratio = (now.ratio if now else 1.0) - other.ratio / self.duels.evidence.strategy.change_plausible
        whole = self.duels.evidence.known(self.duels.whole.subject)[self.path(self.champion).digest].typical
        return ratio * each.sites.uses * each.plain_seconds / whole

    def _change(self, each: MeasuredClass, other: Alternative) -> Asking[bool]:
        """Whether another kernel for one class is taken."""
        strategy = self.duels.evidence.strategy
        change = each.sites.digest, other.kernel.name if other.kernel else ""
        if change in self.experience.banned or change in self._hopeless:
            return False
        selection = {**self.champion, each.sites.digest: other}
        duel = yield from self._challenged(selection)
        if duel is not None and (duel.failure or duel.ratio > strategy.change_hopeless):
            self._hopeless.add(change)
        return duel is not None and is_won(duel, strategy) and (yield from self._is_taken(selection))

    def _drop_families(self) -> Asking[None]:
        """Where the whole saves less than its kernels do alone, try it without one family's, those first that save least."""
        strategy, families = self.duels.evidence.strategy, defaultdict[str, list[str]](list)
        for each in self.classes:
            if self.champion.get(each.sites.digest, PLAIN).kernel is not None:
                families[each.sites.family].append(each.sites.digest)
        if len(families) < 2 or (yield from self._is_as_promised(1)) or (yield from self._is_as_promised(2)):
            return
        for digests in sorted(
            families.values(), key=lambda own: math.fsum(self.champion[each].saved for each in own)
        ):
            selection = {**self.champion, **dict.fromkeys(digests, PLAIN)}
            duel = yield from self._challenged(selection)
            if duel is not None and is_won(duel, strategy):
                yield from self._is_taken(selection)

    def _is_as_promised(self, times: int) -> Asking[bool]:
        """Whether the champion, measured so often, saves what it should; it is taken to where there is no time."""
        row = yield from self.duels.whole.measured_again(self.path(self.champion), self.duels.evidence, times)
        plain = math.fsum(each.sites.uses * each.plain_seconds for each in self.classes)
        part = self.duels.evidence.strategy.promised * saved(self.champion) / plain
        return row is None or 1 - row.ratio >= part

    def _challenged(self, selection: Selection) -> Asking[Answer]:
        """The duel of a selection with the best so far; None if it need not be tried, or the time is up."""
        path = self.path(selection)
        if path.digest in self.experience.tried:
            return None
        if self.experience.model.predicted(selection) > self.duels.whole.tolerance:
            return None
        self.experience.tried.add(path.digest)
        with self.duels.evidence.leaving(1.0, of=self._later):
            return (yield from self.duels.fought(path, self.path(self.champion)))

    def _is_taken(self, selection: Selection) -> Asking[bool]:
        """Whether a selection that won is exact enough; it is the best so far then."""
        whole = self.duels.whole
        evidence = self.duels.evidence
        row = yield from whole.measured(
            self.path(selection), evidence, seconds=evidence.strategy.coarse_seconds
        )
        if row is None:
            return False
        if row.least_tolerance is not None:
            self.experience.model.learn(selection, row.least_tolerance)
        if not whole.accepts(row, self.memory_limit):
            return False
        self.champion = selection
        return True


def is_unexpected(selection: Selection, row: Measurement, strategy: Strategy) -> bool:
    """Whether a whole was not faster than the plain program, though its kernels saved enough alone for that to show."""
    expected = strategy.expected * undisturbed(row.plain_seconds)
    return saved(selection) > expected and not strategy.is_faster(row.blocks)


def confirmed(
    lost: Sequence[Selection],
    classes: Sequence[MeasuredClass],
    whole: Whole,
    evidence: Evidence,
    *,
    is_short: bool,
) -> Asking[None]:
    """Measure losses again, and show each that is faster than the plain program after all, with its row; or without, where
    there is no time.

    Arguments:
        is_short: whether a call is so short that a path is measured again several times, rather than once.
    """
    strategy = evidence.strategy
    left = sorted(lost, key=saved, reverse=True)[: strategy.confirmed]
    seconds = strategy.coarse_seconds if is_short else strategy.whole_seconds
    for times in range(2, 2 + (len(strategy.gaps) if is_short else 1)):
        for selection in list(left):
            path = path_by(selection, classes, whole)
            row = yield from whole.measured_again(path, evidence, times, seconds)
            if row is None:
                yield selection, None
                return
            is_faster = row.failure is None and strategy.is_faster(row.blocks)
            if is_faster or row.failure is not None:
                left.remove(selection)
            if is_faster:
                yield selection, row
