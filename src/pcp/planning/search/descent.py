"""Leaving families out of the fastest whole: which of its kernels are of no use there, the whole itself says.

What a kernel takes alone is not what it takes beside others, and where a call of the program is long there is no time for
measuring each kernel alone.
"""

import logging
import math
from collections.abc import Sequence

from pcp.planning.paths.path import Path
from pcp.planning.search.duels import is_won
from pcp.planning.search.known_paths import KnownPaths
from pcp.planning.search.question import Asking
from pcp.planning.search.site_classes import SiteClass
from pcp.planning.search.strategy import Strategy
from pcp.rewrite.row import Effect

log = logging.getLogger("pcp.planning.search")


def leave_families_out(known: KnownPaths, classes: Sequence[SiteClass]) -> Asking[None]:
    """Duel the fastest path that is known with the same without one family's kernels, one family after another.

    What wins, and is accepted, takes its place. It ends when the time is up.

    Arguments:
        known: the paths, and their duels.
        classes: of the program's sites.
    """
    best = known.fastest(known.fast())
    if best is None or best[0].recomputation is not None:
        return
    whole, duels, evidence = known.whole, known.duels, known.evidence
    champion = best[0]
    for family in _families(champion, classes, evidence.strategy):
        left = {site: kernel for site, kernel in champion.kernels().items() if kernel.family != family}
        path = whole.path(left)
        duel = (yield from duels.fought(path, champion)) if left else None
        if duel is None:
            continue
        log.info("without %s: %s", family, duel.failure or f"{duel.ratio:.3f} of the time")
        if not is_won(duel, evidence.strategy):
            continue
        row = yield from whole.measured(path, evidence)
        if row is not None and whole.accepts(row, known.memory_limit):
            champion = path


def _families(path: Path, classes: Sequence[SiteClass], strategy: Strategy) -> list[str]:
    """The families of a path that may take a part of the time that is worth a duel.

    Those come first whose kernels compute the operation's own arithmetic: kernels that round to fewer bits seldom lose. The
    costliest come first among equals.
    """
    rounds = {kernel.family: kernel.effect is Effect.lowers_precision for kernel in path.kernels().values()}
    cost = dict.fromkeys(rounds, 0.0)
    for each in classes:
        if each.family in cost:
            cost[each.family] += each.estimate
    least = strategy.worthwhile * math.fsum(each.estimate for each in classes)
    return sorted(
        (family for family in rounds if cost[family] >= least),
        key=lambda family: (rounds[family], -cost[family]),
    )
