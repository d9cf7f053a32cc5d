"""Strategy: every number that a search decides by, and the order of its steps, as one value."""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.significance import Block, is_faster_in

_DAY_SECONDS = 86400.0


class Step(enum.StrEnum):
    """A part of a search; each asks for measurements, and takes those that are known."""

    plain = "how wrong the plain path is"
    everywhere = (
        "kernels of all families, then of one, at every site, where measuring each alone may take too long"
    )
    descent = (
        "the fastest whole without one family at a time, where measuring each kernel alone may take too long"
    )
    classes = "every kernel alone, at each class of equal sites"
    families = "the fastest kernels together in the whole program, and which family is of no use there"
    doubts = "kernels alone once more that noise may have made slow"
    losses = "what should have been faster in the whole and was not, once more"
    refinement = "other kernels for one class at a time, in duels with the fastest selection"


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a search goes from evidence to a path. Equal strategies on equal evidence choose the same path.

    Parts of the budget that are left for what comes later become deadlines in one way: `Evidence.leaving`.

    Arguments:
        steps: in order. After the last one, or when the time is up, the fastest path that is known is taken.

        margin: a gain below this part of the time is a tie, however sure it is.
        small_gain: a path takes the place of another in a duel for this: the gains of many classes add up.
        gaps: seconds between measurements of what is in doubt: whatever else a machine does lasts for seconds.
        gap_of_a_gain: seconds between measurements of a path that was faster than the plain program.
        tries_a_day: how often a path is measured again that failed for a reason that may pass, such as a lack of memory.

        negligible: a class that takes less than this part of the time of all is not measured, and has no kernel that rounds.
        hopeless: a kernel that should take this many times as long as the plain operation is not measured.
        much_more: a kernel that does this many times as much is no rival of another.
        beaten: a kernel that surely takes this many times as long as the best of its class is timed no further.
        large_region_seconds: a region that takes longer in one call is measured on one list of arguments only: drawing and
            judging those takes longest.
        calls, calls_of_large: of a kernel alone, timed at least.
        timing_seconds: of a kernel alone.
        tie: a kernel that takes at most this many times as long as another is about as fast: there is as much noise alone.
        perhaps: a kernel that takes at most this many times as long as the operation alone may be of use in the whole; one that
            surely takes longer is not verified at its sites, unless a path has it that is to be used.
        seems_faster: one that takes less than this part of the operation's time, but not surely, is measured again.
        plausible: one that takes more than this many times as long is not one that noise alone made slow.
        for_whole: the part of the budget that classes leave for measuring the whole program.

        whole_calls, whole_seconds: of a whole program, timed at least.
        whole_share: the part of the budget that one such timing takes at most.
        coarse_seconds: the same of a path that is timed against others, too.
        warm_calls: calls of a training step before it is judged, so that its moments are as in a run.
        large_seconds: a program that takes less in one call gains too little to be measured whole before its parts.
        error_of_bits: a kernel that keeps n bits of its operands is not tried in all families at once where the tolerance is
            less than this times 2^-n.
        by_cause: how often, where kernels of all families are too wrong together, they are measured with more exact ones at the
            sites that spoil results: of the layers of these, of all layers, and one site further away each time.
        few_causes: these take no more than this part of the time of all that would be more exact.
        lowered: each time leaves no more than this part of the error of the one before, or it was the last.
        everywhere_attempts: how often one family's kernels are tried, at fewer sites each time, until they are exact enough.
        attempts: selections of a family that are measured whole at most.
        settled_on: kinds of devices where nothing is measured alone once the fastest kernels of all families hold together, and
            no family is left out: compiling takes longer there than many calls of the whole program.
        error_margin: the predicted error may be this part of the tolerance.
        promised: together, kernels save at least this part of what they save alone, both relative to the plain time, or one of
            their families spoils it.
        worthwhile: a further selection is measured if it should save this part more of the time than the best so far; the whole
            is measured without a family that should take this part of the time.
        little: a family that should save less than this part of the time is not tried as one, but left to refining.
        often_seconds: a program that takes longer in one call is not measured for a single class.

        site_calls: calls of a program that verifying a kernel at one class of its sites may take, before any was verified.
        most_kept_back: the part of the budget that is kept back at most for verifying kernels from outside at the sites of the
            fastest path.
        most_verified: the part of the budget that verifying PCP's own kernels alone takes at most: wholes are judged with them.

        expected: a whole that should gain more than this by its kernels' gains alone, but did not, is measured again later.
        confirmed: how many of these paths: the ones that should save most.

        duel_seconds: how long a duel is timed.
        effort: refining takes at most this part of the time of everything before it.
        for_last: the part of the budget that it leaves for measuring the fastest against the plain program.
        change_plausible: a kernel that takes more than this many times as long alone is not faster in the whole.
        change_hopeless: a kernel that once made the whole take this many times as long is not tried in it again.

        for_others: the part of the budget that the search at home leaves for measuring elsewhere, where there are other places.
        for_placements: the part of what is left then that measuring single operations leaves for measuring whole programs.
        placements: how many placements are measured at most; the first should be the fastest.
        for_memory: the part that kernels and other forms leave for making a path fit, where memory was asked for.
        whole_logits: bytes of logits that are made at once where memory was asked for and kernels take too much; more are made
            in blocks.
        for_forms: the part that kernels leave for other forms of the program, where there may be some.
        for_costs: the part of that in which operations may be measured alone.
        stored_on: kinds of devices where values are kept in fewer bits: processors multiply such ones no faster by XLA.
        few_rows: a bound matrix that is multiplied by more rows at once is not kept in fewer bits: to read it takes less time
            than to multiply it.
        little_stored: where kernels leave no more than this part of the bytes in full, no values are kept in fewer bits.

        amplified: results of a whole may be wrong by this many times what its sites are alone, as far as nobody measured it.
        most_dropped: paths that are dropped, one after another, because they compute something else in the user's process.
    """

    steps: tuple[Step, ...] = tuple(Step)

    margin: float = 0.02
    small_gain: float = 0.005
    gaps: tuple[float, ...] = (1.0, 2.0, 3.0)
    gap_of_a_gain: float = 0.5
    tries_a_day: int = 3

    negligible: float = 1e-3
    hopeless: float = 1.5
    much_more: float = 1.2
    beaten: float = 1.1
    large_region_seconds: float = 0.02
    calls: int = 5
    calls_of_large: int = 3
    timing_seconds: float = 1.5
    tie: float = 1.05
    perhaps: float = 1.15
    seems_faster: float = 0.95
    plausible: float = 1.5
    for_whole: float = 0.4

    whole_calls: int = 3
    whole_seconds: float = 8.0
    whole_share: float = 0.1
    coarse_seconds: float = 2.0
    warm_calls: int = 8
    large_seconds: float = 0.1
    error_of_bits: float = 0.4
    by_cause: int = 3
    few_causes: float = 0.5
    lowered: float = 0.9
    everywhere_attempts: int = 4
    attempts: int = 8
    settled_on: tuple[str, ...] = ("cuda",)
    error_margin: float = 0.9
    promised: float = 0.6
    worthwhile: float = 0.03
    little: float = 0.005
    often_seconds: float = 0.25

    site_calls: int = 40
    most_kept_back: float = 0.3
    most_verified: float = 0.1

    expected: float = 0.04
    confirmed: int = 3

    duel_seconds: float = 5.0
    effort: float = 0.5
    for_last: float = 0.1
    change_plausible: float = 1.6
    change_hopeless: float = 1.02

    for_others: float = 0.3
    for_placements: float = 0.5
    placements: int = 3
    for_memory: float = 0.4
    whole_logits: int = 1 << 28
    for_forms: float = 0.4
    for_costs: float = 0.3
    stored_on: tuple[str, ...] = ("cuda",)
    few_rows: int = 8
    little_stored: float = 0.002

    amplified: float = 4.0
    most_dropped: int = 3

    def is_faster(self, blocks: Sequence[Block]) -> bool:
        """Whether a candidate takes the place of the plain program."""
        return is_faster_in(blocks, self.margin)

    def is_won(self, blocks: Sequence[Block]) -> bool:
        """Whether a challenger takes the place of the best path so far."""
        return is_faster_in(blocks, self.small_gain)

    @property
    def repeats(self) -> int:
        """How often a kernel is measured that seems faster than the operation, but not beyond noise."""
        return 1 + len(self.gaps)

    def tried_again_at(self, rows: Sequence[Measurement]) -> float:
        """When a path of these rows is measured again, as it failed for a reason that may pass: 0 for the next time, infinity
        for never."""
        failures = [row for row in rows if row.failure is not None and row.failure.may_pass]
        if not failures or rows[-1] is not failures[-1]:
            return math.inf
        often = len(failures) >= self.tries_a_day
        return sorted(row.when for row in failures)[-self.tries_a_day] + _DAY_SECONDS if often else 0.0
