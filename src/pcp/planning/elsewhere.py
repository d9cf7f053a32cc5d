"""Whether another backend runs a whole program faster than the path that was found, within the same tolerance.

The program, as it is written, is measured there in turn with the plain path, and judged by the same float64. What is faster is
timed once more, in turn with the path that was found.
"""

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from pcp.backends import Device, Target, UnknownBackend, backend_names, devices
from pcp.backends.registry import DEFAULT
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.planning.capacity import memory_limit
from pcp.planning.chosen import Conditions, evidence_of, example_of, ignored_by, searched
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import Found
from pcp.planning.search.whole import Whole

log = logging.getLogger("pcp.planning.search")

ANY = "any"
"""The name for the default device, and what every other backend that is installed has first."""

FOR_OTHERS = 0.3
"""The part of the budget that the search leaves for measuring elsewhere."""

Place = str | Device | Target


class NoPlaces(PCPError):
    """An empty list of places to plan for."""


def places_of(given: Place | Sequence[Place] | None) -> tuple[Place | None, list[Target]]:
    """Where a program is searched for, and where else it is measured.

    Raises:
        NoPlaces: a list of devices is empty.
        UnknownBackend, UnknownDevice: as `Target.of`.
    """
    if given == ANY:
        return None, [Target.of(f"{name}:{found}") for name in backend_names() for found in _first(name)]
    if given is None or isinstance(given, str | Device | Target):
        return given, []
    if not given:
        raise NoPlaces("the list of devices is empty; give one or more, as ['cpu:0', 'iree:llvm-cpu']")
    first, *others = given
    return first, [Target.of(each) for each in others]


def _first(name: str) -> list[Device]:
    """The first device of a backend that is not the default one; none where it is not installed."""
    try:
        return [] if name == DEFAULT else devices(name)[:1]
    except UnknownBackend as error:
        log.info("%s is not measured: %s", name, error)
        return []


def searched_everywhere(
    program: Program, tolerance: float, conditions: Conditions, others: Sequence[Target]
) -> tuple[Found, Target]:
    """The fastest within the tolerance: a path that is found for the conditions' target, or the whole program elsewhere.

    Arguments:
        others: where else the program may run.

    Raises:
        as `searched`.
    """
    if not others:
        return searched(program, tolerance, conditions), conditions.target
    began = time.monotonic()
    found = searched(program, tolerance, replace(conditions, budget=(1 - FOR_OTHERS) * conditions.budget))
    left = max(0.0, conditions.budget - (time.monotonic() - began))
    return _fastest(program, tolerance, found, replace(conditions, budget=left), others)


def _fastest(
    program: Program, tolerance: float, found: Found, conditions: Conditions, others: Sequence[Target]
) -> tuple[Found, Target]:
    """What was found, or the program elsewhere."""
    example = example_of(program, conditions.example)
    ignored = ignored_by(program, conditions.judge)
    whole = Whole(program, tolerance, conditions.target, *example, ignored, strategy=conditions.strategy)
    best, target = found, conditions.target
    notes = list(found.notes)
    with evidence_of(conditions) as evidence:
        for other in others:
            path = Path.plain(program, dict(other.options), other.backend)
            limit = memory_limit(other.device, conditions.memory)
            row = _measured(whole, whole.plain, path, other, evidence, is_judged=True)
            if row is None or row.failure is not None or not row.seconds:
                why = evidence.trouble if row is None else f"{row.failure}: {row.detail}"
                notes.append(f"on {other} it was not measured, or does not count: {why}")
                continue
            is_faster = evidence.strategy.is_faster(row.blocks)
            doubt = "" if is_faster or row.ratio >= 1 else ", which may be noise"
            notes.append(
                f"on {other} the whole takes {row.ratio:.2f} of the plain path's time{doubt}, error {row.error or 0.0:.1e}"
            )
            if not whole.accepts(row, limit) or not is_faster:
                continue
            if target == conditions.target and not found.path.is_plain:
                duel = _measured(whole, found.path, path, other, evidence, is_judged=False)
                if duel is None or duel.failure is not None or not evidence.strategy.is_faster(duel.blocks):
                    continue
            elif (
                best.measurement is not None
                and target != conditions.target
                and best.measurement.ratio <= row.ratio
            ):
                continue
            best, target = (
                replace(found, path=path, measurement=row, classes=[], choices={}, prediction=None),
                other,
            )
    return replace(best, notes=notes, measured=found.measured + evidence.measured), target


def _measured(
    whole: Whole, champion: Path, path: Path, other: Target, evidence: Evidence, *, is_judged: bool
) -> Measurement | None:
    """A program elsewhere in turn with a path on the target of the search; None if there is no time."""
    strategy = evidence.strategy
    place = f"{other} {hardware_of(other).digest} {versions(other.backend)}"

    def request() -> Request:
        return Request(
            champion.applied(whole.program),
            whole.program,
            path.digest,
            whole.exact if is_judged and whole.tolerance else None,
            whole.inputs,
            champion.target(whole.target.devices),
            whole.tolerance if is_judged else None,
            judged_at=whole.judged_at if is_judged and whole.tolerance else None,
            ignored=whole.ignored,
            calls=strategy.whole_calls,
            timing_seconds=strategy.duel_seconds,
            elsewhere=other,
        )

    def enough(row: Measurement) -> bool:
        if row.failure is Failure.inaccurate:
            return row.least_tolerance is None or row.least_tolerance > whole.tolerance
        return row.failure is not None or bool(row.seconds)

    return evidence.of(
        hashlib.sha256(f"{whole.subject} by {champion.digest} and on {place}".encode()).hexdigest(),
        path.digest,
        request,
        enough=enough,
        what=f"the whole program on {other}",
        path=path,
        about=f"{whole.about}, on {other} in turn with {champion.digest[:12]}",
    )
