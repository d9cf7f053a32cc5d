"""Conditions: where a program is searched for, what a search has to keep to, and the evidence that it begins with."""

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pcp.backends import Device, Target, UnknownBackend, backend_names, devices
from pcp.backends.registry import DEFAULT
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.planning.arguments import as_given
from pcp.planning.judging.judge import named_places
from pcp.planning.judging.sketch import digest_of_bits
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.request import Arrays
from pcp.planning.profile.best_effort_database import BestEffortDatabase
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.search.evidence import Evidence, Measurer, Progress
from pcp.planning.search.strategy import Strategy
from pcp.turn import turn

log = logging.getLogger("pcp.planning.search")

STRATEGY = Strategy()
"""Of whoever gives no other."""
BUDGET = 300.0
"""Seconds that a search may take if nobody says otherwise."""

Database = ProfileDatabase | str | os.PathLike[str] | None


ANY = "any"
"""The name for the default device, and what every other backend that is installed has first."""

Place = str | Device | Target


class NoPlaces(PCPError):
    """An empty list of places to plan for."""


def places_of(where: Place | Sequence[Place] | None) -> tuple[Place | None, list[Target]]:
    """Where a program is searched for, and where else it is measured.

    Raises:
        NoPlaces: a list of devices is empty.
        UnknownBackend, UnknownDevice: as `Target.of`.
    """
    if where == ANY:
        return None, [Target.of(f"{name}:{place}") for name in backend_names() for place in _first(name)]
    if where is None or isinstance(where, str | Target) or not isinstance(where, Sequence):
        return where, []
    if not where:
        raise NoPlaces("the list of devices is empty; give one or more, as ['cpu:0', 'iree:llvm-cpu']")
    first, *others = where
    return first, [Target.of(each) for each in others]


def _first(name: str) -> list[Device]:
    """The first device of a backend that is not the default one; none where it is not installed."""
    try:
        return [] if name == DEFAULT else devices(name)[:1]
    except UnknownBackend as error:
        log.info("%s is not measured: %s", name, error)
        return []


class InvalidTolerance(PCPError):
    """A tolerance that is no number from 0 on."""


class InvalidJudge(PCPError):
    """Something other than `ignore` that was said of how a result is judged."""


class InvalidBudget(PCPError):
    """A time budget that is no number of seconds from 0 on."""


class InvalidExample(PCPError):
    """Arguments to measure on that are no sequence of arguments."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a search has to keep to.

    Arguments:
        target: what the program is compiled for.
        memory_limit: bytes that it may take there to be measured.
        database: of measurements, or its file; None takes the user's.
        budget: seconds.
        example: one call's arguments, nested as the program's, to measure on; None makes random ones.
        judge: by name of a result, how it is judged: `ignore`.
        strategy: how it goes about it.
        memory: bytes that the path may take that is chosen; None for as many.
        bound: how many arguments, flat and from the first, will be bound.
        narrows: the flat places of the moments that paths may take and return in bfloat16.
    """

    target: Target
    memory_limit: int
    database: Database = None
    budget: float = BUDGET
    example: Sequence[Any] | None = None
    progress: Callable[[Progress], object] | None = None
    judge: Mapping[str, str] = field(default_factory=dict)
    strategy: Strategy = field(default_factory=lambda: STRATEGY)
    memory: int | None = None
    bound: int = 0
    narrows: tuple[int, ...] = ()


def ignored_by(program: Program, judge: Mapping[str, str]) -> tuple[int, ...]:
    """The places of the results that somebody wants to be ignored.

    Raises:
        UnknownResult: no result has a name that was given.
        InvalidJudge: what is said of it is not `ignore`.
    """
    if not isinstance(judge, Mapping) or any(how != "ignore" for how in judge.values()):
        raise InvalidJudge(
            f"judge is {judge!r}; expected a dictionary from names of results to 'ignore', like {{'logits': 'ignore'}}"
        )
    return tuple(sorted(named_places(program, judge)))


def evidence_of(conditions: Conditions) -> Evidence:
    """What is known on a device, and a child process that measures when something is not.

    Raises:
        InvalidBudget: the budget is no number of seconds.
    """
    budget = conditions.budget
    if isinstance(budget, bool) or not isinstance(budget, int | float) or math.isnan(budget) or budget < 0:
        raise InvalidBudget(f"the budget is {budget!r}; expected seconds from 0, which measures nothing")
    source = conditions.database
    database = source if isinstance(source, ProfileDatabase) else ProfileDatabase(source)

    @contextlib.contextmanager
    def start() -> Iterator[Measurer]:
        with (
            turn(
                database.file.with_name(f"{database.file.name}.turn"),
                budget,
                log,
                unavailable="other processes may measure at the same time",
                waiting="another process measures; waiting for it",
                gave_up="it measures too, and times are disturbed",
            ),
            Bench() as bench,
        ):
            yield bench

    return Evidence(
        BestEffortDatabase(database),
        start,
        conditions.target,
        float(budget),
        conditions.progress,
        conditions.strategy,
    )


def check_tolerance(tolerance: float) -> None:
    """Look at a number that somebody gave.

    Raises:
        InvalidTolerance: it is no tolerance.
    """
    if (
        isinstance(tolerance, bool)
        or not isinstance(tolerance, int | float)
        or math.isnan(tolerance)
        or tolerance < 0
    ):
        raise InvalidTolerance(
            f"the tolerance is {tolerance!r}; expected a number from 0 (the plain path's bits), like 1e-3, or None"
        )


def example_of(program: Program, example: Sequence[Any] | None) -> tuple[Sequence[Arrays] | None, str]:
    """Flat arguments, and a name for them: errors on them are not those on others.

    Raises:
        InvalidExample: it is no tuple or list.
        TreeMismatch: it is nested otherwise than the program's arguments.
        ArgumentMismatch: an array has another shape or element type.
    """
    if example is None:
        return None, ""
    if type(example) not in (tuple, list):
        raise InvalidExample(
            f"the example is a {type(example).__name__}; expected a tuple of one call's arguments: "
            f"{len(program.argument_tree.children)}, as Plan.run takes them"
        )
    leaves = program.flatten_arguments(*example)
    flat = [as_given(entry, leaf) for entry, leaf in zip(program.arguments, leaves, strict=True)]
    return [flat], digest_of_bits(flat).hex()
