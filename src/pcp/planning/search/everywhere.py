"""Kernels of all families, or of one, at every site at once, and the fastest of that without one family at a time: the largest
gain is known before anything is measured alone, and what is of no use in the whole, the whole itself says.
"""

import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from pcp.kernels import Kernel
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.path import Path
from pcp.planning.search.causes import in_all_layers, mixed, part_of
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import KnownPaths, is_won
from pcp.planning.search.question import Answer, Asking
from pcp.planning.search.site_classes import SiteClass, kernels_by_site
from pcp.planning.search.strategy import Strategy
from pcp.planning.search.whole import Whole
from pcp.rewrite.row import Effect

log = logging.getLogger("pcp.planning.search")

_TOGETHER = "the fastest of every family"


def try_everywhere(whole: Whole, classes: Sequence[SiteClass], evidence: Evidence) -> Asking[bool]:
    """Measure the whole program with the kernels that families name for this, as long as there is time.

    First all families together, each with its fastest kernels; as long as these are too wrong, with more exact ones, at the
    sites that spoil results and then everywhere. Where some are exact enough everywhere, the last ones that were not are tried
    at fewer sites, with the exact ones at the others. If none are exact enough, each family is tried alone. Kernels that round
    to so few bits that the tolerance is too small for them are not tried in all families together.

    Returns:
        Whether the fastest kernels of all families together are exact enough, and faster than the plain program.
    """
    levels = list(within(whole, classes, evidence.strategy))
    is_first = True
    for place, chosen in enumerate(levels):
        exactness = min(kernel.storage.exactness for kernel in chosen.values())
        if whole.forms and exactness in evidence.too_wrong and place + 1 < len(levels):
            continue  # as the program is written, it was too wrong, and other forms round more
        path = whole.path(kernels_by_site(classes, chosen))
        row = yield from _measured(_TOGETHER, path, whole, evidence)
        if row is None:
            return False
        mended = None
        if not whole.is_exact_enough(row) and place + 1 < len(levels):
            mended = yield from _by_cause(chosen, levels[place + 1], row, whole, classes, evidence)
        if mended is not None:
            path, row = mended
        if whole.is_exact_enough(row):
            row = yield from _beyond_noise(path, row, whole, evidence)
            if is_first:
                return evidence.strategy.is_faster(row.blocks)
            if mended is None:
                yield from _try_most(_TOGETHER, levels[place - 1], whole, classes, evidence, elsewhere=chosen)
            return False
        if not whole.forms and not whole.is_broken(row):
            evidence.too_wrong.add(exactness)
        is_first = False
    for name, alone in apart(classes):
        if not (yield from _try_most(name, alone, whole, classes, evidence)):
            return False
    return False


def _by_cause(
    fast: Mapping[str, Kernel],
    exact: Mapping[str, Kernel],
    row: Measurement,
    whole: Whole,
    classes: Sequence[SiteClass],
    evidence: Evidence,
) -> Asking[tuple[Path, Measurement] | None]:
    """The whole program with more exact kernels at the sites that spoil results, and fast ones elsewhere; None where no such
    whole is exact enough, or these sites are not few.

    First the sites that the results depend on most directly, then those in all layers, then those further away, too, as long as
    that lowers the error.

    Arguments:
        fast, exact: kernels by the digests of their classes.
        row: what was measured with the fast ones everywhere.
    """
    strategy, missed, blamed = evidence.strategy, set[str](), set[str]()
    for attempt in range(strategy.by_cause):
        if row.judgement is None or whole.is_broken(row):
            return None
        missed |= {name for name, _ in row.judgement.missed} or {row.judgement.result}
        names = in_all_layers(missed, whole.result_names) if attempt else missed
        places = [place for place, name in enumerate(whole.result_names) if name in names]
        distances, before = whole.causes.distances(places), blamed
        blamed = {site for site, distance in distances.items() if distance <= max(1, attempt)}
        part = part_of(classes, fast, exact, blamed)
        if part > strategy.few_causes:
            return None
        if not part or blamed == before:
            continue
        path, known = whole.path(mixed(classes, fast, exact, blamed)), evidence.known(whole.subject)
        is_finished = whole.path(kernels_by_site(classes, exact)).digest in known and not evidence.measured
        # The next level has to be measured, too; where it was, an earlier search had no time for this, or no need.
        if path.digest not in known and (
            is_finished or evidence.seconds_left < 2 * evidence.expected(whole.subject)
        ):
            return None
        words = f"{_TOGETHER}, more exact at {len(blamed)} sites that spoil results,"
        answer = yield from _measured(words, path, whole, evidence)
        if answer is None:
            return None
        if whole.is_exact_enough(answer):
            return path, answer
        if (answer.least_tolerance or 0.0) > strategy.lowered * (row.least_tolerance or 0.0):
            return None
        row = answer
    return None


def apart(classes: Sequence[SiteClass]) -> Iterator[tuple[str, dict[str, Kernel]]]:
    """Kernels of one family after another, the most exact first, by a name for them: the family first whose sites should take
    longest."""
    cost: dict[str, float] = {}
    for each in classes:
        cost[each.family] = cost.get(each.family, 0.0) + each.estimate
    for family in sorted(cost, key=lambda name: -cost[name]):
        levels = list(_levels([each for each in classes if each.family == family]))
        for chosen in reversed(levels):
            yield next(iter(chosen.values())).name, chosen


def within(whole: Whole, classes: Sequence[SiteClass], strategy: Strategy) -> Iterator[dict[str, Kernel]]:
    """Kernels of all families together, as a strategy takes them within the tolerance of a whole program."""
    return together(classes, whole.tolerance / strategy.error_of_bits, strategy.negligible)


def together(
    classes: Sequence[SiteClass], rounding: float = math.inf, negligible: float = 0.0
) -> Iterator[dict[str, Kernel]]:
    """Kernels of all families for all classes, the fastest first, exact ones last; nothing where there is only one family.

    Arguments:
        rounding: kernels that keep so few of the bits of their operands that 2^-bits is more than this are left out.
        negligible: where less than this part of the time of all is spent, as on the angles of positions, all that round are.
    """
    least = negligible * math.fsum(each.estimate for each in classes)
    allowed = {each.digest: rounding if each.estimate >= least else 0.0 for each in classes}
    for chosen in _levels(classes, allowed):
        if len({kernel.family for kernel in chosen.values()}) > 1:
            yield chosen


def _levels(
    classes: Sequence[SiteClass], rounding: Mapping[str, float] = MappingProxyType({})
) -> Iterator[dict[str, Kernel]]:
    """For each class, by its digest, the fastest kernel that is as exact as a storage: for each storage, the least exact first.

    Fewer bits are taken to be faster; of equally exact kernels those come first that say so.

    Arguments:
        rounding: as of `together`, by the digests of classes.
    """
    taking = {
        each.digest: [
            kernel
            for kernel in each.kernels
            if kernel.place is not None
            and (
                kernel.effect is not Effect.lowers_precision
                or 2.0**-kernel.bits <= rounding.get(each.digest, math.inf)
            )
        ]
        for each in classes
    }
    before: dict[str, Kernel] = {}
    for level in sorted({kernel.storage.exactness for kernels in taking.values() for kernel in kernels}):
        chosen = {
            digest: min(exact, key=lambda kernel: (kernel.storage.exactness, kernel.place))
            for digest, kernels in taking.items()
            if (exact := [kernel for kernel in kernels if kernel.storage.exactness >= level])
        }
        if chosen != before:
            yield chosen
        before = chosen


def _try_most(
    name: str,
    chosen: Mapping[str, Kernel],
    whole: Whole,
    classes: Sequence[SiteClass],
    evidence: Evidence,
    elsewhere: Mapping[str, Kernel] = MappingProxyType({}),
) -> Asking[bool]:
    """Measure the whole program with these kernels, and as long as it is too wrong, without those that should save least: where
    others stand elsewhere, they save less than where none does.

    Errors of sites add up by their squares, and each site is taken to add as much as another: which of them spoils a result is
    not known before they are measured alone.

    Arguments:
        name: of the kernels, for people.
        chosen: the kernels, by the digests of their classes.
        elsewhere: what stands where these are left out.

    Returns:
        Whether there was time.
    """
    strategy = evidence.strategy
    taken = sorted(
        (each for each in classes if each.digest in chosen),
        key=lambda each: (each.digest in elsewhere, -each.estimate / each.uses),
    )
    for _ in range(strategy.everywhere_attempts):
        kernels = {**elsewhere, **{each.digest: chosen[each.digest] for each in taken}}
        row = yield from _measured(name, whole.path(kernels_by_site(classes, kernels)), whole, evidence)
        if row is None:
            return False
        error = row.least_tolerance or 0.0
        if whole.is_broken(row) or error <= whole.tolerance:
            return True
        most = sum(each.uses for each in taken) * (strategy.error_margin * whole.tolerance / error) ** 2
        sums = itertools.accumulate(each.uses for each in taken)
        taken = [each for each, total in zip(taken, sums, strict=True) if total <= most]
        if not taken:
            return True
    return True


def _beyond_noise(path: Path, row: Measurement, whole: Whole, evidence: Evidence) -> Asking[Measurement]:
    """What is known of a path that seems faster than the plain one: measured again, as long as noise may have made it so.

    Arguments:
        row: what is known of it so far.
    """
    strategy = evidence.strategy
    for times in range(2, 2 + len(strategy.gaps)):
        if strategy.is_faster(row.blocks) or row.ratio >= strategy.seems_faster:
            break
        again = yield from whole.measured_again(path, evidence, times)
        if again is None:
            break
        row = again
    return row


def _measured(
    name: str,
    path: Path,
    whole: Whole,
    evidence: Evidence,
) -> Asking[Answer]:
    """The whole program by a path; None if there is no time."""
    before = evidence.measured
    row = yield from whole.measured(path, evidence)
    if row is not None and evidence.measured > before:
        log.info(
            "%s at %d sites: %s, error %.2g%s",
            name,
            len(path.choices),
            row.failure or f"{row.ratio:.3f} of the plain time",
            row.least_tolerance or 0.0,
            f" of {row.judgement.result}" if row.judgement else "",
        )
    return row


def leave_families_out(known: KnownPaths, classes: Sequence[SiteClass]) -> Asking[None]:
    """Duel the fastest path that is known with the same without one family's kernels, one family after another.

    What wins, and is accepted, takes its place. It ends when the time is up. Where the kernels are those of all families
    together, kernels of others stand at sites that the one that is left out had covered: a product that is completed with its
    activation covers the activation, and both apart may be faster.

    Arguments:
        known: the paths, and their duels.
        classes: of the program's sites.
    """
    best = known.fastest(known.fast())
    if best is None or best[0].recomputation is not None:
        return
    whole, duels, evidence = known.whole, known.duels, known.evidence
    champion = best[0]
    level = _level_of(champion, whole, classes, evidence.strategy)
    for family in _families(champion, classes, evidence.strategy):
        fewer = {digest: kernel for digest, kernel in level.items() if kernel.family != family}
        left = {site: kernel for site, kernel in champion.kernels().items() if kernel.family != family}
        left = kernels_by_site(classes, fewer) or left
        path = whole.path(left)
        duel = (yield from duels.fought(path, champion)) if left else None
        if duel is None:
            continue
        log.info("without %s: %s", family, duel.failure or f"{duel.ratio:.3f} of the time")
        if not is_won(duel, evidence.strategy):
            continue
        row = yield from whole.measured(path, evidence)
        if row is not None and whole.accepts(row, known.memory_limit):
            champion, level = path, fewer


def _level_of(
    path: Path, whole: Whole, classes: Sequence[SiteClass], strategy: Strategy
) -> Mapping[str, Kernel]:
    """The kernels of all families together, by the digests of classes, that make a path; none where it is made of others."""
    levels = within(whole, classes, strategy)
    return next((each for each in levels if whole.path(kernels_by_site(classes, each)) == path), {})


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
