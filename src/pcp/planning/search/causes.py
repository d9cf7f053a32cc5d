"""By which sites a result may be too wrong: those that it depends on most directly; and kernels that are more exact there."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.ir.digest import operation_digests
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import block_operations, returned_by, values_from_outside
from pcp.kernels import Kernel, Site, cover
from pcp.planning.search.site_classes import SiteClass

_NUMBER = re.compile(r"\d+")


class Causes:
    """How far sites are from results: how many others lie between, on the way where these are fewest.

    Arguments:
        program: that has the sites.
    """

    def __init__(self, program: Program, sites: Iterable[Site]) -> None:
        module = program.module()
        inline_calls(module)
        keys, block = operation_digests(module), entry_block(module)
        operations = block_operations(block)
        number: dict[ir.Operation | None, int] = {op: place for place, op in enumerate(operations)}
        # A site inside of a composite is where the composite is.
        self._of_key: dict[str, set[str]] = {}
        for site in sites:
            for key in site.inside[:1] or site.takes or (site.key,):
                self._of_key.setdefault(key, set()).add(site.key)
        self._at = [self._of_key.get(keys[op], set()) for op in operations]
        self._reads = [
            [
                number[maker]
                for value in (*op.operands, *values_from_outside(op))
                if (maker := defining_op(value)) in number
            ]
            for op in operations
        ]
        self._returned = [number.get(defining_op(value)) for value in returned_by(block)]

    def distances(self, places: Iterable[int]) -> dict[str, int]:
        """Of each site, by its key, that these results depend on, how many other sites lie between it and the nearest of them.

        Arguments:
            places: of the results.
        """
        far = len(self._at)
        between = [far] * len(self._at)
        for place in places:
            if (maker := self._returned[place]) is not None:
                between[maker] = 0
        nearest: dict[str, int] = {}
        for op in reversed(range(len(self._at))):  # what reads a value stands behind it
            if between[op] == far:
                continue
            here = self._at[op]
            for site in here:
                nearest[site] = min(nearest.get(site, far), between[op])
            for maker in self._reads[op]:
                crossed = bool(here) and here.isdisjoint(self._at[maker])
                between[maker] = min(between[maker], between[op] + crossed)
        return nearest


def mixed(
    classes: Sequence[SiteClass],
    fast: Mapping[str, Kernel],
    exact: Mapping[str, Kernel],
    blamed: Collection[str],
) -> dict[str, Kernel]:
    """Kernels by the keys of sites: the exact ones, or none, at sites that are blamed, and the fast ones elsewhere.

    Arguments:
        fast, exact: kernels by the digests of classes.
        blamed: keys of sites.
    """
    kernels = {
        site.key: chosen[each.digest]
        for each in classes
        for site in each.sites
        if each.digest in (chosen := exact if site.key in blamed else fast)
    }
    sites = [site for each in classes for site in each.sites if site.key in kernels]
    return {site.key: kernels[site.key] for site in cover(sites)}


def in_all_layers(names: Collection[str], every: Iterable[str]) -> set[str]:
    """Names, and those that differ from one of them by numbers alone, as results of one layer do from another's."""
    patterns = {_NUMBER.sub("0", name) for name in names}
    return {name for name in every if _NUMBER.sub("0", name) in patterns}


def part_of(
    classes: Sequence[SiteClass],
    fast: Mapping[str, Kernel],
    exact: Mapping[str, Kernel],
    blamed: Collection[str],
) -> float:
    """The part of the estimated time of all sites whose kernels differ that those take that are blamed."""
    total = own = 0.0
    for each in classes:
        if fast.get(each.digest) is not exact.get(each.digest):
            total += each.estimate
            own += each.estimate * sum(site.key in blamed for site in each.sites) / len(each.sites)
    return own / total if total else 1.0
