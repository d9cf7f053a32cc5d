"""How a plan comes to its path: kernels, then other forms of the program, then what fits in memory, then other places."""

import functools
import logging
from collections.abc import Sequence
from dataclasses import replace

from pcp.backends import CompilationFailed, OutOfMemory, Target
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.planning.binding import bound_where_it_pays, computes_once
from pcp.planning.capacity import check_capacity
from pcp.planning.conditions import Conditions, check_tolerance, example_of, ignored_by
from pcp.planning.elsewhere import fastest_elsewhere
from pcp.planning.forms import searched as searched_with_forms
from pcp.planning.paths.kinds import BOUND
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import Found
from pcp.planning.search.question import Asking, Here
from pcp.planning.search.this_process import difference_here
from pcp.planning.search.whole import Whole
from pcp.planning.search.within_memory import within_memory

log = logging.getLogger("pcp.planning.search")


class PathDiffers(PCPError):
    """Paths that compute something else in this process than in the child that measured them."""


def searched(
    program: Program, tolerance: float, conditions: Conditions, others: Sequence[Target], evidence: Evidence
) -> Asking[tuple[Found, Target]]:
    """The fastest path that is known or found in time, and where it runs: all that a plan asks.

    Arguments:
        others: where else the program may run.

    Raises:
        InvalidTolerance: the tolerance is not valid.
        ToleranceUnreachable: the plain path misses the tolerance.
        MemoryUnreachable: no path that was tried fits in the memory that was asked for.
        PathDiffers: the best paths compute something else in this process than where they were measured.
        UnknownResult, InvalidJudge: as `ignored_by`.
        TreeMismatch: the example is nested otherwise than the program's arguments.
    """
    check_tolerance(tolerance)
    whole = Whole(
        program,
        tolerance,
        conditions.target,
        *example_of(program, conditions.example),
        ignored_by(program, conditions.judge),
        strategy=conditions.strategy,
        bound=conditions.bound,
    )
    with evidence.leaving(conditions.strategy.for_others if others else 0.0):
        found = yield from _at_home(whole, evidence, conditions)
    if not others:
        return found, conditions.target
    return (yield from fastest_elsewhere(whole, found, evidence, conditions, others))


def _at_home(whole: Whole, evidence: Evidence, conditions: Conditions) -> Asking[Found]:
    """The fastest path on the conditions' target that computes in this process what it did where it was measured.

    Raises:
        as `searched`.
    """
    found = yield from _fastest(whole, evidence, conditions)
    different = yield from _difference_here(found, whole, evidence)
    with evidence.leaving(1.0):  # what is known will do
        for _ in range(1, conditions.strategy.most_dropped):
            if different is not None:
                found = yield from _fastest(whole, evidence, conditions)
                different = yield from _difference_here(found, whole, evidence)
    if different is not None:
        raise PathDiffers(
            f"{conditions.strategy.most_dropped} paths of program {whole.program.digest[:12]} that were measured in child "
            f"processes compute something else in this one, the last one because {different}; run `pcp doctor`, and "
            "plan without a tolerance meanwhile"
        )
    if found.prediction is not None:
        found = _compiling(found, whole, conditions)
    if found.path.bound and not computes_once(found.path, whole.program):
        found = replace(found, path=found.path.having(BOUND.name))
    name = "the plain path" if found.path.is_plain else f"path {found.path.digest[:12]}"
    log.info("tolerance %g: %s, after %d measurements", whole.tolerance, name, found.measured)
    return found


def _difference_here(found: Found, whole: Whole, evidence: Evidence) -> Asking[str | None]:
    """How a path computes something else in this process than where it was measured; it is dropped then."""
    evidence.end_measuring()
    comparing = functools.partial(difference_here, whole, found.path, evidence)
    different = yield from Here("results here", comparing).asked()
    if different is not None:
        evidence.refute(whole.subject, found.path, different)
        log.warning(
            "path %s is dropped: in this process it is not what was measured in a child: %s",
            found.path.digest[:12],
            different,
        )
    return different


def _fastest(whole: Whole, evidence: Evidence, conditions: Conditions) -> Asking[Found]:
    """The fastest path; where memory was asked for, that fits."""
    limit, memory = conditions.memory_limit, conditions.memory
    if memory is None:
        found, _ = yield from searched_with_forms(whole, evidence, limit)
        return (yield from bound_where_it_pays(found, whole, evidence, limit))
    with evidence.leaving(evidence.strategy.for_memory):
        found, search = yield from searched_with_forms(whole, evidence, limit, memory)
    row = found.measurement
    if not found.complete and row is not None and row.peak_bytes is not None and row.peak_bytes <= memory:
        # It goes on with what is left.
        found, search = yield from searched_with_forms(whole, evidence, limit, memory)
    return (yield from within_memory(found, search, memory))


def _compiling(found: Found, whole: Whole, conditions: Conditions) -> Found:
    """A predicted path, or the plain one if that does not compile: nobody has tried it before."""
    target = found.path.target(conditions.target.devices)
    try:
        executable = target.compile(found.path.applied(whole.program))
        check_capacity(whole.program, executable.memory, target, conditions.memory_limit)
    except (CompilationFailed, OutOfMemory) as error:
        log.warning("the predicted path is not taken, because it does not compile: %s", error)
        return replace(found, path=whole.plain, choices={}, prediction=None, complete=False)
    return found
