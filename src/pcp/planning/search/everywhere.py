"""One family's kernels at every site at once, so that the largest gain is known before anything is measured alone."""

import itertools
import logging
from collections.abc import Mapping, Sequence

from pcp.kernels import FAMILIES, Kernel
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.site_classes import SiteClass, kernels_by_site
from pcp.planning.search.whole import Whole

log = logging.getLogger("pcp.planning.search")


def try_everywhere(whole: Whole, classes: Sequence[SiteClass], evidence: Evidence) -> None:
    """Measure the whole program with the kernels that a family names for this, as long as there is time."""
    for names in (names for family in FAMILIES.values() for names in family.everywhere):
        chosen = {}
        for each in classes:
            taking = [kernel for kernel in each.kernels if kernel.name in names]
            if taking:
                chosen[each.digest] = min(taking, key=lambda kernel: names.index(kernel.name))
        if chosen and not _try_most(names[0], chosen, whole, classes, evidence):
            return


def _try_most(
    name: str, chosen: Mapping[str, Kernel], whole: Whole, classes: Sequence[SiteClass], evidence: Evidence
) -> bool:
    """Measure the whole program with these kernels, and as long as it is too wrong, without those that should save least.

    Errors of sites add up by their squares, and each site is taken to add as much as another: which of them spoils a result is
    not known before they are measured alone.

    Arguments:
        name: of the kernels, for people.
        chosen: the kernels, by the digests of their classes.

    Returns:
        Whether there was time.
    """
    strategy = evidence.strategy
    taken = sorted(
        (each for each in classes if each.digest in chosen), key=lambda each: -each.estimate / each.uses
    )
    for _ in range(strategy.everywhere_attempts):
        kernels = {each.digest: chosen[each.digest] for each in taken}
        row = whole.measured(whole.path(kernels_by_site(classes, kernels)), evidence)
        if row is None:
            return False
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
            return True
        most = uses * (strategy.error_margin * whole.tolerance / error) ** 2
        sums = itertools.accumulate(each.uses for each in taken)
        taken = [each for each, total in zip(taken, sums, strict=True) if total <= most]
        if not taken:
            return True
    return True
