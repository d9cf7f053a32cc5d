"""Measuring the classes of sites alone: for each, the ways to compute it with their times and errors."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pcp.ir import Program
from pcp.kernels import Kernel, replaced
from pcp.kernels.products.kept import with_kept_panels
from pcp.kernels.residuals import with_residuals
from pcp.planning.judging.oracle import widened
from pcp.planning.judging.tolerance import USUAL_TOLERANCE
from pcp.planning.measuring.index_ranges import site_ranges
from pcp.planning.measuring.measurement import Measurement, Pooled
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.measuring.significance import undisturbed
from pcp.planning.prediction.cost_model import estimated_seconds
from pcp.planning.prediction.model import Forecast
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Answer, Asking, Question, Rest
from pcp.planning.search.site_classes import SiteClass, share
from pcp.planning.search.strategy import Strategy
from pcp.rewrite.row import Effect


@dataclass(frozen=True, slots=True)
class Alternative:
    """A kernel for a class of sites that is faster than the operation itself.

    Arguments:
        kernel: the kernel; None is the operation itself.
        ratio: its time relative to the operation's, alone.
        saved: seconds that all sites of the class save in one call of the program, by times taken alone.
        error: the smallest tolerance that its results are within, alone.
    """

    kernel: Kernel | None
    ratio: float
    saved: float
    error: float


PLAIN = Alternative(None, 1.0, 0.0, 0.0)
"""The operation itself."""


@dataclass(slots=True)
class MeasuredClass:
    """A class of sites and what was measured of it.

    Arguments:
        plain_seconds: of one call of the operation itself.
        alternatives: those that pay, the fastest first; the last is the operation itself.
        rows: what was measured, by kernel name.
        skipped: kernel names that were not measured, and why.
        complete: whether none was skipped for lack of time, or could not be measured.
        forecasts: of kernels that were not measured, by name, from regions like this one.
        might_save: the part of the estimated time of all classes that kernels which there was no time for might save here.
    """

    sites: SiteClass
    plain_seconds: float
    alternatives: list[Alternative]
    rows: dict[str, Measurement] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    complete: bool = True
    forecasts: dict[str, Forecast] = field(default_factory=dict)
    might_save: float = 0.0


class Tuning:
    """The measuring of all classes.

    Arguments:
        classes: the costliest first.
        evidence: what is known, and what measures, as long as there is time.
    """

    def __init__(self, classes: Sequence[SiteClass], evidence: Evidence) -> None:
        self._evidence = evidence
        evidence.planned += sum(min(2, len(each.kernels)) for each in classes)
        self._tunings = [_OneClass(each, share(each, classes), evidence) for each in classes]

    def first(self) -> Asking[list[MeasuredClass]]:
        """Every kernel at every class, once."""
        return (yield from self._pass())

    def again(self, *, patient: bool) -> Asking[list[MeasuredClass]]:
        """What is in doubt once more, apart in time from its last calls.

        Arguments:
            patient: whether to wait for that and go on until nothing is in doubt; otherwise only what is due is measured, once.
        """
        while True:
            measured = self._evidence.measured
            tuned = yield from self._pass(patient=patient)
            if not patient or self._evidence.measured == measured:
                return tuned

    def _pass(self, *, patient: bool = True) -> Asking[list[MeasuredClass]]:
        with self._evidence.leaving(self._evidence.strategy.for_whole):
            for each in self._tunings:
                yield from each.measure(patient=patient)
        return [each.result() for each in self._tunings]


def tune(classes: Sequence[SiteClass], evidence: Evidence) -> Asking[list[MeasuredClass]]:
    """Measure every kernel for every class, the costliest classes first, as long as there is time.

    What is in doubt is measured again when all classes were gone through, so that its calls are apart in time.
    """
    tuning = Tuning(classes, evidence)
    yield from tuning.first()
    return (yield from tuning.again(patient=True))


def kernel_label(kernel: Kernel) -> str:
    """What a kernel's measurements are called in the database."""
    return f"{kernel.name}@{kernel.version}"


class _OneClass:
    """The measuring of one class.

    Arguments:
        part: of the time of all classes.
    """

    def __init__(self, each: SiteClass, part: float, evidence: Evidence) -> None:
        self._each, self._evidence, self._strategy = each, evidence, evidence.strategy
        self._tuned, self._part = MeasuredClass(each, 0.0, [PLAIN]), part
        self._ordered: list[Kernel] = []
        if part < self._strategy.negligible:
            self._tuned.skipped = dict.fromkeys(
                (kernel.name for kernel in each.kernels), "it takes too small a part of the time"
            )
            return
        self._programs = {kernel: replaced(each.region, kernel) for kernel in each.kernels}
        self._estimates = {kernel: estimated_seconds(program) for kernel, program in self._programs.items()}
        known = evidence.known(each.digest)
        for kernel in each.kernels:
            forecast = None if kernel_label(kernel) in known else self._forecast(kernel)
            if forecast is not None:
                self._tuned.forecasts[kernel.name] = forecast
        places = evidence.ranking(each.digest)
        self._ordered = sorted(
            each.kernels,
            key=lambda kernel: (places.get(kernel_label(kernel), len(places)), self._expected(kernel)),
        )

    def _forecast(self, kernel: Kernel) -> Forecast | None:
        """What similar regions say of a kernel; nothing of one that is bound, as they do all in every call."""
        each = self._each
        return None if each.bound else self._evidence.cost_model.forecast(each.region, kernel_label(kernel))

    def _expected(self, kernel: Kernel) -> float:
        """The kernel's time relative to the operation's, by similar regions, or else by what it computes."""
        forecast = self._tuned.forecasts.get(kernel.name)
        if forecast is not None:
            return forecast.ratio
        return self._estimates[kernel] * self._each.uses / max(self._each.estimate, 1e-12)

    def measure(self, *, patient: bool) -> Asking[None]:
        """Measure what was not measured yet, and what is in doubt, once each; only a patient one waits until it is due."""
        tuned = self._tuned
        for kernel in self._ordered:
            is_known = kernel_label(kernel) in self._evidence.known(self._each.digest)
            reason = "" if is_known else self._hopeless(kernel)
            if reason:
                tuned.skipped[kernel.name] = reason
                continue
            row = yield from self._measured(kernel, patient=patient)
            if row is None:
                tuned.skipped[kernel.name] = self._evidence.trouble
                tuned.complete = False
                continue
            tuned.skipped.pop(kernel.name, None)
            tuned.rows[kernel.name] = row

    def result(self) -> MeasuredClass:
        """What was measured."""
        tuned = self._tuned
        known = self._evidence.known(self._each.digest)
        tuned.rows = {
            kernel.name: known[kernel_label(kernel)] for kernel in self._ordered if kernel.name in tuned.rows
        }
        tuned.plain_seconds = min(
            (undisturbed(row.plain_seconds) for row in tuned.rows.values() if row.plain_seconds), default=0.0
        )
        tuned.alternatives = _alternatives(tuned, self._strategy)
        left = [self._expected(kernel) for kernel in self._ordered if kernel.name not in tuned.rows]
        tuned.might_save = 0.0 if tuned.complete else self._part * max(0.0, 1.0 - min(left, default=1.0))
        if not self._evidence.budget:
            self._add_predicted()
        return tuned

    def _add_predicted(self) -> None:
        """Add kernels that nobody has the time to measure here, where similar sites say surely that they are faster.

        They are those that compute the operation's own arithmetic, in another order at most: how wrong others are is not known
        before they are measured at an equal site.
        """
        each, tuned = self._each, self._tuned
        if not tuned.plain_seconds:
            learnt = self._evidence.cost_model.plain_seconds(each.region, each.family)
            tuned.plain_seconds = learnt or each.estimate / max(1, each.uses)
        for kernel in self._ordered:
            forecast = tuned.forecasts.get(kernel.name)
            if (
                forecast is None
                or forecast.error is None
                or forecast.most > 1 - self._strategy.margin
                or kernel.effect is Effect.lowers_precision
            ):
                continue
            saved = each.uses * tuned.plain_seconds * (1 - forecast.ratio)
            tuned.alternatives.append(Alternative(kernel, forecast.ratio, saved, forecast.error))
        tuned.alternatives.sort(key=lambda one: one.ratio)

    def _measured(self, kernel: Kernel, *, patient: bool) -> Asking[Answer]:
        """What is known of a kernel, measured once, or once more if that is in doubt."""
        each, label, evidence = self._each, kernel_label(kernel), self._evidence
        doubtful = kernel.name in self._tuned.rows and self._is_in_doubt(kernel)
        count = evidence.count(each.digest, label)
        gap = self._strategy.gaps[count - 1] if doubtful else 0.0
        if doubtful and not patient and evidence.pause(each.digest, label, gap) > 0:
            return evidence.known(each.digest)[label]
        if doubtful and not (yield from Rest(each.digest, label, gap).asked()):
            self._tuned.complete = False
            return evidence.known(each.digest)[label]
        row = yield from Question(
            each.digest,
            label,
            lambda: self._request(kernel),
            lambda _: True,
            f"{kernel.name} for {each}",
            about=each.signature,
            region=None if each.bound else each.region,
            times=count + 1 if doubtful else 1,
        ).asked()
        return row or evidence.known(each.digest).get(label)

    def _is_in_doubt(self, kernel: Kernel) -> bool:
        """Whether a kernel may be faster than what was measured of it says, or is said to be so only by noise.

        It is in doubt if it seems faster than the operation and near to its rival, but not beyond noise; if the machine was
        disturbed during all its calls; or if it is the best where nothing is faster, unless similar sites say that it is not.
        """
        row = self._tuned.rows[kernel.name]
        count = self._evidence.count(self._each.digest, kernel_label(kernel))
        strategy = self._strategy
        if (
            not _is_sound(row)
            or not row.blocks
            or count >= strategy.repeats
            or strategy.is_faster(row.blocks)
        ):
            return False
        rival = self._rival(kernel)
        if row.ratio < (strategy.seems_faster if rival is None else min(strategy.seems_faster, rival)):
            return True
        if row.ratio > strategy.plausible:
            return False
        sound = {name: each for name, each in self._tuned.rows.items() if _is_sound(each) and each.blocks}
        if any(strategy.is_faster(each.blocks) for each in sound.values()):
            return isinstance(row, Pooled) and not row.is_calm and count < 2
        if kernel.name != min(sound, key=lambda name: sound[name].ratio):
            return False
        forecast = self._forecast(kernel)
        return forecast is None or forecast.ratio < strategy.seems_faster

    def _hopeless(self, kernel: Kernel) -> str:
        """Why a kernel cannot pay: by similar regions, or by what another took here and how much more it does."""
        forecast = self._tuned.forecasts.get(kernel.name)
        if forecast is not None and forecast.least > self._strategy.perhaps:
            return "by what it took at similar sites, it would be slower than the operation"
        estimates = self._estimates
        for other, estimate in estimates.items():
            row = self._tuned.rows.get(other.name)
            if row is None or not row.seconds or estimate <= 0:
                continue
            expected = row.ratio * estimates[kernel] / estimate
            if estimates[kernel] > self._strategy.much_more * estimate and expected > self._strategy.hopeless:
                return "by what others took, it would be slower than the operation"
        return ""

    def _rival(self, kernel: Kernel) -> float | None:
        """What the kernel has to be near to, to be of interest; None where it has no rival."""
        ratios = [row.ratio for row in self._tuned.rows.values() if _is_sound(row) and row.seconds]
        if ratios:
            return self._strategy.beaten * min(ratios)
        others = [estimate for other, estimate in self._estimates.items() if other is not kernel]
        return (
            math.inf
            if any(other <= self._strategy.much_more * self._estimates[kernel] for other in others)
            else None
        )

    @functools.cached_property
    def _subject(self) -> tuple[Program, Recipe]:
        sets = 2 if self._each.estimate < self._strategy.large_region_seconds * self._each.uses else 1
        return widened(self._each.region), Recipe(sets=sets, ranges=site_ranges(self._each.region))

    def _request(self, kernel: Kernel) -> Request:
        exact, recipe = self._subject
        handed = with_residuals(self._each.sites[0], kernel, self._evidence.target.platform)
        bound = self._each.bound if handed is None else ()
        return Request(
            self._each.region if handed is None else handed.subject,
            with_kept_panels(self._programs[kernel], bound) if handed is None else handed.candidate,
            kernel_label(kernel),
            exact if handed is None else widened(handed.subject),
            recipe,
            self._evidence.target,
            judged_at=USUAL_TOLERANCE,
            calls=self._strategy.calls if recipe.sets > 1 else self._strategy.calls_of_large,
            timing_seconds=self._strategy.timing_seconds,
            rival=self._rival(kernel) if recipe.sets > 1 else None,
            site=kernel.claims,
            worth=self._strategy.perhaps,
            residuals=None if handed is None else handed.residuals,
            bound=bound,
        )


def considered(tuned: MeasuredClass, strategy: Strategy) -> list[Alternative]:
    """Every kernel of a class that may be faster in the whole, whatever was measured of it alone, and the operation itself."""
    rows = {kernel: tuned.rows[kernel.name] for kernel in tuned.sites.kernels if kernel.name in tuned.rows}
    return [
        *(
            _alternative(tuned, kernel, row)
            for kernel, row in rows.items()
            if _is_sound(row) and row.ratio <= strategy.perhaps
        ),
        PLAIN,
    ]


def _alternatives(tuned: MeasuredClass, strategy: Strategy) -> list[Alternative]:
    """Those that are faster than the operation, the fastest first, and the operation itself.

    Of those that are about as fast as the fastest, the one registered first stands first, so that noise does not decide.
    """
    faster = []
    for one in considered(tuned, strategy):
        row = None if one.kernel is None else tuned.rows[one.kernel.name]
        if row is not None and strategy.is_faster(row.blocks):
            faster.append(one)
    faster.sort(key=lambda one: (one.ratio, one.error))
    near = [one for one in faster if one.ratio <= strategy.tie * faster[0].ratio]
    order = tuned.sites.kernels
    first = sorted(near, key=lambda one: order.index(one.kernel) if one.kernel else len(order))[:1]
    return [*first, *(one for one in faster if one not in first), PLAIN]


def _alternative(tuned: MeasuredClass, kernel: Kernel, row: Measurement) -> Alternative:
    saved = tuned.sites.uses * tuned.plain_seconds * (1.0 - row.ratio)
    return Alternative(kernel, row.ratio, saved, row.least_tolerance or 0.0)


def _is_sound(row: Measurement) -> bool:
    return row.failure is None and row.error is not None
