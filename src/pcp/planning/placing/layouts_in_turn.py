"""The fastest layout of a program over several devices: each that fits is compiled and timed, one after another, in rounds.

What a layout computes on random arguments is compared with what the first one does, so a layout that is wrong is not taken.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcp.backends import Executable, MemoryUse, OutOfMemory, Target
from pcp.backends.base import Buffer
from pcp.ir import Program
from pcp.planning.measuring.random_inputs import Recipe, random_arguments
from pcp.planning.measuring.significance import undisturbed
from pcp.planning.paths.path import Path
from pcp.planning.placing.over_devices import Spread, spread
from pcp.rewrite.layout.rules import RULES

log = logging.getLogger("pcp.planning.placing")

FASTEST = "fastest"
"""The layout of whoever wants the one that is measured to be the fastest."""
_ROUNDS, _CALLS = 2, 4
_MOST_APART = 1e-2
"""Relative difference of results of two layouts above which one of them is wrong: sums are added up in another order only."""


@dataclass(frozen=True, slots=True)
class Compared:
    """An executable that was the fastest of some.

    Arguments:
        executable: itself.
        notes: what was measured of it and of the others.
    """

    executable: Executable
    notes: tuple[str, ...]

    @property
    def memory(self) -> MemoryUse:
        """As the executable's."""
        return self.executable.memory

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """As the executable's."""
        return self.executable.run(buffers)


def laid(
    program: Program, target: Target, path: Path | None, layout: str | None, limit: int, *, cache: bool
) -> Spread:
    """As `spread`; with `FASTEST` by the layout that is measured to be the fastest of those that fit in memory.

    Raises:
        as `spread`.
    """
    if layout != FASTEST or path is not None:
        return spread(program, target, path, layout, limit, cache=cache)
    tried, notes = dict[str, Spread](), list[str]()
    for rule in RULES:
        try:
            made = spread(program, target, None, rule, limit, cache=cache)
        except OutOfMemory:
            if rule == RULES[-1] and not tried:
                raise
            notes.append(f"{rule} does not fit in memory")
            continue
        if any(made.path.applied(program) == each.path.applied(program) for each in tried.values()):
            notes.append(f"{rule} cuts nothing more")
        else:
            tried[rule] = made
    seconds = _timed(program, tried, notes)
    best = min(seconds, key=seconds.__getitem__)
    others = [
        f"{rule} {took * 1e3:.3g} ms, {took / seconds[best]:.3f} of that"
        for rule, took in seconds.items()
        if rule != best
    ]
    said = (
        f"{best} {seconds[best] * 1e3:.3g} ms a call, in turn with {'; '.join([*others, *notes]) or 'no other'}",
    )
    log.info("the fastest layout: %s", said[0])
    return replace(tried[best], executable=Compared(tried[best].executable, said))


def _timed(program: Program, tried: dict[str, Spread], notes: list[str]) -> dict[str, float]:
    """Seconds of a call by each layout that computes what the first one does; only one has its arrays on the devices."""
    given = random_arguments(program.arguments, Recipe(begins=tuple(program.begins.items())), 0)
    expected: list[Any] | None = None
    seconds: dict[str, list[float]] = {rule: [] for rule in tried}
    for turn in range(_ROUNDS):
        for rule in list(seconds):
            each = tried[rule]
            buffers = [
                each.target.place(array, entry.spec, axis=axis)
                for array, entry, axis in zip(given, program.arguments, each.axes, strict=True)
            ]
            results = each.executable.run(buffers)
            if not turn:
                found = [np.asarray(result, np.float64) for result in results]
                expected = found if expected is None else expected
                apart = max(map(_apart, expected, found), default=0.0)
                if not apart < _MOST_APART:
                    log.warning("the layout %s is not taken: its results differ by %.2g", rule, apart)
                    notes.append(f"{rule} is not taken, because its results differ by {apart:.1e}")
                    del seconds[rule]
                    continue
            for _ in range(_CALLS):
                buffers = _next(program, buffers, results)
                each.target.runner.wait(buffers)
                began = time.perf_counter()
                results = each.executable.run(buffers)
                each.target.runner.wait(results)
                seconds[rule].append(time.perf_counter() - began)
    return {rule: undisturbed(some) for rule, some in seconds.items()}


def _next(program: Program, buffers: Sequence[Buffer], results: Sequence[Buffer]) -> list[Buffer]:
    """The arguments of another call: results in the place of what they were donated."""
    return [
        buffer if entry.alias is None else results[entry.alias]
        for entry, buffer in zip(program.arguments, buffers, strict=True)
    ]


def _apart(expected: Any, found: Any) -> float:
    size = float(np.linalg.norm(expected))
    return float(np.linalg.norm(found - expected)) / (size if size else 1.0)
