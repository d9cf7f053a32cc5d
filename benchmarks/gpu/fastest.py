"""A plan with the fastest kernels of all families at all their sites, whatever their error: what a search tries first."""

import pcp
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.everywhere import together
from pcp.planning.search.site_classes import kernels_by_site, site_classes


def fastest(program: pcp.Program, device: str, *, rounds: bool = True) -> pcp.Plan:
    """Plan it; the plain path where no family has a kernel for it.

    Arguments:
        rounds: whether kernels that round to fewer bits are among them.
    """
    ready = prepared(program)
    classes = site_classes(ready, device.partition(":")[0])
    chosen = kernels_by_site(classes, next(together(classes, rounds=rounds), {}))
    return pcp.plan(ready, device=device, path=Path.of(ready, chosen), cache=False)
