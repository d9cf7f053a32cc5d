"""Kernels of all families, or of one, at every site at once: the largest gain is known before anything is measured alone."""

import itertools
import logging
from collections.abc import Mapping, Sequence

from pcp.kernels import FAMILIES, Kernel
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.site_classes import SiteClass, kernels_by_site
from pcp.planning.search.whole import Whole

log = logging.getLogger("pcp.planning.search")


def try_everywhere(whole: Whole, classes: Sequence[SiteClass], evidence: Evidence) -> None:
    """Measure the whole program with the kernels that families name for this, as long as there is time.

    The fastest kernels of all families come first, together: where these are exact enough, nothing less needs a look. If not,
    each family is tried alone.
    """
    together = _taking([family.everywhere[-1] for family in FAMILIES.values() if family.everywhere], classes)
    families = {kernel.family for kernel in together.values()}
    if len(families) > 1 and whole.tolerance >= evidence.strategy.rounds_everything:
        row = _try_most("the fastest of every family", together, whole, classes, evidence)
        if row is None or whole.is_exact_enough(row):
            return
    for names in (names for family in FAMILIES.values() for names in family.everywhere):
        chosen = _taking([names], classes)
        if chosen and _try_most(names[0], chosen, whole, classes, evidence) is None:
            return


def _taking(wanted: Sequence[Sequence[str]], classes: Sequence[SiteClass]) -> dict[str, Kernel]:
    """For each class the first of these kernels that takes it, by the digests of classes."""
    order = {name: place for names in wanted for place, name in enumerate(names)}
    taking = {each.digest: [kernel for kernel in each.kernels if kernel.name in order] for each in classes}
    return {
        digest: min(kernels, key=lambda kernel: order[kernel.name])
        for digest, kernels in taking.items()
        if kernels
    }


def _try_most(
    name: str, chosen: Mapping[str, Kernel], whole: Whole, classes: Sequence[SiteClass], evidence: Evidence
) -> Measurement | None:
    """Measure the whole program with these kernels, and as long as it is too wrong, without those that should save least.

    Errors of sites add up by their squares, and each site is taken to add as much as another: which of them spoils a result is
    not known before they are measured alone.

    Arguments:
        name: of the kernels, for people.
        chosen: the kernels, by the digests of their classes.

    Returns:
        The last measurement; None if there was no time.
    """
    strategy = evidence.strategy
    taken = sorted(
        (each for each in classes if each.digest in chosen), key=lambda each: -each.estimate / each.uses
    )
    row = None
    for _ in range(strategy.everywhere_attempts):
        kernels = {each.digest: chosen[each.digest] for each in taken}
        row = whole.measured(whole.path(kernels_by_site(classes, kernels)), evidence)
        if row is None:
            return None
        uses = sum(each.uses for each in taken)
        error = row.least_tolerance or 0.0
        log.info(
            "%s at %d sites: %s, error %.2g",
            name,
            uses,
            row.failure or f"{row.ratio:.3f} of the plain time",
            error,
        )
        if whole.is_broken(row) or error <= whole.tolerance:
            break
        most = uses * (strategy.error_margin * whole.tolerance / error) ** 2
        sums = itertools.accumulate(each.uses for each in taken)
        taken = [each for each, total in zip(taken, sums, strict=True) if total <= most]
        if not taken:
            break
    return row
