"""The child that measures: `python -m pcp.planning.measuring.child`, a program for `pcp.planning.measuring.bench` only.

It reads requests from standard input, one JSON object a line, and answers each with lines that say what it is doing and one
with what came of it. Candidates may write to standard output; the answers go to where that was before.
"""

import base64
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TextIO

from pcp.backends import Placement, Target
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.kernels import Claims
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.sketch import Sketch
from pcp.planning.measuring.measurement_text import judgement_text
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import PythonFunction
from pcp.planning.measuring.subject import Subject
from pcp.planning.measuring.trial import tried
from pcp.rewrite.row import Effect
from pcp.systems import leave_no_core, limit_address_space
from pcp.temporary import unusable

_LONGEST_DETAIL = 1000
_BEGINNING = 200
_KEPT_SUBJECTS = 4
_KEPT_PART = 0.25
"""Of the device's memory."""


class Child:
    """Answers requests; the last few subjects are kept compiled, with their arguments and results."""

    def __init__(self, header: dict[str, Any], answers: TextIO) -> None:
        self._target = Target.from_description(header["target"])
        self._comparison = Comparison(self._target)
        self._folder = Path(header["folder"])
        self._answers = answers
        self._subjects: dict[str, Subject] = {}
        self._cost: dict[str, float] = {}
        self._token = ""

    def answer(self, request: dict[str, Any]) -> None:
        """Measure what a request asks for and say what came of it."""
        self._token = request["token"]
        self._say(stage="plain")
        site = _claims(request["site"])
        try:
            subject = self._subject(request)
            trial = tried(
                subject,
                _candidate(request["candidate"]),
                request["tolerance"],
                request["calls"],
                request["timing_seconds"],
                request["rival"],
                lambda name: self._say(stage=name),
                site,
                None if request["elsewhere"] is None else Target.from_description(request["elsewhere"]),
                None if request["placement"] is None else Placement.from_description(request["placement"]),
                self._say_sketch if request["sketched"] else None,
                request["worth"],
            )
        except OSError as error:
            self._say(unwritable=_short(unusable(self._folder, error)))
            return
        except (PCPError, MemoryError) as error:
            self._say(unusable=_short(str(error) or type(error).__name__))
            return
        words = {"detail": _short(trial.detail), "judgement": judgement_text(trial.judgement)}
        self._say(trial=asdict(trial) | words)

    def _subject(self, request: dict[str, Any]) -> Subject:
        # On a GPU tuning takes seconds. What kernels are compared with at a site is not timed; its very bits may be wanted.
        site = _claims(request["site"])
        is_check = site is not None and not site.is_exact and not request["timing_seconds"]
        is_quick = is_check and self._target.device.kind != "cpu"
        key = json.dumps(
            [
                is_quick,
                request["subject"],
                request["exact"],
                request["inputs"],
                request["judged_at"],
                request["ignored"],
                request["options"],
                request["residuals"],
            ]
        )
        kept = self._subjects.pop(key, None)
        if kept is None:
            self._make_room()
            began = time.monotonic()
            kept = Subject(
                _program(request["subject"]),
                None if request["exact"] is None else _program(request["exact"]),
                _inputs(request["inputs"]),
                request["judged_at"],
                request["ignored"],
                self._target.with_options(request["options"]),
                self._folder,
                None if request["residuals"] is None else _program(request["residuals"]),
                lambda name: self._say(stage=name),
                is_quick=is_quick,
                comparison=self._comparison,
            )
            self._cost[key] = time.monotonic() - began
        self._subjects[key] = kept
        return kept

    def _make_room(self) -> None:
        """Forget what is made again most quickly: a whole program, measured before its sites, is asked for after them."""
        room = _KEPT_PART * self._target.device.capacity
        while self._subjects and (
            len(self._subjects) >= _KEPT_SUBJECTS
            or sum(subject.bytes for subject in self._subjects.values()) > room
        ):
            key = min(self._subjects, key=lambda key: self._cost[key])
            self._subjects.pop(key).close()

    def _say_sketch(self, sketch: Sketch) -> None:
        self._say(sketch=base64.b64encode(sketch.to_bytes()).decode())

    def _say(self, **words: Any) -> None:
        self._answers.write(json.dumps(words | {"token": self._token}) + "\n")
        self._answers.flush()


def _program(path: str) -> Program:
    return Program(Path(path).read_bytes())


def _candidate(described: dict[str, str]) -> Program | PythonFunction:
    if "program" in described:
        return _program(described["program"])
    return PythonFunction(described["python"], described["function"])


def _claims(described: dict[str, Any] | None) -> Claims | None:
    return None if described is None else Claims(**described | {"effect": Effect(described["effect"])})


def _inputs(described: dict[str, Any]) -> Recipe | list[list[str]]:
    if "files" in described:
        return list(described["files"])
    return Recipe(**described | {"ranges": tuple(map(tuple, described["ranges"]))})


def _short(text: str) -> str:
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


def _read(requests: "queue.Queue[str]") -> None:
    """Hand on requests; when there will be no more the parent has gone, and this process goes whatever it is doing."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


class Answering(Protocol):
    """What answers requests, by lines that it writes."""

    def answer(self, request: dict[str, Any]) -> None:
        """Do what a request asks for and say what came of it."""


def serve(make: Callable[[dict[str, Any], TextIO], Answering]) -> None:
    """Answer requests until standard input ends.

    Arguments:
        make: from what the parent said first, and where answers go, to what answers.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    header = json.loads(sys.stdin.readline())
    child = make(header, answers)
    limit_memory(header["memory_bytes"], header["target"]["devices"][0])
    requests: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        child.answer(json.loads(requests.get()))


if __name__ == "__main__":
    serve(Child)
