"""Whether the kernels of a path hold at their sites: a path counts only if each was verified there."""

import logging
from collections.abc import Sequence

from pcp.kernels import Kernel, kernel_named, replaced
from pcp.planning.measuring.index_ranges import index_ranges
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.site_classes import SiteClass
from pcp.planning.search.tuning import kernel_label

log = logging.getLogger("pcp.planning.search")


def holds_at_its_sites(
    path: Path, classes: Sequence[SiteClass], evidence: Evidence, tolerance: float
) -> bool:
    """Whether every kernel of a path was verified at the class of sites where it stands; it is now, if nobody has and there is
    time.

    A kernel of PCP's own for which there is no time counts by the whole program, which was judged with it at these very sites.

    Arguments:
        evidence: what is known, and what measures.
        tolerance: of the program; 0 asks for the bits of the operations.
    """
    named = {choice.site: choice.kernel for choice in path.choices}
    for each in classes:
        for name in sorted({named[site.key] for site in each.sites if site.key in named}):
            kernel = kernel_named(name)
            row = _verified(each, kernel, evidence, tolerance)
            if row is None and not kernel.is_added and not evidence.seconds_left:
                log.info("%s was not verified alone for %s: %s", name, each.signature, evidence.trouble)
            elif row is None or row.failure is not None:
                why = evidence.trouble if row is None else f"{row.failure}: {row.detail}"
                log.info("path %s is not used: %s for %s: %s", path.digest[:12], name, each.signature, why)
                return False
    return True


def _verified(each: SiteClass, kernel: Kernel, evidence: Evidence, tolerance: float) -> Measurement | None:
    label = kernel_label(kernel)
    known = evidence.known(each.digest).get(label)
    if known is not None:
        return known

    def request() -> Request:
        return Request(
            each.region,
            replaced(each.region, kernel),
            f"{label} at its site",
            inputs=Recipe(sets=1, ranges=index_ranges(each.region)),
            target=evidence.target,
            tolerance=0.0 if tolerance == 0.0 else None,
            timing_seconds=0.0,
            site=kernel.nonfinite,
        )

    what = f"whether {kernel.name} holds for {each}"
    return evidence.of(
        each.digest, f"{label} at its site", request, lambda _: True, what, about=each.signature
    )
