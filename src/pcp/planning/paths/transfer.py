"""The path of a program at some sizes, followed at others: the same kernel for the site that stands in the same place."""

import logging

from pcp.ir import Program
from pcp.kernels import Place, sites_of
from pcp.planning.paths.kinds import BOUND, KERNEL, Stage, at_stages, by_kind
from pcp.planning.paths.kinds.parts import NotInParts
from pcp.planning.paths.move import Move
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.stored import NotStored

log = logging.getLogger("pcp.planning")


def transferred(path: Path, source: Program, program: Program, target: Place) -> Path | None:
    """The path of one program for another that has the same operations at other sizes.

    A site is known by a digest in which sizes are, so it is its place among the sites by which it is found again.

    Arguments:
        path: of `source`.
        target: that it is run on.

    Returns:
        None where the programs have other sites, or a move of the path holds for its sizes alone.
    """
    moves: list[Move] = []
    for kind, some in by_kind(path.moves):
        if kind is not KERNEL:
            moved = None if kind.moved is None else kind.moved(some, program)
            if moved is None:
                return None
            moves += moved
    if path.is_plain:
        return Path.plain(program, dict(path.options), path.backend)
    tolerance, forms = None if path.prepared else 0.0, at_stages(moves, Stage.written, Stage.prepared)
    before = sites_of(prepared(source, tolerance, path.forms), target)
    try:
        after = sites_of(prepared(program, tolerance, forms), target)
    except (NotInParts, NotStored) as error:
        log.info("the path is none at these sizes: %s", error)
        return None
    if [(site.family, len(site.inside)) for site in before] != [
        (site.family, len(site.inside)) for site in after
    ]:
        return None
    places = {site.key: place for place, site in enumerate(before)}
    kernels = {}
    for key, kernel in path.kernels().items():
        site = after[places[key]]
        if kernel.name in site.kernels:
            kernels[site.key] = kernel
        else:
            log.info(
                "kernel %s does not apply to %s at these sizes; the operation itself does",
                kernel.name,
                site.family,
            )
    counterpart = Path.of(program, kernels, dict(path.options), tolerance, path.backend, forms)
    return counterpart.having(BOUND.name, (move for move in moves if move.kind == BOUND.name))
