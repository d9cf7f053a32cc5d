"""What a search may end with: paths that are known to be of use, duels between them, and which of them is the fastest; or the
path that should be, where nothing may be measured.

In a duel two paths are timed in turn, rather than each against the plain program. They do nearly the same, so what disturbs one
disturbs the other as much, which is not so of the plain program.
"""

import hashlib
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pcp.backends import Target
from pcp.kernels import UnknownKernel
from pcp.planning.fitting import Fit
from pcp.planning.measuring.hardware import hardware_of, made_with, versions
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.paths.kinds import Stage, at_stages
from pcp.planning.paths.kinds.stored import retyped
from pcp.planning.paths.path import Path, PathMismatch
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Answer, Asking, Question
from pcp.planning.search.selection import ErrorModel, path_by, saved, select
from pcp.planning.search.site_checks import seconds_to_verify
from pcp.planning.search.site_classes import SiteClass
from pcp.planning.search.strategy import Strategy
from pcp.planning.search.tuning import MeasuredClass
from pcp.planning.search.whole import Whole

UNMEASURABLE = (
    "nothing more was measured, as all paths are held against the plain one; if memory ran out, set PCP_MEMORY_LIMIT to what "
    "is free, so that the plain path is made to fit"
)
"""What is said of a search that no time helps."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected of a path that was never measured.

    Arguments:
        ratio: the time of the sites where kernels stand, relative to their plain time, alone.
        error: that its results are expected to have at most. Nobody measured it.
        measured, similar: classes of sites whose kernels were measured at equal sites, and at similar ones only.
    """

    ratio: float
    error: float
    measured: int
    similar: int


@dataclass
class Found:
    """What a search came to.

    Arguments:
        path: the fastest that was accepted; the plain one if none was.
        measurement: what is known of it, or None if nothing is.
        look: gives what was measured of the sites; looked up only where somebody asks.
        measured: how many measurements were made, others than those from the database.
        notes: what was left out and why, one sentence each.
        complete: whether nothing was left out for lack of time.
        prediction: what is expected of the path, where it was not measured.
        fit: what it gives up to fit into memory, where that was asked for.
    """

    path: Path
    measurement: Measurement | None = None
    look: Callable[[], list[MeasuredClass]] = field(default=list, compare=False, repr=False)
    measured: int = 0
    notes: list[str] = field(default_factory=list)
    complete: bool = True
    prediction: Prediction | None = None
    fit: Fit | None = None

    @cached_property
    def classes(self) -> list[MeasuredClass]:
        """What was measured of the sites."""
        return self.look()

    def kernel_at(self, sites: SiteClass) -> str:
        """The name of the kernel that the path has at a class of sites; empty where it has none."""
        choices = self.path.choices
        return next((choices[site.key].kernel for site in sites.sites if site.key in choices), "")


def predicted_path(
    whole: Whole,
    classes: Sequence[MeasuredClass],
    banned: set[tuple[str, str]],
    known: Mapping[str, Measurement],
    strategy: Strategy,
) -> tuple[Path, Prediction] | None:
    """The path that should be the fastest; None if there is none that may be taken without being measured.

    Errors of its kernels were measured at equal sites, or its kernels compute the operations' own arithmetic, in another order
    at most (see `tuning`). What they come to in the whole is expected to be far within the tolerance. Whoever asks for the bits
    of the plain path gets nothing that was not compared with them. Where a path was timed in the whole, measurements decide.

    Arguments:
        banned: pairs of a class and a kernel's name that are left out.
        known: what was measured of the whole program, by path.
        strategy: says how much larger errors may become in the whole.
    """
    plain_errors = [row.plain_error for row in known.values() if row.plain_error is not None]
    is_decided = any(row.seconds and path != whole.plain.digest for path, row in known.items())
    if not whole.tolerance or max(plain_errors, default=0.0) > whole.tolerance or is_decided:
        return None
    # As if a plan had been measured, so that errors of sites add up from the beginning.
    weights = {each.sites.digest: strategy.amplified**2 * each.sites.uses for each in classes}
    model = ErrorModel(weights, [({}, 0.0)])
    selection = select(classes, whole.tolerance, model, banned, strategy.error_margin)
    path, error = path_by(selection, classes, whole), model.predicted(selection)
    kernels = {digest: one.kernel.name for digest, one in selection.items() if one.kernel is not None}
    taken = [each for each in classes if each.sites.digest in kernels]
    plain_seconds = math.fsum(each.sites.uses * each.plain_seconds for each in taken)
    if not taken or path.digest in known or error > whole.tolerance or plain_seconds <= 0:
        return None
    similar = sum(kernels[each.sites.digest] in each.forecasts for each in taken)
    ratio = 1 - saved(selection) / plain_seconds
    return path, Prediction(ratio, error, len(taken) - similar, similar)


@dataclass(frozen=True, slots=True)
class Duels:
    """The duels of one program's paths.

    Arguments:
        evidence: knows those that were fought, and measures others.
    """

    whole: Whole
    evidence: Evidence

    def fought(
        self, challenger: Path, champion: Path, elsewhere: Target | None = None, *, is_judged: bool = False
    ) -> Asking[Answer]:
        """Times of a challenger in turn with a champion, which has the plain program's place; None if there is no time.

        Where both run in one place, it ends once the challenger surely does not win.

        Arguments:
            elsewhere: where all of the challenger runs, if that is not where the champion does.
            is_judged: whether its errors are measured.
        """
        whole, strategy = self.whole, self.evidence.strategy
        there, shown = "", str(elsewhere or challenger.placement or challenger.digest[:8])
        if elsewhere is not None:
            there = f" and on {elsewhere} {hardware_of(elsewhere).digest} {versions(elsewhere.backend)}"
        elif challenger.placement is not None:
            there = f" and on {' '.join(made_with(whole.target, challenger.placement))}"
        is_exact = is_judged and bool(whole.tolerance)

        def request() -> Request:
            return Request(
                champion.applied(whole.program),
                challenger.applied(whole.program),
                challenger.digest,
                whole.exact if is_exact else None,
                whole.inputs,
                champion.target(whole.target.devices),
                whole.tolerance if is_judged else None,
                judged_at=whole.judged_at if is_exact else None,
                ignored=whole.ignored if is_judged else (),
                options=challenger.options,
                calls=strategy.whole_calls,
                timing_seconds=strategy.duel_seconds,
                rival=None if there else 1 - strategy.small_gain,
                elsewhere=elsewhere,
                placement=challenger.placement,
                bound=challenger.bound,
                subject_bound=champion.bound,
                retyped=retyped(champion.moves, challenger.moves),
            )

        return (
            yield from Question(
                self._subject(champion.digest, there),
                challenger.digest,
                request,
                enough=whole.is_enough if there else lambda _: True,
                what=f"{shown} against {champion.digest[:8]}",
                path=challenger,
                about=f"{whole.about}, {shown} in turn with path {champion.digest[:12]}",
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

    def _subject(self, champion: str, there: str = "") -> str:
        """What the program is called in the database where paths are timed against this one, those that run there."""
        return hashlib.sha256(f"{self.whole.subject} by {champion}{there}".encode()).hexdigest()


def is_won(duel: Measurement, strategy: Strategy) -> bool:
    """Whether the challenger was faster, beyond noise."""
    return duel.failure is None and strategy.is_won(duel.blocks)


log = logging.getLogger("pcp.planning.search")

Known = tuple[Path, Measurement]


@dataclass(frozen=True, slots=True)
class KnownPaths:
    """What a search may end with.

    Arguments:
        whole: the program.
        evidence: what is known.
        duels: of its paths.
        classes: of its sites.
        memory_limit: bytes that a call may take.
    """

    whole: Whole
    evidence: Evidence
    duels: Duels
    classes: Sequence[SiteClass]
    memory_limit: int
    _here: dict[str, bool] = field(default_factory=dict)

    def fast(self) -> dict[str, Known]:
        """By their digests those that were measured to be exact enough and faster than the plain one, in that order."""
        whole, evidence = self.whole, self.evidence
        paths = {}
        for digest, row in evidence.known(whole.subject).items():
            if not whole.accepts(row, self.memory_limit) or not evidence.strategy.is_faster(row.blocks):
                continue
            path = evidence.path(digest)
            if path is None or path.forms != whole.forms or len(path.bound) > whole.bound:
                continue
            if path.backend == whole.target.backend and self._is_here(path):
                paths[digest] = path, row
        return paths

    def fastest(self, paths: Mapping[str, Known]) -> Known | None:
        """The one that none has beaten, beginning with the fastest; of two that are about equally fast, the one that was known
        first."""
        first: Known | None = None
        for path, row in paths.values():
            if first is None or row.ratio < (1 - self.evidence.strategy.margin) * first[1].ratio:
                first = path, row
        return None if first is None else paths[self.duels.unbeaten(first[0].digest, paths.keys())]

    def seconds_to_verify(self) -> float:
        """How long it should take to verify the fastest at its sites."""
        best = self.fastest(self.fast())
        return (
            0.0 if best is None else seconds_to_verify(best[0], best[1].typical, self.classes, self.evidence)
        )

    def _is_here(self, path: Path) -> bool:
        """Whether the kernels of a path are those that there are now, and its options those that suit it now."""
        if path.digest not in self._here:
            try:
                path.kernels()
                if at_stages(path.moves, Stage.written, Stage.prepared, Stage.whole):
                    path.applied(self.whole.program)
                suited = self.whole.suited(path.compiled_by(self.whole.target.options))
                self._here[path.digest] = path == suited
            except (PathMismatch, UnknownKernel) as error:
                log.info("a known path is not followed: %s", error)
                self._here[path.digest] = False
        return self._here[path.digest]
