"""Exploring: measuring one path after another in the background, so that later plans are answered from the database."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pcp.backends import Target
from pcp.backends.base import CompileOptions
from pcp.ir import Program
from pcp.ir.expecting import expect_program
from pcp.planning import capacity
from pcp.planning.conditions import BUDGET, Conditions, Database, Place, evidence_of, example_of, places_of
from pcp.planning.exploration.enumeration import combinations, elsewhere
from pcp.planning.forms import looked_at
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.path import Path
from pcp.planning.placing.measured import measured_whole
from pcp.planning.search.evidence import Evidence, Progress
from pcp.planning.search.loop import walked
from pcp.planning.search.question import Answer, Asking, in_turn, shown
from pcp.planning.search.site_classes import site_classes
from pcp.planning.search.tuning import tune
from pcp.planning.search.whole import Whole


@dataclass(frozen=True, slots=True)
class Explored:
    """A path that was looked at."""

    path: Path
    measurement: Measurement
    is_new: bool


def explore(
    program: Program,
    device: Place | Sequence[Place] | None = None,
    *,
    database: Database = None,
    budget: float = BUDGET,
    example: Sequence[Any] | None = None,
    options: CompileOptions = MappingProxyType({}),
    progress: Callable[[Progress], object] | None = None,
) -> Iterator[Explored]:
    """Measure a program's paths, best first, until the time is up or all were measured; what is known already is not measured.

    Kernels of all classes of sites are measured alone first. Whole paths then have equal kernels at equal sites; a kernel that
    does not run in the whole program is left out from then on. Where programs that are equal by algebra are faster, paths of
    the fastest of them come in turn with those of the program as it is written.

    Arguments:
        program: any Program.
        device: where, or a target; None takes the default. Of a list, the whole program, and some of its operations, are
            measured in other places than the first, too, in turn with other paths.
        database: where measurements go, or its file; None takes the user's.
        budget: seconds in which measurements may begin.
        example: one call's arguments, to measure on; None makes random ones.
        options: of the compiler.
        progress: told before every measurement.

    Returns:
        An iterator; leaving it ends the exploration, and another one goes on from there.

    Raises:
        InvalidBudget: the budget is no number of seconds.
        TreeMismatch: the example is nested otherwise than the program's arguments.
    """
    expect_program(program, "pcp.explore")
    first, others = places_of(device)
    target = Target.of(first, options)
    limit = capacity.memory_limit(target)
    conditions = Conditions(target, limit, database, budget, example, progress)
    evidence = evidence_of(conditions)
    whole = Whole(program, math.inf, target, *example_of(program, example))

    def walk() -> Iterator[Explored]:
        with evidence:
            yield from walked(functools.partial(exploring, whole, others, limit), evidence)

    return walk()


def exploring(whole: Whole, others: Sequence[Target], limit: int, evidence: Evidence) -> Asking[None]:
    """Show each path that is `Explored`, first other forms of the program.

    Arguments:
        limit: bytes that a call may take.
    """
    walks = [_walk(whole, others, evidence)]
    tried = yield from looked_at(whole, evidence, limit, whole.plain)
    yield from (Explored(each.whole.path({}), each.row, True) for each in tried)
    best = min(tried, key=lambda each: each.rank, default=None)
    if best is not None and not best.refused:
        walks.append(_walk(best.whole, [], evidence))
    yield from in_turn(*walks)


def _walk(whole: Whole, others: Sequence[Target], evidence: Evidence) -> Asking[None]:
    """Show the paths of a program, or of one that is equal, as long as there is time."""
    sites = site_classes(whole.prepared, whole.target)
    yield from tune(sites, evidence)
    seconds: list[float] = []  # of the plain path, in turn with each
    paths = in_turn(
        combinations(whole, sites, evidence, uniform=True),
        *elsewhere(whole, others, evidence, lambda: min(seconds, default=None)),
    )
    row: Answer = None
    while (path := (yield from shown(paths, row))) is not None:
        before = evidence.measured
        row = yield from _measured(whole, path, others, evidence)
        if row is None:
            return
        if row.seconds and row.plain_seconds:
            seconds.append(row.typical / row.ratio)
        yield Explored(path, row, evidence.measured > before)


def _measured(whole: Whole, path: Path, others: Sequence[Target], evidence: Evidence) -> Asking[Answer]:
    """Times and error of a path, wherever it runs; None if there is no time."""
    if path.placement is None and path.backend == whole.target.backend:
        return (yield from whole.measured(path, evidence))
    there = [
        other for other in others if other.backend == path.backend and {*other.options} <= {*path.options}
    ]
    place = None if path.placement is not None else there[0]
    return (yield from measured_whole(whole, whole.plain, path, place, evidence, is_judged=True))
