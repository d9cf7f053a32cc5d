"""Memory in a search: a plain path that fits beside others, and the fastest path that fits in memory that was asked for."""

import functools
import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pcp.ir.operations import operations_of
from pcp.planning.capacity import human, lower_bound
from pcp.planning.fitting import Fit, MemoryUnreachable, fitted
from pcp.planning.paths.kinds import BLOCKS, REMADE, in_order
from pcp.planning.paths.kinds.blocks import with_blocks
from pcp.planning.paths.kinds.stored import narrow_state
from pcp.planning.paths.path import Path
from pcp.planning.search.everywhere import within
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import Found
from pcp.planning.search.question import Asking, Here
from pcp.planning.search.search import Search, ToleranceUnreachable
from pcp.planning.search.site_checks import doubt_at_its_sites
from pcp.planning.search.site_classes import kernels_by_site
from pcp.planning.search.whole import Whole

log = logging.getLogger("pcp.planning.search")


def that_fits(whole: Whole, evidence: Evidence, limit: int) -> Asking[Whole]:
    """The same, whose plain path fits in memory, beside which all others are measured.

    Where nothing is known of it, what it will be judged by is compiled beside it.

    Arguments:
        limit: bytes that a call may take.
    """
    program = whole.program
    most = lower_bound(program).peak + sum(op.bytes for op in operations_of(program))
    if most <= limit or not whole.tolerance:  # bits are those of the program as it is written
        return whole

    def fitting() -> Fit:
        if evidence.seconds_left and not evidence.known(whole.subject):
            evidence.begin(whole.plain_request(evidence))
        return fitted(program, whole.plain, whole.target, limit)

    try:
        fit = yield from Here("what fits in memory", fitting, counts=False).asked()
    except MemoryUnreachable as error:
        log.info("nothing can be measured beside the plain path: %s", error)
        return whole
    return whole if fit.path == whole.plain else replace(whole, fit=fit)


def within_memory(found: Found, search: Search, limit: int) -> Asking[Found]:
    """The fastest that fits in memory: what was found, with values computed again or the batch in parts; or a path that takes
    less as it is.

    A path that is made to fit is judged like every other, and where its batch is in parts, kernels are searched for one part.
    Where there is no time to measure it, it is taken only if no other fits.

    Raises:
        MemoryUnreachable: nothing that was tried fits.
        ToleranceUnreachable: what fits was measured to be too wrong.
    """
    whole, evidence = search.whole, search.evidence
    rival = search.known_within(limit)
    took = 0 if rival is None else whole.bytes_of(rival.path)
    if took > limit:  # the figure of the compiler in this process decides
        rival = None
    trouble: list[str] = []
    unreachable: MemoryUnreachable | None = None
    options: list[Found] = []
    for path in _candidates(found, search, options):
        fitting_it = functools.partial(fitted, whole.program, path, whole.target, limit)
        try:
            fit = yield from Here("what fits in memory", fitting_it, counts=False).asked()
        except MemoryUnreachable as error:
            unreachable = error if unreachable is None or error.least < unreachable.least else unreachable
            continue
        if fit.path == found.path and _took(found) <= limit:
            return replace(found, fit=fit)
        fitting = yield from _judged(fit, search, limit, trouble)
        if fitting is not None:
            options.append(fitting)
    options += [] if rival is None else [replace(rival, fit=Fit(rival.path, limit, took, took))]
    if options:
        best = min(options, key=lambda each: math.inf if each.measurement is None else each.measurement.ratio)
        is_measured = best.measurement is not None or best.path.is_plain
        if not is_measured:
            trouble.append(f"what fits in memory was not measured: {evidence.trouble}")
        notes = list(dict.fromkeys([*found.notes, *best.notes, *trouble]))
        complete = found.complete and best.complete and best.measurement is not None
        return replace(best, measured=evidence.measured, notes=notes, complete=complete)
    if unreachable is not None and not trouble:
        raise unreachable
    raise ToleranceUnreachable(
        f"what was tried of program {whole.program.digest[:12]} in {human(limit)} misses the tolerance of {whole.tolerance:g}: "
        f"{'; '.join(trouble)}; give more memory, or a larger tolerance"
    )


def _candidates(found: Found, search: Search, options: Sequence[Found]) -> Iterator[Path]:
    """The paths to be made to fit, one after another.

    The first is what was found, unless the search had no time. Where it does not fit, or only in parts, paths with the fastest
    kernels of all families follow until one is taken: kernels that save no time may keep less, so that fewer parts are enough.
    Where nothing fits, the plain path is the last.

    Arguments:
        options: what fits and is exact enough so far; it grows between two paths.
    """
    path = found.path.having(REMADE.name)
    is_unsearched = path.is_plain and not found.complete
    if not is_unsearched:
        yield path
    before = len(options)
    if all(each.fit is None or each.fit.parts > 1 or each.fit.remade for each in options):
        for lean in _with_narrow_moments(search):
            if len(options) > before:
                break
            yield lean
    before = len(options)
    if all(each.fit is None or each.fit.parts > 1 for each in options):
        for lean in itertools.chain(*map(_with_all_families, _in_blocks(search)), _with_all_families(search)):
            if len(options) > before or (lean == path and options):
                break
            if lean != path:
                yield lean  # the next one follows if this one is not taken
    if not options and (is_unsearched or not path.is_plain):
        yield search.whole.plain


def _with_narrow_moments(search: Search) -> Iterator[Path]:
    """Paths that keep moments in bfloat16: with kernels of all families, and without any."""
    whole, evidence = search.whole, search.evidence
    if whole.narrows and whole.tolerance and evidence.seconds_left:
        forms = in_order((*whole.forms, *map(narrow_state, whole.narrows)))
        narrow = Search(replace(whole, forms=forms), evidence, search.memory_limit)
        yield from _with_all_families(narrow)
        yield narrow.whole.path({})


def _in_blocks(search: Search) -> Iterator[Search]:
    """The search of the program that never has all its logits at once, if they are large: they may be most of what it takes."""
    whole, evidence = search.whole, search.evidence
    most = evidence.strategy.whole_logits
    if whole.tolerance and evidence.seconds_left and with_blocks(whole.prepared, most) is not whole.prepared:
        forms = in_order((*whole.forms, BLOCKS.move(most)))
        yield Search(replace(whole, forms=forms), evidence, search.memory_limit)


def _with_all_families(search: Search) -> Iterator[Path]:
    """The paths with kernels of all families, the fastest first, exact ones last, as long as there is time to measure them."""
    whole, evidence = search.whole, search.evidence
    if whole.tolerance:
        for every in within(whole, search.sites, evidence.strategy):
            if evidence.seconds_left:
                yield whole.path(kernels_by_site(search.sites, every))


def _judged(fit: Fit, search: Search, limit: int, trouble: list[str]) -> Asking[Found | None]:
    """A path that fits, measured; in parts, the fastest that is found to fit in as many. None where it is not exact enough.

    Arguments:
        trouble: what speaks against a path, which is added to.
    """
    whole, evidence = search.whole, search.evidence
    if fit.path.forms != whole.forms and not fit.path.is_plain:
        search = Search(replace(whole, forms=fit.path.forms), evidence, limit)
    row = None if fit.path == whole.plain else (yield from search.whole.measured(fit.path, evidence))
    doubt = None
    if row is not None and not whole.accepts(row, limit):
        doubt = row.failure or "it is too wrong"
    elif row is not None and fit.path.parts > 1:  # nobody has tried its kernels at the sizes of a part
        wrong = yield from doubt_at_its_sites(fit.path, search.sites, evidence)
        doubt = None if wrong is None else wrong.words
    if doubt is not None:
        trouble.append(f"path {fit.path.digest[:12]}, which fits in memory, is not used: {doubt}")
    if fit.path.parts > 1:
        fastest = yield from _fastest_in_parts(fit, search)
        if fastest is not None and (doubt is not None or row is None or fastest[1] < row.ratio):
            return fastest[0]
    return None if doubt is not None else replace(search.as_found(fit.path, row), fit=fit)


def _fastest_in_parts(fit: Fit, search: Search) -> Asking[tuple[Found, float] | None]:
    """The fastest path that a search finds to fit in as many parts as another, and its time relative to the plain program's."""
    whole, found = search.whole, (yield from search.run())
    if found.path in (whole.plain, fit.path) or found.measurement is None:
        return None
    peak = whole.bytes_of(found.path)
    if peak > fit.asked:
        return None
    its_fit = Fit(found.path, fit.asked, peak, fit.without, fit.path.parts)
    return replace(found, fit=its_fit), found.measurement.ratio


def _took(found: Found) -> int:
    """The bytes that a path took when it was measured, if it was."""
    return 0 if found.measurement is None else found.measurement.peak_bytes or 0
