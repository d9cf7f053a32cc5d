"""Measuring in a child process: what crashes, hangs, eats memory or returns garbage becomes a typed failure.

A Bench keeps one child over many requests, because starting one takes a second or two, and starts another where that one died.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from pcp import backends
from pcp.backends import Device
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.planning.hardware import hardware_of, versions
from pcp.planning.measurement import Failure, Measurement
from pcp.planning.random_inputs import Recipe
from pcp.planning.request import Arrays, Request

log = logging.getLogger("pcp.planning.bench")

SECONDS = 60.0
"""For the code of one candidate: compiling, and each call outside of timing."""
PLAIN_SECONDS = 1800.0
"""For what is not the candidate's fault: the plain program, float64, judging."""
_LONGEST_ANSWER = 1 << 20
_LONGEST_WORDS = 2000
_OUT_OF_MEMORY_WORDS = ("bad_alloc", "RESOURCE_EXHAUSTED", "Out of memory", "out of memory", "MemoryError")

Progress = Callable[[int, int, Measurement], object]
"""Called after every measurement with how many are done, how many there are, and the measurement."""


class PlainProgramFailed(PCPError):
    """Nothing can be measured, because the plain program does not run; that is no fault of a candidate."""


class Bench:
    """Measures candidates in a child process; a context manager.

    Arguments:
        device: where everything runs.
        seconds: that code of a candidate may take; it is killed then.
        plain_seconds: that anything else may take.
        memory_bytes: address space that the child may take beyond what it has after start-up; None sets no limit.
    """

    def __init__(
        self,
        device: str | Device | None = None,
        *,
        seconds: float = SECONDS,
        plain_seconds: float = PLAIN_SECONDS,
        memory_bytes: int | None = None,
    ) -> None:
        self.device = backends.device(device)
        self._hardware = hardware_of(self.device).digest
        self._seconds, self._plain_seconds = seconds, plain_seconds
        self._memory_bytes = memory_bytes
        self._temporary = tempfile.TemporaryDirectory(prefix="pcp-bench-", ignore_cleanup_errors=True)
        self._folder = Path(self._temporary.name)
        self._child: _Child | None = None
        self._arrays: dict[int, tuple[Arrays, list[str]]] = {}
        self.starts = 0

    def __enter__(self) -> "Bench":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child and remove its files."""
        self._end()
        self._temporary.cleanup()

    def measure(self, request: Request) -> Measurement:
        """Make one measurement.

        Raises:
            PlainProgramFailed: the plain program does not run.
        """
        words = json.dumps(self._described(request))
        try:
            trial = self._answer(words, request)
        except BaseException:  # Ctrl-C too: what the child would answer belongs to no later request
            self._end()
            raise
        return Measurement(
            request.subject.digest, request.path, self._hardware, versions(), when=time.time(), **trial
        )

    def _answer(self, words: str, request: Request) -> dict[str, Any]:
        if self._child is None:
            self._child = _Child(self.device, self._folder, self._memory_bytes)
            self.starts += 1
        child = self._child
        child.send(words)
        stage = "plain"
        limits = {"candidate": self._seconds, "timing": 4 * self._seconds + request.timing_seconds}
        try:
            while True:
                answer = child.answer(limits.get(stage, self._plain_seconds))
                if "stage" in answer:
                    stage = str(answer["stage"])
                elif "unusable" in answer:
                    raise PlainProgramFailed(
                        f"{request.subject} cannot be measured: {answer['unusable']}; "
                        "see whether `pcp run` runs it"
                    )
                else:
                    return _checked(answer["trial"])
        except _ChildEnded as ended:
            self._end()
            log.info("measuring %s ended while %s: %s", request.path, stage, ended)
            if stage in ("candidate", "timing"):
                return {"failure": ended.failure, "detail": str(ended)}
            raise PlainProgramFailed(
                f"{request.subject} cannot be measured: {ended} with the plain program; see whether `pcp run` runs it"
            ) from None

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None
            for left in self._folder.glob("plain-*"):
                for path in left.iterdir():
                    path.unlink()
                left.rmdir()

    def _described(self, request: Request) -> dict[str, Any]:
        candidate = request.candidate
        return {
            "subject": self._stored(request.subject),
            "exact": None if request.exact is None else self._stored(request.exact),
            "candidate": (
                {"program": self._stored(candidate)}
                if isinstance(candidate, Program)
                else {"python": os.path.abspath(candidate.file), "function": candidate.function}
            ),
            "inputs": self._inputs(request.inputs),
            "options": dict(request.options),
            "tolerance": request.tolerance,
            "exact_inputs": request.exact_inputs,
            "calls": request.calls,
            "timing_seconds": request.timing_seconds,
        }

    def _stored(self, program: Program) -> str:
        path = self._folder / f"{hashlib.sha256(program.bytecode).hexdigest()}.mlirbc"
        if not path.exists():
            path.write_bytes(program.bytecode)
        return str(path)

    def _inputs(self, inputs: Recipe | Sequence[Arrays]) -> dict[str, Any]:
        if isinstance(inputs, Recipe):
            return {
                "seed": inputs.seed,
                "sets": inputs.sets,
                "ranges": [list(each) for each in inputs.ranges],
                "warm_calls": inputs.warm_calls,
            }
        return {"files": [self._written(arrays) for arrays in inputs]}

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


def measure(
    requests: Sequence[Request],
    device: str | Device | None = None,
    *,
    seconds: float = SECONDS,
    memory_bytes: int | None = None,
    progress: Progress | None = None,
) -> list[Measurement]:
    """Measure several candidates, one after another, in one child process or as many as die.

    Arguments:
        requests: what to measure; those of one subject are best next to each other.
        device: where.
        seconds, memory_bytes: limits of each candidate; see `Bench`.
        progress: called after each.

    Raises:
        PlainProgramFailed: a plain program does not run.
    """
    made = []
    with Bench(device, seconds=seconds, memory_bytes=memory_bytes) as bench:
        for count, request in enumerate(requests, 1):
            made.append(bench.measure(request))
            if progress is not None:
                progress(count, len(requests), made[-1])
    return made


class _ChildEnded(Exception):
    """The child died or was killed; `failure` says what that is for a candidate."""

    def __init__(self, failure: Failure, words: str) -> None:
        super().__init__(words)
        self.failure = failure


class _Child:
    """One process that measures, and what it said that was not asked for yet."""

    def __init__(self, device: Device, folder: Path, memory_bytes: int | None) -> None:
        self._noise = open(folder / "child.log", "w+b")  # noqa: SIM115  (closed by kill)
        self._process = subprocess.Popen(
            # -P: a folder that happens to be the current one must not shadow modules.
            [sys.executable, "-P", "-m", "pcp.planning.measuring"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            env=os.environ | _environment(),
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        self._left = b""
        self.send(json.dumps({"device": str(device), "folder": str(folder), "memory_bytes": memory_bytes}))

    def send(self, words: str) -> None:
        """Send a line. A child that has died is noticed when it is asked for an answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(words.encode() + b"\n")
            self._process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next line that it says.

        Raises:
            _ChildEnded: it died, said something else, or said nothing for too long and was killed.
        """
        for line in self._lines(time.monotonic() + seconds):
            try:
                answer = json.loads(line)
            except ValueError:
                answer = None
            if isinstance(answer, dict) and {"stage", "unusable", "trial"} & answer.keys():
                return answer
            self.kill()
            raise _ChildEnded(Failure.crash, f"it answered {line[:80]!r}")
        if self._process.poll() is None:
            self.kill()
            raise _ChildEnded(Failure.timeout, f"it took more than {seconds:g} s and was killed")
        raise self._ended()

    def kill(self) -> None:
        """End the process, and all that it started and that stayed in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._noise):
            assert file is not None
            with contextlib.suppress(OSError):  # a request that was never read
                file.close()

    def _lines(self, deadline: float) -> Iterator[bytes]:
        """At most one line; none if the time is up or the process ended."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._left:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return
                chunk = os.read(self._process.stdout.fileno(), 1 << 16)
                self._left += chunk
                if not chunk or len(self._left) > _LONGEST_ANSWER:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(max(0.0, deadline - time.monotonic()))
                    return
        line, _, self._left = self._left.partition(b"\n")
        yield line

    def _ended(self) -> _ChildEnded:
        code = self._process.returncode
        size = self._noise.seek(0, os.SEEK_END)
        self._noise.seek(max(0, size - _LONGEST_WORDS))
        noise = self._noise.read().decode(errors="replace")
        said = " ".join("".join(c if c.isprintable() else " " for c in noise).split())[-300:]
        words = f"it ended with {_signal_or_code(code)}" + (f": {said}" if said else "")
        full = code == -signal.SIGKILL or any(sign in noise for sign in _OUT_OF_MEMORY_WORDS)
        return _ChildEnded(Failure.out_of_memory if full else Failure.crash, words)


def _environment() -> Mapping[str, str]:
    """Where this PCP is, installed or not; and a second client of a GPU must not take most of its memory."""
    source = str(Path(__file__).parents[2])
    paths = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def _signal_or_code(code: int) -> str:
    if code >= 0:
        return f"code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _checked(trial: dict[str, Any]) -> dict[str, Any]:
    """What a child measured, as fields of a Measurement. Candidates run in its process, so it is not trusted blindly."""
    failure = trial["failure"]
    made: dict[str, Any] = {
        "seconds": tuple(map(float, trial["seconds"])),
        "plain_seconds": tuple(map(float, trial["plain_seconds"])),
        "error": None if trial["error"] is None else float(trial["error"]),
        "plain_error": None if trial["plain_error"] is None else float(trial["plain_error"]),
        "peak_bytes": None if trial["peak_bytes"] is None else int(trial["peak_bytes"]),
        "failure": None if failure is None else Failure(failure),
        "detail": str(trial["detail"]),
    }
    times = [*made["seconds"], *made["plain_seconds"]]
    if not all(math.isfinite(each) and each > 0 for each in times):
        return {"failure": Failure.crash, "detail": "it answered times that are none"}
    return made
