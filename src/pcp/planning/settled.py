"""What searches came to, kept beside their measurements: the same request in another process is answered by that.

Going through a search again costs no measurement, but time: other forms of the program are made, sites are looked for in each.
An outcome stands as long as nothing more is known of the program's paths than when it was entered, and the same code, kernels
and machine would search. One that was cut short by its budget, but found something, stands for requests with no larger
budget; a larger one goes on where it stopped. One that was interrupted, or could not measure, is none.
"""

import functools
import hashlib
import json
import logging
from dataclasses import replace
from typing import Any

from pcp.errors import PCPError
from pcp.ir.program_file import code_digest
from pcp.kernels.features import features_of
from pcp.kernels.registry import FAMILIES
from pcp.planning.conditions import Conditions, evidence_of
from pcp.planning.paths.kept import version_of
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import Found
from pcp.planning.search.loop import answered
from pcp.planning.search.question import Asking, Here
from pcp.planning.search.tuning import MeasuredClass, tune
from pcp.planning.search.whole import Whole

log = logging.getLogger("pcp.planning.search")

_FINDS_FORMS = ("egglog", "triton", "jax")
"""Packages by whose presence and version a search asks something else."""


def settled(whole: Whole, conditions: Conditions, evidence: Evidence) -> Asking[Found | None]:
    """What this search came to before, if that stands; classes of sites are left to whoever asks for them."""
    read = functools.partial(evidence.agreed, _asked(whole, conditions))
    entered = yield from Here("what it came to before", read, counts=False).asked()
    if entered is None:
        return None
    outcome = json.loads(entered)
    if outcome["known"] != _known(whole, evidence) or outcome["until"] <= evidence.when:
        return None
    complete = outcome["cut"] is None
    if not complete and conditions.budget > outcome["cut"]:
        return None
    path = Path.from_json(outcome["path"])
    try:
        path.kernels()
    except PCPError as error:
        log.info("what was found before cannot be had here: %s", error)
        return None
    row = evidence.known(whole.subject).get(path.digest)
    log.info(
        "path %s was found before%s", path.digest[:12], "" if complete else ", in a search that was cut short"
    )
    look = functools.partial(_classes, replace(whole, forms=path.forms), conditions)
    return Found(path, row, notes=outcome["notes"], complete=complete, look=look)


def settle(found: Found, whole: Whole, conditions: Conditions, evidence: Evidence) -> None:
    """Enter what a search came to, where that is all of an answer."""
    known, path = evidence.known(whole.subject), found.path
    is_partial = (
        evidence.is_interrupted
        or evidence.stands_until <= evidence.when
        or whole.subject in evidence.unmeasurable
        or (found.path.is_plain and not found.complete)  # that is no answer, for want of time
    )
    is_guess = (
        found.prediction is not None or found.fit is not None or found.measurement != known.get(path.digest)
    )
    if is_partial or is_guess:
        return
    outcome = {
        "path": path.to_json(),
        "notes": found.notes,
        "cut": None if found.complete else conditions.budget,
        "known": _known(whole, evidence),
        "until": evidence.stands_until,
    }
    evidence.agree(_asked(whole, conditions), json.dumps(outcome).encode())


def _asked(whole: Whole, conditions: Conditions) -> str:
    """What an outcome is called: by all that a search depends on beside its measurements, hardware and versions."""
    target, program = whole.target, whole.program
    facts = (
        (
            whole.subject,
            whole.tolerance,
            whole.ignored,
            whole.bound,
            whole.narrows,
            str(target),
            target.options,
        ),
        (conditions.memory_limit, conditions.memory, repr(conditions.strategy)),
        [(entry.name, entry.role.value, entry.alias) for entry in program.arguments],
        (
            code_digest(),
            _kernels(),
            sorted(features_of(target.platform)),
            [version_of(each) for each in _FINDS_FORMS],
        ),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _kernels() -> list[tuple[str, int]]:
    return [(each.name, each.version) for family in FAMILIES.values() for each in family.kernels.values()]


def _known(whole: Whole, evidence: Evidence) -> list[Any]:
    """What is known of a program's paths, in short: how many rows there are, and when the last was measured."""
    rows = [row for path in evidence.known(whole.subject) for row in evidence.rows(whole.subject, path)]
    return [len(rows), max((row.when for row in rows), default=0.0)]


def _classes(whole: Whole, conditions: Conditions) -> list[MeasuredClass]:
    """What is known of the classes of sites."""
    with evidence_of(replace(conditions, budget=0.0, progress=None)) as evidence:
        return answered(functools.partial(tune, whole.classes), evidence)
