"""Other forms of a program in a search: measured whole beside the plain program, searched for kernels, timed in turn with
what was found.

The float64 of the program as it is written judges all of them.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from pcp.errors import PCPError
from pcp.planning.forms.equal import equal_forms, may_be_equal
from pcp.planning.forms.stored import may_be_stored, stored_forms
from pcp.planning.forms.tried import FormMoves, Offers, Tried, all_tried
from pcp.planning.paths.kinds import EQUAL, PARTS, STORED
from pcp.planning.paths.kinds.stored import narrowed_by
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import Duels, Found, is_won
from pcp.planning.search.question import Asking
from pcp.planning.search.search import Search
from pcp.planning.search.whole import Whole

log = logging.getLogger("pcp.planning.search")

OFFERS = {
    EQUAL.name: Offers(may_be_equal, equal_forms),
    STORED.name: Offers(may_be_stored, stored_forms),
}
"""By kinds of moves that make other forms of a program, in the order in which they are tried."""


def searched(
    whole: Whole, evidence: Evidence, memory_limit: int, memory: int | None = None
) -> Asking[tuple[Found, Search]]:
    """The fastest path, of the program as it is written or of another form, and the search that found it.

    Arguments:
        memory_limit: bytes that a call may take to be measured.
        memory: bytes that the path may take that is chosen; None for as many. A form that takes more is not taken.

    Raises:
        ToleranceUnreachable: every path that was measured is less exact, the plain one included.
    """
    known = _known(whole, evidence)
    may = (
        bool(evidence.budget)
        and whole.tolerance > 0
        and any(each.may(whole, evidence) for each in OFFERS.values())
    )
    looks = bool(known) or may
    with evidence.leaving(evidence.strategy.for_forms if looks else 0.0):
        search = Search(whole, evidence, memory_limit)
        found = yield from search.run()
    if not looks:
        return found, search
    limit = memory_limit if memory is None else min(memory, memory_limit)
    try:
        return (yield from _with_forms(found, search, known, limit))
    except KeyboardInterrupt:
        evidence.interrupt()
        notes = [*found.notes, "it was interrupted while other forms of the program were measured"]
        return replace(found, notes=notes, complete=False, measured=evidence.measured), search


def _with_forms(
    found: Found, search: Search, known: Sequence[FormMoves], limit: int
) -> Asking[tuple[Found, Search]]:
    whole, evidence = search.whole, search.evidence
    attempts = yield from looked_at(whole, evidence, limit, found.path, known)
    found = replace(found, measured=evidence.measured)
    if (
        not attempts and not found.complete and evidence.seconds_left
    ):  # it goes on with what was left for forms
        search = Search(whole, evidence, search.memory_limit)
        found = yield from search.run()
    if not attempts:
        return found, search
    best = min(attempts, key=lambda each: each.rank)
    why = best.refused
    if not why:
        other = Search(best.whole, evidence, limit)
        with evidence.leaving(evidence.strategy.for_last):
            mine = yield from other.run()
        why = "it does not hold"
        if mine.path != whole.plain:
            why = yield from _lost(found, mine, Duels(whole, evidence), limit)
    if why:
        many = f"the best of {len(attempts)} other forms" if len(attempts) > 1 else "another form"
        notes = [*found.notes, f"{many} of the program is not taken: {why}"]
        return replace(found, notes=notes, measured=evidence.measured), search
    notes = list(dict.fromkeys([*found.notes, *mine.notes]))
    return replace(mine, notes=notes, complete=found.complete and mine.complete), other


def looked_at(
    whole: Whole, evidence: Evidence, limit: int, path: Path, known: Sequence[FormMoves] = ()
) -> Asking[list[Tried]]:
    """The forms that there are, measured as far as there is time, each kind in the order in which they should be fast.

    Arguments:
        limit: bytes that a call may take.
        path: the fastest of the program as it is written that is known.
        known: forms that were measured before; they come first.
    """
    attempts = yield from all_tried(whole, (form for form in known), evidence, limit)
    for offers in OFFERS.values():
        is_of_use = evidence.seconds_left and whole.subject not in evidence.unmeasurable
        if is_of_use and offers.may(whole, evidence):
            offered = offers.forms(path, whole, evidence)
            attempts = yield from all_tried(whole, offered, evidence, limit, attempts)
    return list(attempts.values())


def _known(whole: Whole, evidence: Evidence) -> list[FormMoves]:
    """Forms whose paths were measured before: they are followed without what found them, too."""
    rows = evidence.known(whole.subject)
    forms = dict.fromkeys(path.forms for path in map(evidence.path, rows) if path is not None)
    return [
        form
        for form in forms
        if form != whole.forms
        and form
        and all(move.kind != PARTS.name for move in form)
        and _fits(whole, form)
    ]


def _fits(whole: Whole, form: FormMoves) -> bool:
    if not set(narrowed_by(form)) <= set(whole.narrows):
        return False
    try:
        replace(whole, forms=form).prepared  # noqa: B018
    except PCPError as error:
        log.info("a known form of the program is not made: %s", error)
        return False
    return True


def _lost(found: Found, mine: Found, duels: Duels, limit: int) -> Asking[str]:
    """Why another form does not take the place of what was found without; empty if it does."""
    peak = 0 if found.measurement is None else found.measurement.peak_bytes or 0
    if found.path == duels.whole.plain or peak > limit:
        return ""  # it was timed in turn with the plain path
    duel = yield from duels.fought(mine.path, found.path)
    if duel is None:
        return f"it was not timed in turn with the path without it: {duels.evidence.trouble}"
    if not is_won(duel, duels.evidence.strategy):
        return f"in turn with the path without it, it takes {duel.ratio:.2f} of the time, which is not surely less"
    return ""
