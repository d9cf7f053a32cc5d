"""The process in which a candidate's code runs: `python -m pcp.planning.measuring.runner`, for `process.Apart` only.

It delivers results and times, and judges nothing, because code from outside could change the judge.
"""

import functools
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from pcp.autodiff import vjp
from pcp.backends import Target
from pcp.backends.base import Buffer
from pcp.backends.jax_function import JAXFunction
from pcp.backends.jax_gradient import vjp_of
from pcp.backends.jax_guard import Guarded
from pcp.backends.registry import DEFAULT
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.planning.measuring.child import Say, serve, short
from pcp.planning.measuring.kept_results import loaded
from pcp.planning.measuring.measurement import Failed, Failure
from pcp.planning.measuring.request import ProgramText, PythonFunction, Request, decoded
from pcp.planning.measuring.subject import place, plain_of
from pcp.planning.measuring.timing import Runnable, Variations, timed, times_in_turn
from pcp.planning.measuring.trial import FAILURES, check, compiled, donating, failed
from pcp.processes.stranger import executed

_FEWEST, _ROUNDS = 5, 25
"""Calls on repeated operands that are timed at least, and in the least time."""


class Runner:
    """Runs one candidate after another."""

    def __init__(self, target: Target, _: Path, say: Say, __: int) -> None:
        self._target, self._say = target, say
        self._request: Request | None = None
        self._runnables: dict[str, Runnable] = {}
        self._modules: dict[str, ModuleType] = {}
        self._count = itertools.count()

    def answer(self, what: str, *words: Any) -> None:
        """Do what is asked for, and say what came of it."""
        try:
            said = getattr(self, f"_{what}")(*words)
        except FAILURES as error:
            trial = failed(error)
            said = {"failure": trial.failure, "detail": short(trial.detail)}
        self._say(**said)

    def _start(self) -> dict[str, Any]:
        """Answer that this process has begun."""
        return {}

    def _execute(self, functions: Sequence[PythonFunction]) -> dict[str, Any]:
        """Execute files of python, once for all that is compiled of them; those before are forgotten."""
        self._modules.clear()
        for each in functions:
            self._function(each)
        return {}

    def _load(self, raw: bytes) -> dict[str, Any]:
        """Compile a request's candidate."""
        self._runnables.clear()
        self._request = request = decoded(raw, print)
        self._target = request.target
        runnable = self._runnables["load"] = self._compiled(request)
        return {"memory": asdict(runnable.executable.memory), "may_donate": donating(request) is not None}

    def _compiled(self, request: Request) -> Runnable:
        candidate, entries = request.candidate, request.subject.arguments
        if isinstance(candidate, Program):
            return compiled(request)
        specs = [entry.spec for entry in entries]
        if isinstance(candidate, ProgramText):
            try:
                program = Program.parse(candidate.text)
                if candidate.wrt is not None:
                    check("takes", [entry.spec for entry in program.arguments], specs[:-1])
                    program = vjp(program, wrt=candidate.wrt)
            except PCPError as error:
                raise Failed(Failure.compile_error, f"{type(error).__name__}: {error}") from None
            return compiled(replace(request, candidate=program), cache=False)
        function: Callable[..., Any] = functools.partial(self._function(candidate), **candidate.attributes)
        if candidate.wrt is not None:
            function = vjp_of(function, candidate.wrt)
        executable = JAXFunction(function, specs, request.target)
        check("returns", executable.results, [entry.spec for entry in request.subject.results])
        return Runnable(executable, [replace(entry, alias=None) for entry in entries])

    def _function(self, candidate: PythonFunction) -> Callable[..., Any]:
        file = Path(candidate.file)
        if candidate.file not in self._modules:
            try:
                self._modules[candidate.file] = executed(file, f"kernel_from_outside_{next(self._count)}")
            except MemoryError:
                raise
            except (Exception, SystemExit) as error:  # whatever somebody else's file raises
                detail = f"{file.name} cannot be imported: {type(error).__name__}: {error}"
                raise Failed(Failure.compile_error, detail) from None
            finally:
                sys.path.remove(str(file.parent))
        function: Callable[..., Any] | None = getattr(self._modules[candidate.file], candidate.function, None)
        if not callable(function):
            raise Failed(Failure.compile_error, f"{file.name} defines no function {candidate.function}")
        return function

    def _donate(self) -> dict[str, Any]:
        """Compile it to be given the memory of its operands."""
        assert self._request is not None
        compile_donating = donating(self._request)
        assert compile_donating is not None
        runnable = self._runnables["donate"] = compile_donating()
        return {"memory": asdict(runnable.executable.memory)}

    def _run(
        self,
        which: str,
        files: Sequence[str],
        results: Sequence[str],
        order: Sequence[int],
        seconds: float,
        is_main: bool,
    ) -> dict[str, Any]:
        """Call it on lists of arguments in a given order, here or in another thread, until the time is up."""
        arrays, changed = self._loaded(files), []
        returned: list[list[np.ndarray[Any, Any]]] = []
        is_guarded = which == "load" and self._target.backend == DEFAULT and self._target.platform == "cpu"
        ends = time.perf_counter() + seconds
        for number in order:
            operands = [array[number] for array in arrays]
            guarded = list(map(Guarded, operands)) if is_guarded else []
            placed = [each.buffer for each in guarded] or self._placed(operands)
            call = functools.partial(timed, self._runnables[which], placed, self._target)
            if is_main:
                outputs, _ = call()
            else:
                with ThreadPoolExecutor(1) as other:
                    outputs, _ = other.submit(call).result()
            returned.append([np.array(each) for each in outputs])
            if not all(each.intact for each in guarded):
                changed.append(number)
            if time.perf_counter() > ends:
                break
        for file, calls in zip(results, zip(*returned, strict=True), strict=True):
            np.save(file, calls[0][None] if len(calls) == 1 else np.stack(calls), allow_pickle=False)
        return {"calls": len(returned), "changed": changed}

    def _time(self, files: Sequence[str]) -> dict[str, Any]:
        """Time it and the plain program in turn."""
        assert self._request is not None
        plain, variations = self._beside(files)
        times = times_in_turn(
            [self._runnables["load"], plain],
            variations,
            self._target,
            self._request.calls,
            self._request.timing_seconds,
            rival=self._request.rival,
        )
        return {"times": times}

    def _time_repeated(self, files: Sequence[str], least: float, most: float) -> dict[str, Any]:
        """Time the plain program and it in turn, each on arguments not seen before and on the same again."""
        plain, variations = self._beside(files)
        order = [("plain", plain), ("own", self._runnables["load"])]
        times: dict[str, list[float]] = {name: [] for name in ("plain", "plain_again", "own", "own_again")}
        began = time.perf_counter()
        before = variations.next()
        for count in itertools.count():
            operands = variations.next()
            for name, each in order:
                # The caches are full of the other program: after this call only the operands are new.
                timed(each, before, self._target)
                for suffix in ("", "_again"):
                    taken = timed(each, operands, self._target)[1]
                    if count:  # the first calls warm up
                        times[name + suffix].append(taken)
            order.reverse()
            before = operands
            spent = time.perf_counter() - began
            if (spent > most and count >= _FEWEST) or (spent > least and count >= _ROUNDS):
                return {"times": times}
        raise AssertionError

    def _beside(self, files: Sequence[str]) -> tuple[Runnable, Variations]:
        """The plain program, and arguments for it."""
        assert self._request is not None
        request, buffers = self._request, self._placed([array[0] for array in self._loaded(files)])
        plain = plain_of(request, request.target.suited(request.subject))
        return plain, Variations(request.subject.arguments, buffers, self._target, request.fixed)

    def _loaded(self, files: Sequence[str]) -> list[Any]:
        """For every argument the arrays of all lists."""
        assert self._request is not None
        entries = zip(files, self._request.subject.arguments, strict=True)
        return [loaded(file, entry.spec.dtype.numpy) for file, entry in entries]

    def _placed(self, arrays: Sequence[Any]) -> list[Buffer]:
        assert self._request is not None
        return place(self._request.subject, arrays, self._target)


if __name__ == "__main__":
    serve(Runner)
