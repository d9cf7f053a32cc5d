"""Duels: paths of one program timed against one another in turn, rather than each against the plain program.

Two paths do nearly the same, so what disturbs one disturbs the other as much, which is not so of the plain program.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Answer, Asking, Question
from pcp.planning.search.strategy import Strategy
from pcp.planning.search.whole import Whole


@dataclass(frozen=True, slots=True)
class Duels:
    """The duels of one program's paths.

    Arguments:
        evidence: knows those that were fought, and measures others.
    """

    whole: Whole
    evidence: Evidence

    def fought(self, challenger: Path, champion: Path) -> Asking[Answer]:
        """Times of a challenger in turn with a champion, which has the plain program's place; None if there is no time.

        It ends once the challenger surely does not win. Its errors are not measured.
        """
        program, strategy = self.whole.program, self.evidence.strategy

        def request() -> Request:
            return Request(
                champion.applied(program),
                challenger.applied(program),
                challenger.digest,
                inputs=self.whole.inputs,
                target=champion.target(self.whole.target.devices),
                options=challenger.options,
                calls=strategy.whole_calls,
                timing_seconds=strategy.duel_seconds,
                rival=1 - strategy.small_gain,
                bound=challenger.bound,
                subject_bound=champion.bound,
            )

        return (
            yield from Question(
                self._subject(champion.digest),
                challenger.digest,
                request,
                enough=lambda _: True,
                what=f"{challenger.digest[:8]} against {champion.digest[:8]}",
                path=challenger,
                about=f"{self.whole.about}, by path {champion.digest[:12]}",
            ).asked()
        )

    def unbeaten(self, first: str, paths: Collection[str]) -> str:
        """The path that none has beaten, by the duels that are known.

        Arguments:
            first: the digest of the path to begin with.
            paths: digests of those that may be taken instead.
        """
        left = set(paths) - {first}
        while True:
            challengers = self.evidence.known(self._subject(first))
            winners = {
                each: challengers[each]
                for each in left & challengers.keys()
                if is_won(challengers[each], self.evidence.strategy)
            }
            stronger = (
                min(winners, key=lambda each: winners[each].ratio) if winners else self._held(first, left)
            )
            if stronger is None:
                return first
            first = stronger
            left.remove(first)

    def _held(self, challenger: str, paths: Collection[str]) -> str | None:
        """A path that this one has challenged in vain."""
        for champion in sorted(paths):
            row = self.evidence.known(self._subject(champion)).get(challenger)
            if row is not None and not is_won(row, self.evidence.strategy):
                return champion
        return None

    def _subject(self, champion: str) -> str:
        """What the program is called in the database where paths are timed against this one."""
        return hashlib.sha256(f"{self.whole.subject} by {champion}".encode()).hexdigest()


def is_won(duel: Measurement, strategy: Strategy) -> bool:
    """Whether the challenger was faster, beyond noise."""
    return duel.failure is None and strategy.is_won(duel.blocks)
