"""Measuring in a child process: what crashes, hangs, eats memory or returns garbage becomes a typed failure.

A Bench keeps one child over many requests, because starting one takes a second or two, and starts another where that one died,
or where a request is for another backend or device.
"""

import base64
import contextlib
import logging
import time
from dataclasses import replace
from typing import Any

import numpy as np

from pcp.backends import Target
from pcp.errors import PCPError
from pcp.planning.measuring.ahead import Ahead
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failed, Failure, Measurement
from pcp.planning.measuring.measurement_text import InvalidRows, measurement_of
from pcp.planning.measuring.process import MeasuringProcess
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Arrays, Request, encoded
from pcp.temporary import TemporaryFolder, TemporaryFolderUnusable, check_room, written

log = logging.getLogger("pcp.planning.measuring.bench")

SECONDS = {"cpu": 60.0, "cuda": 300.0}
"""By the kind of device, for the code of one candidate: compiling, and each call outside of timing. A compiler for GPUs tunes
what it makes by running it."""
PLAIN_SECONDS = 1800.0
"""For what is not the candidate's fault: the plain program, float64, judging."""

_OWN = ("subject", "path", "hardware", "versions", "when")
"""What a child is not asked about a measurement."""


class PlainProgramFailed(PCPError):
    """Nothing can be measured, because the plain program does not run; that is no fault of a candidate.

    Attributes:
        is_of_all: whether no candidate can be measured beside it. Where it ran, but the results of one were not judged,
            those of another may be.
    """

    def __init__(self, words: str, *, is_of_all: bool = True) -> None:
        super().__init__(words)
        self.is_of_all = is_of_all


class Bench:
    """Measures candidates in a child process; a context manager.

    Arguments:
        seconds: that code of a candidate may take; it is killed then. None takes what `SECONDS` says of the kind of device.
        plain_seconds: that anything else may take.
        memory_bytes: address space that the child may take beyond what it has after start-up; None allows the capacity of the
            device. On a GPU there is no limit, because its driver reserves far more than it uses.
    """

    def __init__(
        self,
        *,
        seconds: float | None = None,
        plain_seconds: float = PLAIN_SECONDS,
        memory_bytes: int | None = None,
    ) -> None:
        self._seconds = seconds
        self._plain_seconds = plain_seconds
        self._memory_bytes = memory_bytes
        self._target: Target | None = None  # of the child
        self._temporary = TemporaryFolder()
        self._folder = self._temporary.path
        self._child: MeasuringProcess | None = None
        self._answered = 0  # requests, by the child
        self._ahead = Ahead(self._folder)
        self._arrays: dict[int, tuple[Arrays, list[str]]] = {}
        self.starts = 0

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child, and what compiles for it, and remove their files."""
        self._ahead.end()
        self._end()
        self._temporary.remove()

    def begin(self, request: Request) -> None:
        """Begin to compile, beside whatever comes before the measurement, what it will be judged by.

        Raises:
            TemporaryFolderUnusable: its files cannot be written.
        """
        with written(self._folder):
            self._ahead.begin(request)

    def measure(self, request: Request) -> Measurement:
        """Make one measurement.

        Where the plain program does not run in a child that keeps other programs, it is tried once more in one that keeps none.

        Raises:
            PlainProgramFailed: the plain program does not run.
            TemporaryFolderUnusable: its files cannot be written.
        """
        kept = self._answered
        try:
            return self._answer(request)
        except BaseException as error:  # Ctrl-C too: what the child would answer belongs to no later request
            self._ahead.end()
            self._end()
            if not kept or not isinstance(error, PlainProgramFailed) or not error.is_of_all:
                raise
            log.info("%s; it is tried in a new process", error)
        return self.measure(request)

    def _answer(self, request: Request) -> Measurement:
        with written(self._folder):
            asked = self._encoded(request)
            place = request.target.with_options({})
            if self._child is not None and self._target != place:
                self._end()
            if self._child is None:
                memory = place.capacity if self._memory_bytes is None else self._memory_bytes
                self._child, self._target = MeasuringProcess(place, self._folder, memory), place
                self.starts += 1
        child = self._child
        stage, began = "plain", time.monotonic()
        usual = SECONDS.get(request.target.platform, SECONDS["cuda"])
        seconds = usual if self._seconds is None else self._seconds
        limits = {"candidate": seconds, "timing": 4 * seconds + request.timing_seconds}
        child.ask(asked, limits)
        self.begin(request)
        try:
            while True:
                answer = child.answer(limits.get(stage, self._plain_seconds))
                now = time.monotonic()
                log.debug("%s: %s took %.3f s", request.path[:40], stage, now - began)
                self._ahead.pause(is_paused=answer.get("stage") == "timing")
                if "stage" in answer:
                    stage, began = str(answer["stage"]), now
                elif "sketch" in answer and request.sketched is not None:
                    request.sketched(base64.b64decode(answer["sketch"]))
                elif "unwritable" in answer:
                    raise TemporaryFolderUnusable(str(answer["unwritable"]))
                elif "unusable" in answer:
                    raise PlainProgramFailed(
                        f"{request.subject} cannot be measured: {answer['unusable']}; "
                        "see whether `pcp run` runs it"
                    )
                else:
                    self._answered += 1
                    return _checked(request, answer)
        except Failed as ended:
            with contextlib.ExitStack() as ending:
                ending.callback(self._end)  # which frees the room
                check_room(self._folder)
            log.info("measuring %s ended while %s: %s", request.path, stage, ended)
            if stage in ("candidate", "timing"):
                return _measurement(request, failure=ended.failure, detail=str(ended))
            raise PlainProgramFailed(
                f"{request.subject} cannot be measured: {ended} with the plain program; see whether `pcp run` runs it",
                is_of_all=stage != "judging",
            ) from None
        finally:
            self._ahead.pause(is_paused=False)

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child, self._answered = None, 0
            for left in self._folder.glob("plain-*"):
                for path in left.iterdir():
                    path.unlink()
                left.rmdir()

    def _encoded(self, request: Request) -> bytes:
        if not isinstance(request.inputs, Recipe):
            request = replace(request, inputs=[self._written(arrays) for arrays in request.inputs])
        return encoded(request, self._folder)

    def _written(self, arrays: Arrays) -> list[str]:
        """Files of arrays, written once for one list, which is kept so that its identity stays its own."""
        known = self._arrays.get(id(arrays))
        if known is None:
            files = [
                str(self._folder / f"input-{len(self._arrays)}-{place}.npy") for place in range(len(arrays))
            ]
            for path, array in zip(files, arrays, strict=True):
                np.save(path, np.asarray(array), allow_pickle=False)
            known = self._arrays[id(arrays)] = (arrays, files)
        return known[1]


def _measurement(request: Request, **more: Any) -> Measurement:
    target = request.target
    return Measurement(
        request.subject.digest,
        request.path,
        hardware_of(target).digest,
        versions(target.backend),
        when=time.time(),
        **more,
    )


def _checked(request: Request, answer: dict[str, Any]) -> Measurement:
    """What a child says that it measured.

    Raises:
        Failed: the child says something else.
    """
    own = _measurement(request)
    try:
        return measurement_of(dict(answer["trial"]) | {name: getattr(own, name) for name in _OWN})
    except (InvalidRows, LookupError, TypeError, ValueError) as error:
        raise Failed(Failure.crash, f"it answered what is no measurement: {error}") from None
