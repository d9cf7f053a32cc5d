"""Recorded searches: what a planner asks to be measured, in order, and what it chooses, where measurements are made up.

A search is driven by what users call (`pcp.plan`, `pcp.explore`, `pcp.paths`, `pcp.streamed`) on the devices of
`tests.replay.null_backend`, by the bench of `tests.replay.bench`, and on a clock of its own: so where its time is up it ends at
the same measurement on every machine.
"""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import pytest

import pcp
from pcp.planning import conditions
from pcp.planning.search import this_process
from tests.replay.bench import Mood, ScriptedBench, placement_digest
from tests.replay.clock import CLOCK
from tests.replay.facts import SHORT, Facts
from tests.replay.machine import machine, without_egglog

CPU, CUDA, OTHER = "null:cpu:0", "null:cuda:0", "other:cpu:0"


@dataclass
class Search:
    """One search in progress, and what it has come to.

    Arguments:
        mood: what the machine is like.
        folder: where its database lies.
    """

    mood: Mood
    folder: FilePath
    asked: list[str] = field(default_factory=list)
    outcomes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def database(self) -> FilePath:
        """Measurements of this search, and of those before it in the same record."""
        return self.folder / "profile.sqlite"

    def plan(self, program: Any, device: Any = CPU, name: str = "", **options: Any) -> Any:
        """Plan a program, and note what comes of it."""
        try:
            found = pcp.plan(program, device, database=self.database, **options)
        except pcp.PCPError as error:
            self.note(name, type(error).__name__)
            return None
        except KeyboardInterrupt:
            self.note(name, "KeyboardInterrupt")
            return None
        if isinstance(found, pcp.Plan):
            self.note_plan(name, found)
        return found

    def note_plan(self, name: str, plan: pcp.Plan) -> None:
        """Note the path of a plan, and what it gives up to fit."""
        self.note(name, f"path {plan.path.digest[:SHORT]}, {shown(plan.path, plan.program)}")
        if plan.fit is not None:
            fit = plan.fit
            parts = f"{fit.peak} of {fit.asked} bytes, without {fit.without}, {fit.parts} parts, {fit.remade} remade"
            self.note(f"{name} fit", f"{parts}, {fit.more:.4g} more")

    def note(self, name: str, fact: str) -> None:
        """Note something that the search came to, after how many measurements."""
        self.outcomes.append((name.strip(), f"{fact} (after {len(self.asked)})"))

    @property
    def facts(self) -> Facts:
        """All that was asked and chosen, one line each."""
        requests = {f"{number:03}": each for number, each in enumerate(self.asked)}
        chosen_ = {
            f"chosen {number} {name}".strip(): fact for number, (name, fact) in enumerate(self.outcomes)
        }
        return chosen_ | requests


def shown(path: pcp.Path, program: pcp.Program) -> str:
    """A path in one line: the digest of what is computed by it, its kernels, and what else there is."""
    kernels = Counter(each.kernel for each in path.choices.values())
    words = [path.applied(program).digest[:SHORT]]
    words += [f"{count} {name}" for name, count in sorted(kernels.items())]
    words += [f"by {path.backend}"] * (path.backend != "null")
    words += [f"{path.parts} parts"] * (path.parts > 1)
    if path.recomputation is not None:
        words.append("remade")
    if path.equal is not None:
        words.append(f"equal {path.equal.makes[:SHORT]}")
    if path.placement is not None:
        words.append(f"{len(path.placement.operations)} placed {placement_digest(path.placement)}")
    return ", ".join(["plain"] if path.is_plain and path.backend == "null" else words)


Drive = Callable[[Search], None]


@dataclass(frozen=True)
class Recorded:
    """A search to be recorded.

    Arguments:
        drive: makes it.
        mood: what the machine is like.
        bare: whether its processor has no libraries.
        egglog: whether equal programs are looked for.
    """

    drive: Drive
    mood: Mood = field(default_factory=Mood)
    bare: bool = False
    egglog: bool = False

    def run(self) -> Facts:
        """Its facts."""
        hidden = contextlib.nullcontext() if self.egglog else without_egglog()
        with (
            machine(bare=self.bare),
            hidden,
            CLOCK.started(),
            pytest.MonkeyPatch.context() as patch,
            tempfile.TemporaryDirectory() as folder,
        ):
            search = Search(self.mood, FilePath(folder))
            patch.setattr(conditions, "Bench", lambda: ScriptedBench(search.mood, search.asked))
            patch.setattr(
                this_process, "_compared", set()
            )  # what this process compared before is compared again
            for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME"):
                patch.setenv(variable, folder)  # kernels that the user has added are of one machine
            self.drive(search)
        return search.facts
