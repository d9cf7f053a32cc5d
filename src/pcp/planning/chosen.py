"""How a plan comes to its path: given, searched for, or the plain one."""

import contextlib
import hashlib
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.backends import Device
from pcp.backends.base import CompileOptions
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.planning.arguments import as_given
from pcp.planning.bench import Bench
from pcp.planning.best_effort_database import BestEffortDatabase
from pcp.planning.evidence import Evidence, Measurer, Progress
from pcp.planning.hardware import hardware_of, versions
from pcp.planning.profile_database import ProfileDatabase
from pcp.planning.request import Arrays
from pcp.planning.search import Found, Search
from pcp.planning.turn import turn
from pcp.planning.whole import Whole

log = logging.getLogger("pcp.planning.search")

BUDGET = 300.0
"""Seconds that a search may take if nobody says otherwise."""

Database = ProfileDatabase | str | os.PathLike[str] | None


class InvalidTolerance(PCPError):
    """A tolerance that is no number from 0 on."""


class InvalidBudget(PCPError):
    """A time budget that is no number of seconds from 0 on."""


class InvalidExample(PCPError):
    """Arguments to measure on that are no sequence of arguments."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a search has to keep to.

    Arguments:
        device: where the program will run.
        memory_limit: bytes that it may take there.
        options: of the compiler.
        database: of measurements, or its file; None takes the user's.
        budget: seconds.
        example: one call's arguments, nested as the program's, to measure on; None makes random ones.
        progress: told before every measurement.
    """

    device: Device
    memory_limit: int
    options: CompileOptions
    database: Database = None
    budget: float = BUDGET
    example: Sequence[Any] | None = None
    progress: Callable[[Progress], object] | None = None


def searched(program: Program, tolerance: float, conditions: Conditions) -> Found:
    """The fastest path that is known or found in time.

    Arguments:
        program: what to run.
        tolerance: how far results may be from the exact ones.
        conditions: the rest.

    Raises:
        InvalidTolerance, InvalidBudget: a number that is none.
        ToleranceUnreachable: no path is within the tolerance, not even the plain one.
        TreeMismatch: the example is nested otherwise than the program's arguments.
    """
    check_tolerance(tolerance)
    whole = Whole(program, tolerance, conditions.options, *example_of(program, conditions.example))
    with evidence_of(conditions) as evidence:
        found = Search(whole, evidence, conditions.device.kind, conditions.memory_limit).run()
    name = "the plain path" if found.path.is_plain else f"path {found.path.digest[:12]}"
    log.info("tolerance %g: %s, after %d measurements", tolerance, name, found.measured)
    return found


def evidence_of(conditions: Conditions) -> Evidence:
    """What is known on a device, and a child process that measures when something is not.

    Raises:
        InvalidBudget: the budget is no number of seconds.
    """
    budget = conditions.budget
    if not isinstance(budget, int | float) or math.isnan(budget) or budget < 0:
        raise InvalidBudget(f"the budget is {budget!r}; expected seconds from 0, which measures nothing")
    given = conditions.database
    database = given if isinstance(given, ProfileDatabase) else ProfileDatabase(given)

    @contextlib.contextmanager
    def start() -> Iterator[Measurer]:
        with (
            turn(database.file.with_name(f"{database.file.name}.turn"), budget),
            Bench(conditions.device) as bench,
        ):
            yield bench

    return Evidence(
        BestEffortDatabase(database),
        start,
        hardware_of(conditions.device),
        versions(),
        float(budget),
        conditions.progress,
    )


def check_tolerance(tolerance: float) -> None:
    """Look at a number that somebody gave.

    Raises:
        InvalidTolerance: it is no tolerance.
    """
    if not isinstance(tolerance, int | float) or math.isnan(tolerance) or tolerance < 0:
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
    made = hashlib.sha256()
    for array in flat:
        made.update(f"{array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return [flat], made.hexdigest()
