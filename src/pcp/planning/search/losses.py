"""Losses that are confirmed: what should have been faster by its parts, and was not in the whole, is measured again later.

What else a machine does lasts for seconds, and all calls of one measurement are disturbed alike by it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.significance import undisturbed
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Asking
from pcp.planning.search.selection import Selection, path_by, saved
from pcp.planning.search.strategy import Strategy
from pcp.planning.search.tuning import MeasuredClass
from pcp.planning.search.whole import Whole


def is_unexpected(selection: Selection, row: Measurement, strategy: Strategy) -> bool:
    """Whether a whole was not faster than the plain program, though its kernels saved enough alone for that to show."""
    expected = strategy.expected * undisturbed(row.plain_seconds)
    return saved(selection) > expected and not strategy.is_faster(row.blocks)


@dataclass(slots=True)
class Losses:
    """Measures losses again.

    Arguments:
        is_short: whether a call is so short that a path is measured again several times, rather than once.
        trouble: why a loss was not measured again, in the end.
    """

    whole: Whole
    evidence: Evidence
    classes: Sequence[MeasuredClass]
    is_short: bool
    trouble: str = ""

    def confirm(
        self, lost: Sequence[Selection], won: Callable[[Selection, Measurement], Asking[None]]
    ) -> Asking[None]:
        """Measure losses again; `won` is called with each that is faster than the plain program after all, and its row."""
        strategy = self.evidence.strategy
        left = sorted(lost, key=saved, reverse=True)[: strategy.confirmed]
        seconds = strategy.coarse_seconds if self.is_short else strategy.whole_seconds
        for times in range(2, 2 + (len(strategy.gaps) if self.is_short else 1)):
            for selection in list(left):
                path = path_by(selection, self.classes, self.whole)
                row = yield from self.whole.measured_again(path, self.evidence, times, seconds)
                if row is None:
                    self.trouble = self.evidence.trouble
                    return
                is_faster = row.failure is None and strategy.is_faster(row.blocks)
                if is_faster or row.failure is not None:
                    left.remove(selection)
                if is_faster:
                    yield from won(selection, row)
