"""Sites at which kernels can stand together."""

from collections.abc import Iterable

from pcp.kernels.sites import Site


def cover(sites: Iterable[Site]) -> list[Site]:
    """Of sites for which kernels are chosen, those at which they can stand together.

    A kernel takes the operations of its site, and what is inside of them: sites of several operations come first, then
    composites, then what is inside of composites. A kernel that takes what another one does not compute any more would have it
    computed again, so they do not stand together.
    """
    taken: set[str] = set()
    opened: set[str] = set()
    hidden: set[str] = set()
    read: set[str] = set()
    together = []
    for site in sorted(sites, key=lambda each: (-len(each.takes), len(each.inside), each.key)):
        if (
            taken.isdisjoint(site.takes)
            and taken.isdisjoint(site.inside)
            and opened.isdisjoint(site.takes)
            and hidden.isdisjoint(site.reads)
            and read.isdisjoint(site.hides)
        ):
            together.append(site)
            taken |= site.takes
            opened.update(site.inside)
            hidden |= site.hides
            read |= site.reads
    return together
