"""The search for the fastest path of a program within a tolerance, by measurement.

Classes of equal sites are measured alone, then their fastest kernels together in the whole program, against the plain program
and float64. What is too wrong is moved to more exact kernels, what does not run in the whole is left out, and what is not
faster than the plain program beyond noise is not used. The fastest selection of a short program is then refined.
Every step asks the database first, so the same search is answered from it the second time, and one that was cut short goes on
where it stopped.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from pcp.errors import PCPError
from pcp.kernels import Kernel, missing_kernels
from pcp.planning.judging.tolerance import least_tolerance
from pcp.planning.measuring.measurement import Judgement, Measurement
from pcp.planning.paths.path import Path
from pcp.planning.search.everywhere import leave_families_out, try_everywhere
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import UNMEASURABLE, Duels, Found, KnownPaths, is_won, predicted_path
from pcp.planning.search.question import Asking, shown
from pcp.planning.search.refinement import Refinement, confirmed, is_unexpected
from pcp.planning.search.selection import (
    ErrorModel,
    Experience,
    Selection,
    kernels_of,
    path_by,
    saved,
    select,
)
from pcp.planning.search.site_checks import doubt_at_its_sites
from pcp.planning.search.strategy import Step, Strategy
from pcp.planning.search.tuning import MeasuredClass, Tuning, kernel_label
from pcp.planning.search.whole import Whole, culprit

log = logging.getLogger("pcp.planning.search")


class ToleranceUnreachable(PCPError):
    """A tolerance that the plain path misses, so that no path is within it."""


class Search:
    """One search; `run` returns what it came to, also where it is interrupted.

    Arguments:
        whole: the program, its tolerance, and what it is measured on.
        evidence: what is known and can be measured.
        memory_limit: bytes that a call may take.

    Attributes:
        sites: the classes of the program's sites, as far as there are kernels for them.
    """

    def __init__(self, whole: Whole, evidence: Evidence, memory_limit: int) -> None:
        self.whole = whole
        self.evidence = evidence
        self.strategy: Strategy = evidence.strategy
        self.memory_limit = memory_limit
        self.notes: list[str] = []
        self.classes: list[MeasuredClass] = []
        self.complete = True
        self._is_settled = False  # whether nothing more is measured
        self._experience = Experience(ErrorModel.of(()), tried={whole.plain.digest})
        self._chosen: Selection = {}  # the fastest so far
        self._ratio = 1.0  # the whole's time by it, relative to the plain program's
        self._worthwhile = 0.0  # seconds that a further selection has to save alone
        self._lost: list[Selection] = []  # that should have been faster than the plain program
        self._set_aside: set[tuple[str, str]] = set()  # what was banned for that
        self._platform = whole.target.platform
        self.sites = whole.classes
        for reason, names in missing_kernels(whole.sites).items():
            self._say(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} missing here: {reason}")
        self._duels = Duels(whole, evidence)
        self._budget = evidence.budget  # before Ctrl-C ends it
        self._known = KnownPaths(whole, evidence, self._duels, self.sites, memory_limit)
        evidence.keep_back(self._known.seconds_to_verify)

    def run(self) -> Asking[Found]:
        """Search.

        Raises:
            ToleranceUnreachable: every path that was measured is less exact, the plain one included.
        """
        try:
            steps: dict[Step, Callable[[], Asking[None]]] = {
                Step.plain: self._check_plain,
                Step.everywhere: self._try_everywhere,
                Step.descent: self._leave_families_out,
                Step.classes: self._tune,
                Step.families: self._try_whole,
                Step.doubts: self._settle_doubts,
                Step.losses: self._confirm_losses,
                Step.refinement: self._refine,
            }
            for step in self.strategy.steps:
                yield from steps[step]()
                if self.whole.subject in self.evidence.unmeasurable:
                    self._say(UNMEASURABLE)
                    self.complete = False
                    break
                if self._is_settled:
                    break
        except KeyboardInterrupt:
            self._say("it was interrupted; what was measured is kept")
            self.complete = False
            self.evidence.interrupt()
            if not any(row.seconds for row in self.evidence.known(self.whole.subject).values()):
                raise  # no path was measured yet
        return (yield from self._best())

    def _try_everywhere(self) -> Asking[None]:
        if self._is_large() and (yield from try_everywhere(self.whole, self.sites, self.evidence)):
            self._is_settled = self._platform in self.strategy.settled_on
            if self._is_settled:
                self._say("no kernel was measured alone: the fastest of every family hold together")

    def _leave_families_out(self) -> Asking[None]:
        if self._is_large() and self._platform not in self.strategy.settled_on:
            yield from leave_families_out(self._known, self.sites)

    def _tune(self) -> Asking[None]:
        self._tuning = Tuning(self.sites, self.evidence)
        self.classes = yield from self._tuning.first()
        self._experience.model = ErrorModel.of(self.classes)
        self.complete = all(each.complete for each in self.classes)

    def _settle_doubts(self) -> Asking[None]:
        """Measure kernels again that are in doubt, then the whole with the fastest.

        Nobody waits for that where something is faster already: refining decides between kernels that are about as fast.
        """
        if not self.classes or (self._chosen and not self.evidence.measured):
            return
        before = _fastest(self.classes)
        self.classes = yield from self._tuning.again(patient=not self._chosen)
        self.complete = self.complete and all(each.complete for each in self.classes)
        if _fastest(self.classes) != before:
            yield from self._try_whole()

    def _is_large(self) -> bool:
        """Whether measuring all classes alone may take most of the budget.

        On a GPU it does: compiling a kernel takes a hundred times as long as running it."""
        if self._platform == "cpu":
            return math.fsum(each.estimate for each in self.sites) > self.strategy.large_seconds
        return any(
            kernel_label(kernel) not in self.evidence.known(each.digest)
            for each in self.sites
            for kernel in each.kernels
        )

    def _try_whole(self) -> Asking[None]:
        """Measure the whole program with the fastest kernels of all families; of a long one, with one family more each time.

        What a kernel does alone is not what it does in the whole, where its inputs may be computed anyway for somebody else. So
        a family whose kernels are of no use there must not spoil what those of another save. Of a short program refining finds
        out which family that is. Otherwise, and where all together save nothing, families are added one by one, those first
        that save most alone.
        """
        families = self._families()
        together = [each for classes in families for each in classes]
        if (
            len(families) > 1
            and self._is_measured_often
            and ((yield from self._try(together, alone=False)) or self._chosen)
        ):
            return
        kept: list[MeasuredClass] = []
        for classes in families:
            if (yield from self._try([*kept, *classes], alone=not kept)):
                kept += classes

    def _families(self) -> list[list[MeasuredClass]]:
        """The classes of each family that saves anything alone, in order of how much."""
        families: dict[str, list[MeasuredClass]] = {}
        for each in self.classes:
            families.setdefault(each.sites.family, []).append(each)
        gains = {
            family: saved(self._selected(classes, ErrorModel.of(classes)))
            for family, classes in families.items()
        }
        ordered = sorted(families, key=gains.__getitem__, reverse=True)
        return [
            families[each] for each in ordered if gains[each] >= self.strategy.little * self._plain_seconds
        ]

    def _try(self, classes: list[MeasuredClass], alone: bool) -> Asking[bool]:
        """Measure selections for these classes until none is left that should save more; whether the whole got faster.

        Arguments:
            classes: those that may be computed otherwise.
            alone: whether none of them was of use before; if not, one selection that does not help is enough.
        """
        faster = False
        often = self._is_measured_often
        for _ in range(self.strategy.attempts):
            selection = self._selected(classes, self._experience.model)
            path = self._path(selection)
            if path.digest in self._experience.tried or saved(selection) < self._worthwhile:
                break
            self._experience.tried.add(path.digest)
            if often:
                row = yield from self.whole.measured(
                    path, self.evidence, seconds=self.strategy.coarse_seconds
                )
            else:
                row = yield from self.whole.measured(path, self.evidence, self._ratio)
            if row is None:
                self._say(f"the whole program was not measured: {self.evidence.trouble}")
                self.complete = False
                break
            if self.whole.is_broken(row):
                if not (yield from self._ban_culprit(selection, row)):
                    break
            elif row.least_tolerance is not None and row.least_tolerance > self.whole.tolerance:
                if not path.choices:
                    break
                self._experience.model.learn(selection, row.least_tolerance)
            elif self.strategy.is_faster(row.blocks) and (yield from self._is_better(path, row)):
                self._experience.model.learn(selection, row.least_tolerance or 0.0)
                self._ratio, self._chosen, faster = row.ratio, selection, True
                self._worthwhile = saved(selection) + self.strategy.worthwhile * self._plain_seconds
            else:
                if is_unexpected(selection, row, self.strategy):
                    self._lost.append(selection)
                if not alone or not self._ban_least(selection):
                    break
        return faster

    def _selected(self, classes: list[MeasuredClass], model: ErrorModel) -> Selection:
        tolerance, banned = self.whole.tolerance, self._experience.banned
        return select(classes, tolerance, model, banned, self.strategy.error_margin)

    def _confirm_losses(self) -> Asking[None]:
        """Measure again what lost although it should have won; what wins then is used after all."""
        lost, is_short = self._lost, self._is_measured_often
        walk = confirmed(lost, self.classes, self.whole, self.evidence, is_short=is_short)
        while (again := (yield from shown(walk))) is not None:
            selection, row = again
            if row is None:
                self._say(f"a loss was not confirmed: {self.evidence.trouble}")
                self.complete = False
                return
            accepts = self.whole.accepts(row, self.memory_limit)
            if accepts and (yield from self._is_better(self._path(selection), row)):
                self._ratio, self._chosen = row.ratio, selection
            self._experience.banned -= self._set_aside

    def _is_better(self, path: Path, row: Measurement) -> Asking[bool]:
        """Whether a path that should save more than the fastest so far takes its place.

        It does if it took less of the plain program's time. Otherwise, where duels are cheap, it does unless the fastest so
        far surely wins a duel against it: what its kernels took alone speaks for it.
        """
        if not self._chosen or not self._is_measured_often or row.ratio < self._ratio:
            return row.ratio < self._ratio
        duel = yield from self._duels.fought(self._path(self._chosen), path)
        return duel is not None and not is_won(duel, self.strategy)

    def _refine(self) -> Asking[None]:
        """Refine the fastest selection, unless nothing was measured before: then an earlier search has finished already."""
        if self._chosen and self.evidence.measured and self._is_measured_often:
            refinement = Refinement(
                self._duels, self.classes, self._experience, self.memory_limit, self._chosen
            )
            yield from refinement.run()
            if refinement.left_out:
                self._say(
                    f"{refinement.left_out} other kernels of single classes were not tried in the whole: "
                    f"each could save less than {self.strategy.small_gain:.1%} of its time"
                )

    @property
    def _plain_seconds(self) -> float:
        """Of all sites together, alone."""
        return math.fsum(each.sites.uses * each.plain_seconds for each in self.classes)

    @property
    def _is_measured_often(self) -> bool:
        """Whether a call of the program is short enough for measuring it for a single class."""
        return self._plain_seconds < self.strategy.often_seconds

    def _path(self, selection: Selection) -> Path:
        return path_by(selection, self.classes, self.whole)

    def _ban_culprit(self, selection: Selection, row: Measurement) -> Asking[bool]:
        """Leave out one choice because of which the whole does not run; whether there is anything left to try."""
        chosen = kernels_of(selection)
        if not chosen:
            return False
        digest = yield from culprit(self.whole, self.sites, chosen, self.evidence)
        if digest is None:
            self.complete = False
            return False
        self._experience.banned.add((digest, chosen[digest].name))
        sites = next(each for each in self.sites if each.digest == digest)
        self._say(
            f"{chosen[digest].name} does not run for {sites.signature} in the whole program: {row.failure}"
        )
        return True

    def _ban_least(self, selection: Selection) -> bool:
        """Leave out the half of the choices that should save least; whether any are left."""
        chosen = sorted(
            (digest for digest, one in selection.items() if one.kernel is not None),
            key=lambda digest: (selection[digest].saved, digest),
        )
        for digest in chosen[: (len(chosen) + 1) // 2]:
            kernel = selection[digest].kernel
            if kernel is not None:
                self._set_aside.add((digest, kernel.name))
        self._experience.banned |= self._set_aside
        self._say("kernels that are faster alone are not in the whole program; half of them are left out")
        return len(chosen) > 1

    def _best(self) -> Asking[Found]:
        """The fastest path that is known and holds at its sites."""
        whole, evidence = self.whole, self.evidence
        fast = self._known.fast()
        while (best := self._known.fastest(fast)) is not None:
            path, row = best
            doubt = yield from doubt_at_its_sites(path, self.sites, evidence)
            if doubt is None:
                return self.as_found(path, row)
            del fast[path.digest]
            self._say(
                f"path {path.digest[:12]}, with {row.ratio:.2f} of the plain time, is not used: {doubt.words}"
            )
            self.complete = self.complete and not doubt.is_untried
        known = evidence.known(whole.subject)
        if not self._budget:
            predicted = predicted_path(whole, self.classes, self._experience.banned, known, self.strategy)
            if predicted is not None:
                path, prediction = predicted
                return replace(self.as_found(path, None), prediction=prediction)
        return self.as_found(whole.plain, known.get(whole.plain.digest))

    def _check_plain(self) -> Asking[None]:
        """Look at how wrong the plain path is.

        Raises:
            ToleranceUnreachable: it misses the tolerance.
        """
        whole = self.whole
        if not whole.tolerance:
            return
        row = yield from whole.plain_judged(self.evidence)
        if row is None or row.least_tolerance is None:
            words = f"the error of the plain path is not known: {self.evidence.trouble}"
            log.warning("%s", words)
            self.notes.append(words)
        elif row.least_tolerance > whole.tolerance:
            name, why = _worst_result(row)
            raise ToleranceUnreachable(
                f"the plain path of program {whole.program.digest[:12]} misses the tolerance of {whole.tolerance:g}: {why}; "
                f"no path is within a tolerance that the plain one misses. Give a tolerance of at least "
                f"{1.05 * row.least_tolerance:.1e}, write the program in wider types, or leave that result out by "
                f"judge={{{name!r}: 'ignore'}}"
            )

    def known_within(self, limit: int) -> Found | None:
        """The fastest path that was measured to take no more than so many bytes; None if none is faster than the plain one."""
        known = KnownPaths(self.whole, self.evidence, self._duels, self.sites, limit)
        best = known.fastest(known.fast())
        return None if best is None else self.as_found(*best)

    def as_found(self, path: Path, row: Measurement | None) -> Found:
        """What a search that ends with a path comes to."""
        classes = self.classes
        return Found(path, row, lambda: classes, self.evidence.measured, self.notes, self.complete)

    def _say(self, words: str) -> None:
        if words not in self.notes:
            log.info("%s", words)
            self.notes.append(words)


def _fastest(classes: Sequence[MeasuredClass]) -> list[Kernel | None]:
    return [each.alternatives[0].kernel for each in classes]


def _worst_result(row: Measurement) -> tuple[str, str]:
    """The name of the result that needs the largest tolerance, and how wrong it is."""
    judgement, error = row.judgement or Judgement(), row.error or 0.0
    if least_tolerance(0.0, judgement.slice_error) > error:
        name = judgement.slice.partition(", ")[0]
        return name, f"the error of a slice ({judgement.slice}) is {judgement.slice_error:.3g}"
    kind = "share of differing elements" if judgement.result in dict(judgement.shares) else "error"
    return judgement.result, f"the {kind} of result {judgement.result} is {error:.3g}"
