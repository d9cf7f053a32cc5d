"""The process in which a candidate's code runs: `python -m pcp.planning.measuring.runner`, for `process.Apart` only.

It delivers results and times, and judges nothing, because code from outside could change the judge.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pcp.backends import Target
from pcp.backends.base import Buffer
from pcp.backends.jax_guard import Guarded
from pcp.backends.registry import DEFAULT
from pcp.planning.measuring.child import Say, serve
from pcp.planning.measuring.kept_results import loaded
from pcp.planning.measuring.measurement import Failure
from pcp.planning.measuring.request import Request, decoded
from pcp.planning.measuring.subject import place, plain_of
from pcp.planning.measuring.timing import Runnable, Variations, timed, times_in_turn
from pcp.planning.measuring.trial import FAILURES, Refused, compiled, donating, failed


class Runner:
    """Runs one candidate after another."""

    def __init__(self, target: Target, _: Path, say: Say, __: int) -> None:
        self._target, self._say = target, say
        self._request: Request | None = None
        self._runnables: dict[str, Runnable] = {}

    def answer(self, what: str, *words: Any) -> None:
        """Do what is asked for, and say what came of it."""
        try:
            said = getattr(self, f"_{what}")(*words)
        except FAILURES as error:
            trial = failed(error)
            said = {"failure": trial.failure, "detail": trial.detail}
        self._say(**said)

    def _start(self) -> dict[str, Any]:
        """Answer that this process has begun."""
        return {}

    def _load(self, raw: bytes) -> dict[str, Any]:
        """Compile a request's candidate."""
        self._runnables.clear()
        self._request = request = decoded(raw, print)
        self._target = request.target
        runnable = self._runnables["load"] = compiled(request)
        return {"memory": asdict(runnable.executable.memory), "may_donate": donating(request) is not None}

    def _donate(self) -> dict[str, Any]:
        """Compile it to be given the memory of its operands."""
        assert self._request is not None
        compile_donating = donating(self._request)
        assert compile_donating is not None
        runnable = self._runnables["donate"] = compile_donating()
        return {"memory": asdict(runnable.executable.memory)}

    def _run(self, which: str, files: Sequence[str], results: Sequence[str], is_main: bool) -> dict[str, Any]:
        """Call it, here or in another thread."""
        arrays = self._loaded(files)
        guarded: list[Guarded] = []
        if which == "load" and self._target.backend == DEFAULT and self._target.platform == "cpu":
            guarded = list(map(Guarded, arrays))
        placed = [each.buffer for each in guarded] or self._placed(arrays)

        def call() -> list[Buffer]:
            return timed(self._runnables[which], placed, self._target)[0]

        if is_main:
            outputs = call()
        else:
            with ThreadPoolExecutor(1) as other:
                outputs = other.submit(call).result()
        if not all(each.intact for each in guarded):
            raise Refused(
                Failure.changes_operands,
                "an operand, or the memory around it, was something else after the call; write to results only",
            )
        for file, result in zip(results, outputs, strict=True):
            np.save(file, np.asarray(result), allow_pickle=False)
        return {}

    def _time(self, files: Sequence[str]) -> dict[str, Any]:
        """Time it and the plain program in turn."""
        assert self._request is not None
        request = self._request
        plain, buffers = (
            plain_of(request, request.target.suited(request.subject)),
            self._placed(self._loaded(files)),
        )
        variations = Variations(request.subject.arguments, buffers, self._target, request.fixed)
        times = times_in_turn(
            [self._runnables["load"], plain],
            variations,
            self._target,
            request.calls,
            request.timing_seconds,
            rival=request.rival,
        )
        return {"times": times}

    def _loaded(self, files: Sequence[str]) -> list[Any]:
        assert self._request is not None
        entries = zip(files, self._request.subject.arguments, strict=True)
        return [loaded(file, entry.spec.dtype.numpy) for file, entry in entries]

    def _placed(self, arrays: Sequence[Any]) -> list[Buffer]:
        assert self._request is not None
        return place(self._request.subject, arrays, self._target)


if __name__ == "__main__":
    serve(Runner)
