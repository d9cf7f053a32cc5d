"""A plan with the fastest kernels of all families at all their sites, whatever their error: what a search tries first."""

import math

import pcp
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.everywhere import together
from pcp.planning.search.site_classes import kernels_by_site, site_classes


def fastest(program: pcp.Program, device: str, rounding: float = math.inf) -> pcp.Plan:
    """Plan it; the plain path where no family has a kernel for it.

    Arguments:
        rounding: kernels that keep so few of the bits of their operands that 2^-bits is more than this are left out.
    """
    ready = prepared(program)
    classes = site_classes(ready, device.partition(":")[0])
    chosen = kernels_by_site(classes, next(together(classes, rounding), {}))
    return pcp.plan(ready, device=device, path=Path.of(ready, chosen), cache=False)
