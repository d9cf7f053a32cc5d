"""A path followed by the program that computes its batch in parts: the same kernels, as far as they apply to one part."""

import logging
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property

from pcp.ir import Program
from pcp.kernels import Place, Site, cover, sites_of
from pcp.planning.paths.kinds import PARTS
from pcp.planning.paths.kinds.parts import NotInParts
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared

log = logging.getLogger("pcp.planning")


class InParts:
    """The paths that compute the batch in parts, each with the kernels of a path that computes it at once.

    Arguments:
        path: of the prepared program.
        program: that it is of.
        target: that it is run on.
    """

    def __init__(self, path: Path, program: Program, target: Place) -> None:
        self._path, self._program, self._target = path, program, target

    @cached_property
    def _sites(self) -> Sequence[Site]:
        return sites_of(prepared(self._program, forms=self._path.forms), self._target)

    def __call__(self, parts: int) -> Path | None:
        """The path in so many parts; None where the program does not compute its batch in them."""
        path, program = self._path, self._program
        forms = (*path.forms, PARTS.move(parts))
        try:
            divided = prepared(program, forms=forms)
        except NotInParts as error:
            log.info("%s", error)
            return None
        kernels = path.kernels()
        matches = {
            other.key: (other, kernels[site.key])
            for site, other in _pairs(self._sites, sites_of(divided, self._target))
            if site.key in kernels and kernels[site.key].name in other.kernels
        }
        apart = cover(site for site, _ in matches.values())
        log.info("in %d parts %d of %d kernels apply", parts, len(apart), len(kernels))
        chosen = {site.key: matches[site.key][1] for site in apart}
        return Path.of(program, chosen, dict(path.options), None, path.backend, forms)


def _pairs(before: Sequence[Site], after: Sequence[Site]) -> Iterator[tuple[Site, Site]]:
    """The sites of a program with those that stand for them in one part: of a family, in their order.

    In parts there are further ones, as the sums over all parts.
    """
    families = dict.fromkeys((site.family, len(site.inside)) for site in before)
    for family in families:
        left, right = (
            [site for site in sites if (site.family, len(site.inside)) == family] for sites in (before, after)
        )
        matcher = SequenceMatcher(None, list(map(_kind, left)), list(map(_kind, right)), autojunk=False)
        for i, j, size in matcher.get_matching_blocks():
            yield from zip(left[i : i + size], right[j : j + size], strict=True)


def _kind(site: Site) -> tuple[object, ...]:
    """What it takes and returns, without sizes."""
    region = site.region
    specs = [entry.spec for entry in region.arguments] + [entry.spec for entry in region.results]
    return tuple((spec.dtype, len(spec.shape)) for spec in specs)
