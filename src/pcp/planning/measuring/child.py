"""The child that measures: `python -m pcp.planning.measuring.child`, a program for `pcp.planning.measuring.bench` only.

It is asked with requests, and answers each with lines that say what it is doing and one with what came of it.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pcp.backends import Target
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.planning.judging.comparison import Comparison
from pcp.planning.measuring.measurement_text import plain
from pcp.planning.measuring.process import Apart
from pcp.planning.measuring.request import PythonFunction, Request, decoded
from pcp.planning.measuring.subject import Subject
from pcp.planning.measuring.timing import Runnable
from pcp.planning.measuring.trial import tried
from pcp.processes.parent import Parent
from pcp.systems import leave_no_core, limit_address_space
from pcp.temporary import TemporaryFolderUnusable, unusable

_LONGEST_DETAIL = 1000
_BEGINNING = 200
_KEPT_SUBJECTS = 4
_KEPT_PART = 0.25
"""Of the device's memory."""

Say = Callable[..., None]
"""Says a line that answers the last request, with the words that it is given by name."""


class MeasuringChild:
    """Answers requests; the last few subjects are kept compiled, with their arguments and results."""

    def __init__(self, target: Target, folder: Path, say: Say, memory_bytes: int) -> None:
        self._target, self._folder, self._say = target, folder, say
        self._apart = Apart(target, folder, memory_bytes, in_group=True)
        self._comparison = Comparison(target)
        self._subjects: dict[object, Subject] = {}
        self._cost: dict[object, float] = {}

    def answer(self, raw: bytes, limits: Mapping[str, float]) -> None:
        """Measure what a request asks for and say what came of it.

        Arguments:
            limits: seconds that code of a candidate may take, by stage; where it runs apart they are kept here.
        """
        self._say(stage="plain")
        try:
            request = decoded(raw, lambda sketch: self._say(sketch=base64.b64encode(sketch).decode()))
            subject = self._subject(request)
            if request.is_foreign:
                trial = tried(
                    subject,
                    request,
                    lambda name: self._say(stage="apart" if name in limits else name),
                    lambda request: self._runnable_apart(request, limits),
                )
            else:
                trial = tried(subject, request, self._say_stage)
        except OSError as error:
            self._say(unwritable=short(unusable(self._folder, error)))
            return
        except TemporaryFolderUnusable as error:
            self._say(unwritable=short(str(error)))
            return
        except (PCPError, MemoryError) as error:
            self._say(unusable=short(str(error) or type(error).__name__))
            return
        self._say(trial=plain(asdict(replace(trial, detail=short(trial.detail)))))

    def _runnable_apart(self, request: Request, limits: Mapping[str, float]) -> Runnable:
        candidate = request.candidate
        if isinstance(candidate, PythonFunction):
            self._apart.ask(limits["candidate"], "execute", [candidate])
        entries = [replace(entry, alias=None) for entry in request.subject.arguments]
        return Runnable(self._apart.compiled(request, limits), entries)

    def _say_stage(self, name: str) -> None:
        self._say(stage=name)

    def _subject(self, request: Request) -> Subject:
        # On a GPU tuning takes seconds. What kernels are compared with at a site is not timed; its very bits may be wanted.
        site = request.site
        is_check = site is not None and not site.is_exact and not request.timing_seconds
        is_quick = is_check and self._target.platform != "cpu"
        key = (
            is_quick,
            *map(_digest, (request.subject, request.exact, request.residuals)),
            repr(request.inputs),
            request.judged_at,
            request.ignored,
            request.target.options,
            request.subject_bound,
        )
        kept = self._subjects.pop(key, None)
        if kept is None:
            self._make_room()
            began = time.monotonic()
            kept = Subject(
                request, self._folder, self._say_stage, is_quick=is_quick, comparison=self._comparison
            )
            self._cost[key] = time.monotonic() - began
        self._subjects[key] = kept
        return kept

    def _make_room(self) -> None:
        """Forget what is made again most quickly: a whole program, measured before its sites, is asked for after them."""
        room = _KEPT_PART * self._target.capacity
        while self._subjects and (
            len(self._subjects) >= _KEPT_SUBJECTS
            or sum(subject.bytes for subject in self._subjects.values()) > room
        ):
            key = min(self._subjects, key=lambda key: self._cost[key])
            self._subjects.pop(key).close()


def _digest(program: Program | None) -> str:
    return "" if program is None else hashlib.sha256(program.bytecode).hexdigest()


def short(text: str) -> str:
    """The beginning and the end, where what went wrong is said; between are somebody's stack frames."""
    line = " ".join(text.split())
    if len(line) <= _LONGEST_DETAIL:
        return line
    return f"{line[:_BEGINNING]} ... {line[_BEGINNING - _LONGEST_DETAIL :]}"


def limit_memory(memory_bytes: int, device: str) -> None:
    """Bound what this process may take beyond what it has after start-up."""
    leave_no_core()
    if device.startswith("cpu"):  # a GPU's driver reserves far more address space than it uses
        limit_address_space(memory_bytes)


def serve(make: Callable[[Target, Path, Say, int], Any]) -> None:
    """Answer requests until there will be no more.

    Arguments:
        make: from the target, a folder that it may write to, what says answers, and bytes of memory that this process may
            take, to what has a method `answer`, given the words of each request.
    """
    parent, token = Parent(), ""
    target, folder, memory_bytes = parent.asks()
    child = make(target, Path(folder), lambda **words: parent.say(token=token, **words), memory_bytes)
    limit_memory(memory_bytes, target.places)
    while True:
        token, *words = parent.asks()
        child.answer(*words)


if __name__ == "__main__":
    serve(MeasuringChild)
