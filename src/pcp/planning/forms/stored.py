"""Forms that keep values in fewer bits: what products read and make, matrices that are bound, and moments of an optimizer.

Of the first all is tried, then less, until a form is exact enough. Of matrices, all in the fewest bits are, then some, and the
others in more. Of moments all are, then those that were exact enough.
"""

import itertools
from collections.abc import Sequence

from pcp.kernels.storage import BF16
from pcp.ops.linear.stored import FORMATS, Format
from pcp.planning.forms.tried import FormMoves, Tried
from pcp.planning.paths.kinds import STORED
from pcp.planning.paths.kinds.stored import argument_in, narrow_state
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Asking
from pcp.planning.search.whole import Whole
from pcp.rewrite.stored import FACTORS, RESULTS, Matrix, ProductClass, matrices_in, products_in

_ROW = 1024
"""Numbers of a row by which formats are compared."""


def may_be_stored(whole: Whole, evidence: Evidence) -> bool:
    """Whether values in fewer bits may be faster on the device, and exact enough."""
    return _may_have_classes(whole, evidence) or bool(_matrices(whole, evidence)) or bool(whole.narrows)


def stored_forms(path: Path, whole: Whole, evidence: Evidence) -> Asking[None]:
    """Show forms that keep values in fewer bits, classes of them first.

    Arguments:
        path: the fastest that is known.
    """
    if _may_have_classes(whole, evidence):
        yield from _classes(path, whole, evidence)
    if matrices := _matrices(whole, evidence):
        yield from _bound(matrices, whole, evidence)
    if whole.narrows:
        yield from _moments(whole)


def _moments(whole: Whole) -> Asking[None]:
    """Show forms that keep moments in bfloat16, until those that are too wrong so are left out."""
    left = list(whole.narrows)
    while left:
        one: Tried = yield tuple(map(narrow_state, left))
        missed = {name for name, _ in one.row.judgement.missed} if one.row.judgement is not None else set()
        names = {place: whole.result_names[whole.program.arguments[place].alias or 0] for place in left}
        fewer = [place for place in left if names[place] not in missed]
        if len(fewer) == len(left):
            return
        left = fewer


def _bound(matrices: Sequence[Matrix], whole: Whole, evidence: Evidence) -> Asking[None]:
    """Show forms that keep bound matrices in the fewest bits, then some of them, and the others in more, until one is exact
    enough: errors add up by their squares, and each matrix is taken to add as much as another."""
    strategy, left, chosen = evidence.strategy, list(matrices), dict[Matrix, Format]()
    ways = _formats(whole, evidence)
    for place, way in enumerate(ways):
        fitting = {each: _first_fitting(each, ways[place:]) for each in left}
        now = {**chosen, **{each: form for each, form in fitting.items() if form is not None}}
        if not now:
            return
        one: Tried = yield tuple(argument_in(each.number, form.name) for each, form in now.items())
        error = one.row.least_tolerance or 0.0
        if not one.refused or error <= whole.tolerance:
            return
        most = int(len(left) * (strategy.error_margin * whole.tolerance / error) ** 2)
        chosen |= {each: way for each in left[:most] if fitting[each] is way}
        left = [each for each in left if each not in chosen]


def _first_fitting(matrix: Matrix, ways: Sequence[Format]) -> Format | None:
    return next((way for way in ways if all(map(way.fits, matrix.inputs))), None)


def _formats(whole: Whole, evidence: Evidence) -> list[Format]:
    """The formats that may be exact enough, those of the fewest bytes first, and of these the most exact."""
    least = evidence.strategy.error_of_bits
    able = [each for each in FORMATS.values() if whole.tolerance >= least * 2.0**-each.bits]
    return sorted(able, key=lambda each: each.row_bytes(_ROW))


def _matrices(whole: Whole, evidence: Evidence) -> list[Matrix]:
    """The matrices that are bound, and that take longer to be read than to be multiplied, where formats may be exact enough."""
    if not whole.bound or not _formats(whole, evidence):
        return []
    most = evidence.strategy.few_rows
    return [each for each in matrices_in(whole.prepared) if each.number < whole.bound and each.rows <= most]


def _may_have_classes(whole: Whole, evidence: Evidence) -> bool:
    strategy = evidence.strategy
    is_wide_enough = whole.tolerance >= strategy.error_of_bits * 2.0**-BF16.bits
    return (
        is_wide_enough and whole.target.platform in strategy.stored_on and bool(products_in(whole.prepared))
    )


def _classes(path: Path, whole: Whole, evidence: Evidence) -> Asking[None]:
    """Show forms that keep classes of values in bfloat16, until one is exact enough.

    Where what products make is too wrong as well, it stays as it is: products of fewer bits are faster themselves. Then the
    largest products stay: errors add up by their squares, and each product is taken to add as much as another.

    Arguments:
        path: the fastest that is known; there is none where its kernels keep nearly all of these values in fewer bits.
    """
    strategy, products = evidence.strategy, products_in(whole.prepared)
    left = sum(each.bytes for each in products_in(path.applied(whole.program)))
    if left <= strategy.little_stored * sum(each.bytes for each in products):
        return
    kept = [FACTORS, RESULTS]
    for _ in range(strategy.everywhere_attempts):
        one: Tried = yield _form(kept)
        error = one.row.least_tolerance or 0.0
        if not one.refused or error <= whole.tolerance:
            break
        share = (strategy.error_margin * whole.tolerance / error) ** 2
        kept = [FACTORS] if RESULTS in kept else _fewer(kept, products, share)
        if not kept:
            break


def _form(kept: Sequence[str]) -> FormMoves:
    return tuple(STORED.move(BF16.name, name) for name in sorted(kept))


def _fewer(kept: Sequence[str], products: Sequence[ProductClass], share: float) -> list[str]:
    """What the largest products read, where only a share of those may read it in fewer bits that do so now."""
    narrow = [each for each in products if kept == [FACTORS] or all(name in kept for name in each.factors)]
    most = share * sum(each.count for each in narrow)
    sums = itertools.accumulate(each.count for each in narrow)
    fewer = [each for each, total in zip(narrow, sums, strict=True) if total <= most]
    return list(dict.fromkeys(name for each in fewer for name in each.factors))
