"""Refining the fastest selection: other kernels for one class of sites at a time, each tried in the whole program.

Alone, small operations are measured with noise, and do not meet what surrounds them in the whole; so where the whole can be
measured often, it decides, in duels with the best so far.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.path import Path
from pcp.planning.search.duels import Duels, is_won
from pcp.planning.search.selection import Experience, Selection
from pcp.planning.search.tuning import Alternative, Tuned, considered


@dataclass(slots=True)
class Refinement:
    """The refining of one program's fastest selection.

    Arguments:
        experience: of the search, which is added to.
        memory_limit: bytes that a call may take.
        champion: the fastest selection, which is replaced.
    """

    duels: Duels
    classes: Sequence[Tuned]
    experience: Experience
    path: Callable[[Selection], Path]
    memory_limit: int
    champion: Selection
    _hopeless: set[tuple[str, str]] = field(default_factory=set)
    _until: float = 0.0

    def run(self) -> None:
        """Find a faster selection; what it is, the evidence says."""
        evidence, strategy = self.duels.evidence, self.duels.evidence.strategy
        left = evidence.seconds_left - strategy.effort * evidence.seconds_spent
        self._until = max(left, strategy.for_last * evidence.budget)
        self._change_classes()
        self._confirm()

    def _confirm(self) -> None:
        """Measure the champion against the plain program once more, and again where two blocks disagree."""
        whole, path = self.duels.whole, self.path(self.champion)
        strategy = self.duels.evidence.strategy
        for times in range(2, 2 + len(strategy.gaps)):
            row = whole.measured_again(path, self.duels.evidence, times)
            if row is None or row.failure is not None or strategy.is_faster(row.blocks):
                return

    def _change_classes(self) -> None:
        """Go through the classes, the costliest first, until nothing changes or the time is up."""
        order = sorted(self.classes, key=lambda each: each.sites.uses * each.plain_seconds, reverse=True)
        changed = True
        while changed:
            changed = False
            for each in order:
                for other in sorted(
                    considered(each, self.duels.evidence.strategy), key=lambda other: other.ratio
                ):
                    changed |= self._change(each, other)

    def _change(self, each: Tuned, other: Alternative) -> bool:
        """Whether another kernel for one class is taken."""
        strategy = self.duels.evidence.strategy
        now = self.champion.get(each.sites.digest)
        change = each.sites.digest, other.kernel.name if other.kernel else ""
        is_implausible = other.ratio > strategy.change_plausible * (now.ratio if now else 1.0)
        if is_implausible or change in self.experience.banned or change in self._hopeless:
            return False
        selection = {**self.champion, each.sites.digest: other}
        path = self.path(selection)
        if path.is_plain or path.digest in self.experience.tried:
            return False
        if self.experience.model.predicted(selection) > self.duels.whole.tolerance:
            return False
        self.experience.tried.add(path.digest)
        duel = self._duel(path)
        if duel is not None and (duel.failure or duel.ratio > strategy.change_hopeless):
            self._hopeless.add(change)
        return duel is not None and is_won(duel, strategy) and self._is_taken(selection)

    def _duel(self, path: Path) -> Measurement | None:
        """Times of a path against those of the best so far; None if the time is up."""
        if self.duels.evidence.seconds_left < self._until:
            return None
        return self.duels.fought(path, self.path(self.champion))

    def _is_taken(self, selection: Selection) -> bool:
        """Whether a selection that won is exact enough; it is the best so far then."""
        whole = self.duels.whole
        evidence = self.duels.evidence
        row = whole.measured(self.path(selection), evidence, seconds=evidence.strategy.coarse_seconds)
        if row is None:
            return False
        if row.least_tolerance is not None:
            self.experience.model.learn(selection, row.least_tolerance)
        if not whole.accepts(row, self.memory_limit):
            return False
        self.champion = selection
        return True
