"""Forms of a program, measured whole beside it as it is written, without kernels but those that read what they store."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from pcp.ir.composites.records import QUANTISED_PRODUCT
from pcp.kernels import Kernel, kernel_named, sites_of
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.kinds import STORED, words_of
from pcp.planning.paths.move import Move
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Asking, shown
from pcp.planning.search.whole import Whole
from pcp.rewrite.row import Effect

log = logging.getLogger("pcp.planning.search")

FormMoves = tuple[Move, ...]
"""The moves that make another form of a program before its sites are looked for."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A form of a program, as it was measured.

    Arguments:
        whole: the program, whose paths compute it in this form.
        row: times beside the plain program's, error, memory, or the reason of a failure.
        refused: why it may not be taken; empty if it may.
    """

    whole: Whole
    row: Measurement
    refused: str

    @property
    def rank(self) -> tuple[bool, float]:
        """Smaller for the better of two."""
        return bool(self.refused), self.row.ratio


def tried(whole: Whole, form: FormMoves, evidence: Evidence, limit: int) -> Asking[Tried | None]:
    """A form, measured; None if there is no time.

    Arguments:
        limit: bytes that a call may take.
    """
    other = replace(whole, forms=form)
    row = yield from other.measured(other.path(reading(other)), evidence)
    if row is None:
        return None
    refused = _refusal(other, row, evidence, limit)
    log.info("%s: %s", "; ".join(words_of(form)), refused or f"{row.ratio:.3f} of the plain time")
    return Tried(other, row, refused)


def reading(whole: Whole) -> dict[str, Kernel]:
    """The kernels that read what a form stores, by the keys of their sites: without, each call writes it out in float32."""
    if all(move.kind != STORED.name for move in whole.forms):
        return {}
    able = {
        site.key: [kernel_named(name) for name in site.kernels]
        for site in sites_of(whole.prepared, whole.target)
        if site.family == QUANTISED_PRODUCT.name.removeprefix("pcp.")
    }
    sound = {
        key: [each for each in kernels if each.effect is not Effect.lowers_precision]
        for key, kernels in able.items()
    }
    return {key: kernels[0] for key, kernels in sound.items() if kernels}


@dataclass(frozen=True, slots=True)
class Offers:
    """Forms that moves of one kind make.

    Arguments:
        may: whether there may be any.
        forms: shows them, those first that should be fast, given the fastest path that is known of the program as it is
            written. It is told what came of each before it shows the next.
    """

    may: Callable[[Whole, Evidence], bool]
    forms: Callable[[Path, Whole, Evidence], Asking[None]]


def all_tried(
    whole: Whole,
    offered: Asking[None],
    evidence: Evidence,
    limit: int,
    before: Mapping[FormMoves, Tried] = MappingProxyType({}),
) -> Asking[dict[FormMoves, Tried]]:
    """Forms that are offered, measured as far as there is time.

    Arguments:
        before: those that were tried before, which come first.
    """
    attempts = dict(before)
    form = yield from shown(offered)
    while form is not None:
        if form not in attempts:
            evidence.planned += 1
            one = yield from tried(whole, form, evidence, limit)
            if one is None:
                break
            attempts[form] = one
        form = yield from shown(offered, attempts[form])
    return attempts


def _refusal(whole: Whole, row: Measurement, evidence: Evidence, limit: int) -> str:
    if row.failure is not None:
        return f"{row.failure}: {row.detail}"
    if (row.peak_bytes or 0) > limit:
        return f"it takes {row.peak_bytes} bytes; {limit} are allowed"
    if not whole.accepts(row, limit):
        return "it was not timed"
    if not evidence.strategy.is_faster(row.blocks):
        wanted = 1 - evidence.strategy.margin
        return f"it takes {row.ratio:.2f} of the plain path's time, which is not surely less than {wanted:g}"
    return ""
