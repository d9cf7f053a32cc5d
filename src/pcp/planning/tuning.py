"""Measuring the classes of sites alone: for each, the ways to compute it with their times and errors."""

import functools
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pcp.ir import Program
from pcp.kernels import Kernel, replaced
from pcp.planning.cost_model import estimated_seconds
from pcp.planning.evidence import Evidence
from pcp.planning.index_ranges import index_ranges
from pcp.planning.measurement import Measurement
from pcp.planning.oracle import widened
from pcp.planning.random_inputs import Recipe
from pcp.planning.request import Request
from pcp.planning.significance import is_faster, undisturbed
from pcp.planning.site_classes import SiteClass, share
from pcp.planning.tolerance import USUAL_TOLERANCE

log = logging.getLogger("pcp.planning.search")

NEGLIGIBLE = 1e-3
"""A class that takes less than this part of the time of all is not measured."""
HOPELESS = 1.5
"""A kernel that should take this much longer than the plain operation is not measured."""
MUCH_MORE = 1.2
"""A kernel that does this many times as much is no rival of another."""
BEATEN = 1.1
"""A kernel that surely takes this many times as long as the best of its class is timed no further."""
LARGE_SECONDS = 0.02
"""A region that takes longer in one call is measured on one list of arguments only: drawing and judging those takes longest."""
CALLS = 5
TIMING_SECONDS = 1.5
TIE = 1.05
"""A kernel that takes at most this many times as long as another is about as fast: there is as much noise alone."""
PERHAPS = 1.15
"""A kernel that takes at most this part of the operation's time alone may be of use in the whole."""
SEEMS_FASTER = 0.95
REPEATS = 3
"""How often a kernel is measured that takes less than this part of the operation's time, but not beyond noise."""
FOR_WHOLE = 0.4
"""The part of the budget that classes leave for measuring the whole program."""


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


@dataclass(slots=True)
class Tuned:
    """A class of sites and what was measured of it.

    Arguments:
        sites: the class.
        plain_seconds: of one call of the operation itself.
        alternatives: those that pay, the fastest first; the last is the operation itself.
        rows: what was measured, by kernel name.
        skipped: kernel names that were not measured, and why.
        complete: whether none was skipped for lack of time, or could not be measured.
    """

    sites: SiteClass
    plain_seconds: float
    alternatives: list[Alternative]
    rows: dict[str, Measurement] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    complete: bool = True


def tune(classes: Sequence[SiteClass], evidence: Evidence) -> list[Tuned]:
    """Measure every kernel for every class, the costliest classes first, as long as there is time."""
    evidence.planned += sum(min(2, len(each.kernels)) for each in classes)
    return [_tuned(each, share(each, classes), evidence) for each in classes]


def kernel_label(kernel: Kernel) -> str:
    """What a kernel's measurements are called in the database."""
    return f"{kernel.name}@{kernel.version}"


def _tuned(each: SiteClass, part: float, evidence: Evidence) -> Tuned:
    tuned = Tuned(each, 0.0, [Alternative(None, 1.0, 0.0, 0.0)])
    if part < NEGLIGIBLE:
        tuned.skipped = {kernel.name: "it takes too small a part of the time" for kernel in each.kernels}
        return tuned
    programs = {kernel: replaced(each.region, kernel) for kernel in each.kernels}
    estimates = {kernel: estimated_seconds(program) for kernel, program in programs.items()}
    places = evidence.ranking(each.digest)
    ordered = sorted(
        each.kernels, key=lambda kernel: (places.get(kernel_label(kernel), len(places)), estimates[kernel])
    )

    @functools.cache
    def subject() -> tuple[Program, Recipe]:
        sets = 2 if each.estimate < LARGE_SECONDS * each.uses else 1
        return widened(each.region), Recipe(sets=sets, ranges=index_ranges(each.region))

    def rival(kernel: Kernel) -> float | None:
        """What the kernel has to be near to, to be of interest; None where it has no rival."""
        ratios = [row.ratio for row in tuned.rows.values() if _is_sound(row) and row.seconds]
        if ratios:
            return BEATEN * min(ratios)
        others = [estimate for other, estimate in estimates.items() if other is not kernel]
        return math.inf if any(other <= MUCH_MORE * estimates[kernel] for other in others) else None

    def request(kernel: Kernel) -> Request:
        exact, recipe = subject()
        return Request(
            each.region,
            programs[kernel],
            kernel_label(kernel),
            exact,
            recipe,
            judged_at=USUAL_TOLERANCE,
            calls=CALLS if recipe.sets > 1 else 3,
            timing_seconds=TIMING_SECONDS,
            rival=rival(kernel) if recipe.sets > 1 else None,
            site=kernel.nonfinite,
        )

    for kernel in ordered:
        reason = _hopeless(kernel, estimates, tuned.rows)
        if reason:
            tuned.skipped[kernel.name] = reason
            continue
        row = _decided(each, kernel, rival(kernel), functools.partial(request, kernel), evidence)
        if row is None:
            tuned.skipped[kernel.name] = evidence.trouble
            tuned.complete = False
            continue
        tuned.rows[kernel.name] = row
    tuned.plain_seconds = min(
        (undisturbed(row.plain_seconds) for row in tuned.rows.values() if row.plain_seconds), default=0.0
    )
    tuned.alternatives = _alternatives(tuned)
    return tuned


def _decided(
    each: SiteClass, kernel: Kernel, rival: float | None, request: Callable[[], Request], evidence: Evidence
) -> Measurement | None:
    """What is known of a kernel; one that seems faster than the operation and near to its rival, but not beyond noise, is
    measured again, a few times at most."""
    interesting = SEEMS_FASTER if rival is None else min(SEEMS_FASTER, rival)
    row = None
    for repeat in range(1, REPEATS + 1):

        def enough(row: Measurement, times: int = repeat) -> bool:
            seems_faster = row.failure is None and row.ratio < interesting
            is_often = evidence.count(each.digest, kernel_label(kernel)) >= times
            return not seems_faster or is_often or is_faster(row.seconds, row.plain_seconds)

        row = (
            evidence.of(
                each.digest,
                kernel_label(kernel),
                request,
                enough,
                f"{kernel.name} for {each}",
                about=each.signature,
                until=FOR_WHOLE * evidence.budget,
            )
            or row
        )
    return row


def _hopeless(kernel: Kernel, estimates: dict[Kernel, float], rows: dict[str, Measurement]) -> str:
    """Why a kernel cannot pay, from the measured time of another and the model's idea of how much more it does."""
    for other, estimate in estimates.items():
        row = rows.get(other.name)
        if row is None or not row.seconds or estimate <= 0:
            continue
        expected = row.ratio * estimates[kernel] / estimate
        if estimates[kernel] > MUCH_MORE * estimate and expected > HOPELESS:
            return "by what others took, it would be slower than the operation"
    return ""


def considered(tuned: Tuned) -> list[Alternative]:
    """Every kernel of a class that may be faster in the whole, whatever was measured of it alone, and the operation itself."""
    rows = {kernel: tuned.rows[kernel.name] for kernel in tuned.sites.kernels if kernel.name in tuned.rows}
    return [
        *(
            _alternative(tuned, kernel, row)
            for kernel, row in rows.items()
            if _is_sound(row) and row.ratio <= PERHAPS
        ),
        Alternative(None, 1.0, 0.0, 0.0),
    ]


def _alternatives(tuned: Tuned) -> list[Alternative]:
    """Those that are faster than the operation, the fastest first, and the operation itself.

    Of those that are about as fast as the fastest, the one registered first stands first, so that noise does not decide.
    """
    found = []
    for one in considered(tuned):
        row = None if one.kernel is None else tuned.rows[one.kernel.name]
        if row is not None and is_faster(row.seconds, row.plain_seconds):
            found.append(one)
    found.sort(key=lambda one: (one.ratio, one.error))
    near = [one for one in found if one.ratio <= TIE * found[0].ratio]
    order = tuned.sites.kernels
    first = sorted(near, key=lambda one: order.index(one.kernel) if one.kernel else len(order))[:1]
    return [*first, *(one for one in found if one not in first), Alternative(None, 1.0, 0.0, 0.0)]


def _alternative(tuned: Tuned, kernel: Kernel, row: Measurement) -> Alternative:
    saved = tuned.sites.uses * tuned.plain_seconds * (1.0 - row.ratio)
    return Alternative(kernel, row.ratio, saved, row.least_tolerance or 0.0)


def _is_sound(row: Measurement) -> bool:
    return row.failure is None and row.error is not None
