"""Equal programs in a search: measured whole beside the plain program, searched for kernels, timed in turn with what was found.

The float64 of the program as it is written judges all of them.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pcp.planning.equality.forms import Forms, forms_of, has_others, is_here
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.kinds import EQUAL
from pcp.planning.search.duels import Duels, is_won
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import Found
from pcp.planning.search.question import Asking
from pcp.planning.search.search import Search
from pcp.planning.search.whole import Whole
from pcp.rewrite.equality import Form, FormMismatch, equal_program

log = logging.getLogger("pcp.planning.search")


@dataclass(frozen=True, slots=True)
class Tried:
    """An equal program, as it was measured.

    Arguments:
        whole: the program, whose paths compute it.
        form: which.
        row: times beside the plain program's, error, memory, or the reason of a failure.
        refused: why it may not be taken; empty if it may.
    """

    whole: Whole
    form: Form
    row: Measurement
    refused: str


def searched(
    whole: Whole, evidence: Evidence, memory_limit: int, memory: int | None = None
) -> Asking[tuple[Found, Search]]:
    """The fastest path, of the program as it is written or of an equal one, and the search that found it.

    Arguments:
        memory_limit: bytes that a call may take to be measured.
        memory: bytes that the path may take that is chosen; None for as many. An equal program that takes more is not taken.

    Raises:
        ToleranceUnreachable: every path that was measured is less exact, the plain one included.
    """
    known = _known(whole, evidence)
    has_time = bool(evidence.budget)
    looks = bool(known) or (has_time and whole.tolerance > 0 and is_here() and has_others(whole.program))
    with evidence.leaving(evidence.strategy.for_equal if looks else 0.0):
        search = Search(whole, evidence, memory_limit)
        found = yield from search.run()
    if not looks:
        return found, search
    limit = memory_limit if memory is None else min(memory, memory_limit)
    try:
        return (yield from _with_equal(found, search, known, limit))
    except KeyboardInterrupt:
        evidence.interrupt()
        notes = [*found.notes, "it was interrupted while equal programs were measured"]
        return replace(found, notes=notes, complete=False, measured=evidence.measured), search


def _with_equal(
    found: Found, search: Search, known: Sequence[Form], limit: int
) -> Asking[tuple[Found, Search]]:
    whole, evidence = search.whole, search.evidence
    forms = dict.fromkeys(known)
    if evidence.seconds_left and is_here():
        until = (1 - evidence.strategy.for_costs) * evidence.seconds_left
        others = yield from forms_of(whole.program, evidence, until)
        forms |= dict.fromkeys(others.forms)
    made = yield from tried(whole, evidence, list(forms), limit)
    found = replace(found, measured=evidence.measured)
    if not made:
        return found, search
    best = min(made, key=lambda each: (bool(each.refused), each.row.ratio))
    if best.refused:
        return _noted(found, made, f"is not taken: {best.refused}"), search
    other = Search(best.whole, evidence, limit)
    mine = yield from other.run()
    if mine.path.is_plain:
        return _noted(
            replace(found, measured=evidence.measured), made, "is not taken: it does not hold"
        ), search
    why = yield from _lost(found, mine, Duels(whole, evidence), limit)
    if why:
        return _noted(replace(found, measured=evidence.measured), made, f"is not taken: {why}"), search
    notes = list(dict.fromkeys([*found.notes, *mine.notes]))
    return replace(mine, notes=notes, complete=found.complete and mine.complete), other


def tried(whole: Whole, evidence: Evidence, forms: Sequence[Form], limit: int) -> Asking[list[Tried]]:
    """Forms of a program, measured whole without kernels, as far as there is time.

    Arguments:
        limit: bytes that a call may take.
    """
    made = []
    evidence.planned += len(forms)
    for form in forms:
        other = replace(whole, forms=(EQUAL.move(form),))
        row = yield from other.measured(other.path({}), evidence)
        if row is None:
            break
        refused = _refusal(other, row, evidence, limit)
        log.info("equal program %s: %s", form.makes[:12], refused or f"{row.ratio:.3f} of the plain time")
        made.append(Tried(other, form, row, refused))
    return made


def looked_at(
    whole: Whole, evidence: Evidence, limit: int, most: int = 4
) -> Asking[tuple[Forms, list[Tried]]]:
    """What there is, and how it was measured, in the order in which it should be fast.

    Raises:
        EqualityUnavailable: egglog is not installed.
    """
    until = (1 - evidence.strategy.for_costs) * evidence.seconds_left
    forms = yield from forms_of(whole.program, evidence, until, most=most)
    return forms, (yield from tried(whole, evidence, forms.forms, limit))


def _known(whole: Whole, evidence: Evidence) -> list[Form]:
    """Forms whose paths were measured before: they are followed without egglog, too."""
    rows = evidence.known(whole.subject)
    found = dict.fromkeys(
        path.equal for path in map(evidence.path, rows) if path is not None and path.equal is not None
    )
    return [form for form in found if _fits(whole, form)]


def _fits(whole: Whole, form: Form) -> bool:
    try:
        equal_program(whole.program, form)
    except FormMismatch as error:
        log.info("a known equal program is not made: %s", error)
        return False
    return True


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


def _lost(found: Found, mine: Found, duels: Duels, limit: int) -> Asking[str]:
    """Why an equal program does not take the place of what was found without; empty if it does."""
    peak = 0 if found.measurement is None else found.measurement.peak_bytes or 0
    if found.path.is_plain or peak > limit:
        return ""  # it was timed in turn with the plain path
    duel = yield from duels.fought(mine.path, found.path)
    if duel is None:
        return f"it was not timed in turn with the path without it: {duels.evidence.trouble}"
    if not is_won(duel, duels.evidence.strategy):
        return f"in turn with the path without it, it takes {duel.ratio:.2f} of the time, which is not surely less"
    return ""


def _noted(found: Found, made: Sequence[Tried], why: str) -> Found:
    many = f"the best of {len(made)} equal programs" if len(made) > 1 else "an equal program"
    return replace(found, notes=[*found.notes, f"{many} {why}"])
