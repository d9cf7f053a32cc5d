"""Forms that keep what products read and make in fewer bits: all of it first, then less, until a form is exact enough."""

import itertools
from collections.abc import Sequence

from pcp.kernels.storage import BF16
from pcp.planning.forms.tried import FormMoves, Tried
from pcp.planning.paths.kinds import STORED
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Asking
from pcp.planning.search.whole import Whole
from pcp.rewrite.stored import FACTORS, RESULTS, ProductClass, products_in


def may_be_stored(whole: Whole, evidence: Evidence) -> bool:
    """Whether values in fewer bits may be faster on the device, and exact enough."""
    strategy = evidence.strategy
    is_wide_enough = whole.tolerance >= strategy.error_of_bits * 2.0**-BF16.bits
    return (
        is_wide_enough and whole.target.platform in strategy.stored_on and bool(products_in(whole.prepared))
    )


def stored_forms(path: Path, whole: Whole, evidence: Evidence) -> Asking[None]:
    """Show forms that keep values in fewer bits, until one is exact enough.

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
