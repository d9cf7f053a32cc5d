"""Classes of sites: those that do the same thing to the same shapes, so that what is measured of one holds for all."""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pcp.ir import Program
from pcp.ir.digest import operation_digests
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import block_operations, values_from_outside
from pcp.kernels import Kernel, Place, Site, cover, kernel_named, replaced, sites_of
from pcp.kernels.groups import groups_in
from pcp.kernels.products.kept import with_kept_panels
from pcp.planning.prediction.cost_model import estimated_seconds
from pcp.rewrite.binding import bind_stage, decided_values
from pcp.rewrite.row import Effect


@dataclass(frozen=True, slots=True, eq=False)
class SiteClass:
    """Sites with equal regions.

    Arguments:
        digest: of the region.
        region: the operation alone.
        sites: where it stands in the program.
        kernels: what may stand there instead.
        uses: how often it runs in one call of the program.
        estimate: seconds that the cost model gives to all uses.
        bound: the operands that bound arguments alone decide, by their places in the region, where some kernel computes
            something of them once.
    """

    digest: str
    region: Program
    sites: tuple[Site, ...]
    kernels: tuple[Kernel, ...]
    uses: int
    estimate: float
    bound: tuple[int, ...] = ()

    @property
    def family(self) -> str:
        """What it computes."""
        return self.sites[0].family

    @property
    def signature(self) -> str:
        """The family, the shapes that it takes, and the shapes that come out, in one line."""
        takes = ", ".join(str(entry.spec) for entry in self.region.arguments)
        return f"{self.family} ({takes}) -> {', '.join(str(entry.spec) for entry in self.region.results)}"

    def __str__(self) -> str:
        return f"{self.uses} x {self.signature}"


def allowed(kernel: Kernel, tolerance: float | None) -> bool:
    """Whether a kernel may be used at all: whoever wants the plain path's bits gets no other arithmetic."""
    return tolerance != 0.0 or kernel.effect is Effect.exact


def site_classes(
    program: Program, target: Place, tolerance: float | None = None, *, bare: bool = False
) -> list[SiteClass]:
    """The classes of a program's sites, the costliest first.

    Arguments:
        program: a prepared program.
        target: as of `sites_of`.
        tolerance: 0 leaves only kernels that change no bit.
        bare: whether operations of a family count, too, for which none of its kernels applies.
    """
    return classes_of(sites_of(program, target, bare=bare), tolerance)


def classes_of(
    sites: Iterable[Site],
    tolerance: float | None = None,
    decided: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
) -> list[SiteClass]:
    """The classes of sites, the costliest first; `tolerance` as for `site_classes`.

    Arguments:
        decided: operands that bound arguments alone decide, by the keys of sites.
    """
    grouped: dict[tuple[str, tuple[int, ...]], list[Site]] = {}
    for site in sites:
        grouped.setdefault((site.region.digest, decided.get(site.key, ())), []).append(site)
    classes = []
    for (region, bound), alike in grouped.items():
        digest = hashlib.sha256(f"{region} {bound} bound".encode()).hexdigest() if bound else region
        names = [name for name in alike[0].kernels if all(name in site.kernels for site in alike)]
        kernels = tuple(kernel for kernel in map(kernel_named, names) if allowed(kernel, tolerance))
        uses = sum(site.trips for site in alike)
        estimate = uses * estimated_seconds(alike[0].region)
        classes.append(SiteClass(digest, alike[0].region, tuple(alike), kernels, uses, estimate, bound))
    return sorted(classes, key=lambda each: (-each.estimate, each.digest))


def decided_operands(program: Program, sites: Iterable[Site], count: int) -> dict[str, tuple[int, ...]]:
    """For each site, by its key, the operands that bound arguments alone decide.

    Sites inside of composites are left out, and sites whose kernels compute nothing once.

    Arguments:
        program: that has the sites.
        count: how many of its arguments are bound, flat and from the first.
    """
    if not count:
        return {}
    module = program.module()
    inline_calls(module)
    keys, block = operation_digests(module), entry_block(module)
    decided = decided_values(block, range(count))
    operands = {
        keys[op]: tuple(dict.fromkeys((*op.operands, *values_from_outside(op))))
        for op in block_operations(block)
    } | {group.key(keys): group.inputs for group in groups_in(block)}
    by_site: dict[str, tuple[int, ...]] = {}
    known: dict[tuple[str, tuple[int, ...]], bool] = {}
    for site in sites:
        places = tuple(i for i, value in enumerate(operands.get(site.key, ())) if value in decided)
        if not places or len(places) == len(site.region.arguments):
            continue
        alike = site.region.digest, places
        if alike not in known:
            known[alike] = any(_computes_once(site.region, name, places) for name in site.kernels)
        if known[alike]:
            by_site[site.key] = places
    return by_site


def _computes_once(region: Program, kernel: str, bound: tuple[int, ...]) -> bool:
    program = with_kept_panels(replaced(region, kernel_named(kernel)), bound)
    return bind_stage(program, bound) is not None


def kernels_by_site(classes: Sequence[SiteClass], chosen: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """Choices for sites, by their keys, from choices for classes, by their digests; of sites that overlap one has a kernel."""
    by_key = {site.key: each.digest for each in classes if each.digest in chosen for site in each.sites}
    sites = [site for each in classes if each.digest in chosen for site in each.sites]
    return {site.key: chosen[by_key[site.key]] for site in cover(sites)}


def share(each: SiteClass, classes: Sequence[SiteClass]) -> float:
    """The part of the estimated time of all classes that one takes."""
    total = math.fsum(other.estimate for other in classes)
    return each.estimate / total if total > 0 else 1.0
