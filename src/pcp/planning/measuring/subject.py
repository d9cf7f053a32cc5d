"""What candidates are compared with: the plain program, its arguments, its results and those in float64.

This runs in the child.
"""

import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcp.backends import Target
from pcp.backends.base import Buffer
from pcp.backends.regions import compiled_in_places
from pcp.backends.regions.bound import called_often
from pcp.ir import PARAMETERS, Argument, Program, Role
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.judge import Judge, result_name
from pcp.planning.judging.oracle import widened
from pcp.planning.judging.reference import FLOAT32_SERVES, Oracle, Reference, float64_is_small
from pcp.planning.judging.sketch import Sketch
from pcp.planning.measuring.kept_results import Results, kept_results, loaded
from pcp.planning.measuring.random_inputs import Recipe, cold, random_arguments
from pcp.planning.measuring.request import Arrays, Request
from pcp.planning.measuring.timing import Runnable, timed

log = logging.getLogger("pcp.planning.measuring.subject")


class Subject:
    """A plain program on some lists of arguments, ready to be compared with candidates.

    Arguments:
        request: which asks for it, with a recipe for arguments or files of them.
        folder: for results.
        stage: told what begins.
        is_quick: whether the plain program is compiled in little time, rather than to run fast.
        comparison: what compares, with what it compiled for others; None makes one.
    """

    def __init__(
        self,
        request: Request,
        folder: Path,
        stage: Callable[[str], None] = lambda _: None,
        *,
        is_quick: bool = False,
        comparison: Comparison | None = None,
    ) -> None:
        stage("compiling the plain program")
        program, exact, target, residuals = request.subject, request.exact, request.target, request.residuals
        inputs, judged_at, ignored = request.inputs, request.judged_at, request.ignored
        reference = None if exact is None else Reference(exact, program, target)
        float32_may_serve = (judged_at or 0.0) >= FLOAT32_SERVES
        self.program = program
        self.target = target
        self.comparison = Comparison(target) if comparison is None else comparison
        quickly = target.with_options(target.runner.quick_options(target))
        self.plain = plain_of(request, (quickly if is_quick else target).suited(program))
        self.plain_seconds: list[float] = []
        """Of calls of the plain program as they happened."""
        self.is_judged = exact is not None
        """Whether errors are those against exact results, rather than against the plain ones."""
        self._residuals = (
            None
            if residuals is None
            else Runnable(target.suited(residuals).compile(residuals), residuals.arguments)
        )
        self.cases: dict[str, Any] = {}
        """What is right for operands of other kinds, as a check at a site keeps it."""
        self.bytes_of_cases = 0
        self._exact = None if reference is None else reference.float64
        self.inputs: list[list[Buffer]] = []
        self.judges: list[Judge] = []
        self._recipe = inputs
        self._judged_at, self._ignored = judged_at, ignored
        self._folder, self._stage = folder, stage
        self.plain_results: list[Results] = []
        """Of the plain program, on each list of arguments."""
        self._others: list[Results] = []
        self._deterministic: bool | None = None
        self.reference = "float64"
        if float32_may_serve and not float64_is_small(program, self.plain.executable.memory):
            self.reference = "float32"
        for index in range(inputs.sets if isinstance(inputs, Recipe) else len(inputs)):
            stage("inputs")
            self.inputs.append(self.completed(self._placed(index)))
            stage("plain")
            self.plain_results.append(self._kept(f"plain-{os.getpid()}", index, program, self._timed_plain))
            self.judges.append(self._judge(index, reference))

    def _judge(self, index: int, reference: Reference | None) -> Judge:
        """What judges results on one list of arguments."""
        if reference is None:
            return self._held_against(index, self.plain_results[index])
        if self.reference == "float32":
            judge = self._held_against(
                index,
                self._evaluated(index, "float32", reference.float32),
                self._evaluated(index, "roundings", reference.other_roundings),
            )
            if all(each.least_plain <= (self._judged_at or 0.0) for each in judge.plain):
                return judge
            log.info("float32 seems to miss the tolerance of %g: float64 will say", self._judged_at)
            self.reference = "float64"
        return self._held_against(index, self._evaluated(index, "float64", reference.float64))

    def _held_against(self, index: int, right: Results, *doubts: Results) -> Judge:
        return Judge(
            self.program,
            self.inputs[index],
            right,
            self.plain_results[index],
            self.comparison,
            self._judged_at,
            self._ignored,
            doubts,
        )

    def _evaluated(self, index: int, name: str, oracle: Oracle | None) -> Results:
        """An oracle's results on one list of arguments; without an oracle, the plain path's."""
        if oracle is None:
            return self.plain_results[index]
        self._stage(name)
        self._others.append(self._kept(f"exact-{name}", index, oracle.program, oracle.run))
        return self._others[-1]

    def _kept(
        self, name: str, index: int, program: Program, run: Callable[[Sequence[Buffer]], list[Buffer]]
    ) -> Results:
        folder = self._folder / f"{name}-{_key(self.program, program, self._recipe, index)}"
        compute = functools.partial(run, self.inputs[index])
        return kept_results(folder, self.program.results, self.target, compute)

    @property
    def ignored_names(self) -> list[str]:
        """The results that are not judged."""
        return [result_name(self.program, place) for place in self._ignored]

    @property
    def bytes(self) -> int:
        """Memory that it takes."""
        arguments = len(self.inputs) * sum(entry.spec.bytes for entry in self.program.arguments)
        results = sum(kept.bytes for kept in (*self._others, *self.plain_results))
        return arguments + results + self.bytes_of_cases

    @property
    def is_deterministic(self) -> bool:
        """Whether the plain program has the same results twice; tried when that is asked for."""
        if self._deterministic is None:
            self.is_repeated(self._timed_plain(self.inputs[0]))
        return bool(self._deterministic)

    def is_repeated(self, results: Sequence[Any]) -> bool:
        """Whether results of the plain program on the first list of arguments are those it had before, bit for bit."""
        pairs = zip(self.plain_results[0], results, strict=True)
        self._deterministic = all(self.comparison.same_bits(a, b) for a, b in pairs)
        return self._deterministic

    @property
    def is_warm(self) -> bool:
        """Whether the plain program was called to make its arguments."""
        return isinstance(self._recipe, Recipe) and self._recipe.warm_calls > 0

    def cold_arguments(self) -> list[Buffer]:
        """The first list of arguments as a process has them that does not call the plain program."""
        assert isinstance(self._recipe, Recipe)
        entries, placed = self.program.arguments, list(self.inputs[0])
        moved = [i for i, entry in enumerate(entries) if not _stays(entry)]
        arrays = random_arguments(entries, cold(self._recipe), 0, only=moved)
        for i, array in zip(moved, arrays, strict=True):
            placed[i] = self.target.place(array, entries[i].spec)
        return placed

    def sketch(self, arguments: Sequence[Buffer], results: Sequence[Buffer], *, exact: bool) -> Sketch:
        """The sketch of a candidate's results.

        Arguments:
            exact: whether bits count in all of them.
        """
        return Sketch.of(self.program, arguments, results, self._ignored, exact)

    def close(self) -> None:
        """Remove its files, but for the float64 results."""
        for kept in self.plain_results:
            kept.close()

    def exact(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results in float64 for other arguments than those that it is judged on."""
        if self._exact is None:
            self._exact = Reference(widened(self.program), self.program, self.target).float64
        return self._exact.run(buffers)

    def _timed_plain(self, placed: Sequence[Buffer]) -> list[Buffer]:
        results, seconds = timed(self.plain, placed, self.target)
        self.plain_seconds.append(seconds)
        return results

    def completed(self, placed: list[Buffer]) -> list[Buffer]:
        """Arguments with the residuals that belong to the others."""
        if self._residuals is None:
            return placed
        own = placed[: len(self._residuals.arguments)]
        return [*own, *timed(self._residuals, own, self.target)[0]]

    def _placed(self, index: int) -> list[Buffer]:
        if not isinstance(self._recipe, Recipe):
            arrays = [
                loaded(str(path), entry.spec.dtype.numpy)
                for path, entry in zip(self._recipe[index], self.program.arguments, strict=True)
            ]
            return place(self.program, arrays, self.target)
        entries = self.program.arguments
        placed = place(self.program, random_arguments(entries, self._recipe, index), self.target)
        for count in range(self._recipe.warm_calls):
            results = self._timed_plain(placed)  # parameters stay as they begin
            fresh = [i for i, entry in enumerate(entries) if entry.alias is None and not _stays(entry)]
            arrays = random_arguments(entries, self._recipe, index + (count + 1) * 1000, only=fresh)
            for i, entry in enumerate(entries):
                if i in fresh:
                    placed[i] = self.target.place(arrays[fresh.index(i)], entry.spec)
                elif entry.alias is not None and not _stays(entry):
                    placed[i] = results[entry.alias]
        return placed


def _stays(entry: Argument) -> bool:
    """Whether calls that warm up leave an argument as it begins."""
    return entry.role is Role.weight if entry.alias is None else entry.group == PARAMETERS


def plain_of(request: Request, target: Target) -> Runnable:
    """A request's subject, compiled."""
    executable = compiled_in_places(request.subject, target, None, request.subject_bound)
    return Runnable(called_often(executable), request.subject.arguments)


def place(program: Program, arrays: Iterable[Any], target: Target) -> list[Buffer]:
    """The arguments of a program on a device; where it keeps state in fewer bits than they have, they are rounded."""
    pairs = zip(arrays, program.arguments, strict=True)
    return [
        target.place(np.asarray(array).astype(entry.spec.dtype.numpy, copy=False), entry.spec)
        for array, entry in pairs
    ]


def _key(program: Program, exact: Program, inputs: Recipe | Sequence[Arrays], index: int) -> str:
    text = repr(inputs) if isinstance(inputs, Recipe) else json.dumps(list(inputs[index]))
    parts = [program.bytecode, exact.bytecode, text.encode(), str(index).encode()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]
