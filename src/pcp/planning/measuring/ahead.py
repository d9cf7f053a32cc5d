"""Compiling what should be measured next, in processes beside the one that measures.

Compiled forms are kept on disk, where that one finds them, or waits until they are there. Threads will not do: with some
releases of XLA one process compiles one program at a time. On a processor compilers at once get in each other's way, and what
is timed in theirs; on a GPU they stand still while something is timed.

`python -m pcp.planning.measuring.ahead` is such a process.
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pcp.backends import Target
from pcp.backends.host_memory import host_capacity
from pcp.backends.processors import core_count
from pcp.errors import PCPError
from pcp.planning.judging.reference import Reference
from pcp.planning.measuring.child import Say, serve
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request, decoded, encoded
from pcp.planning.measuring.trial import FAILURES, compiled
from pcp.processes.child import ChildProcess, Start
from pcp.systems import end_with_parent

CORES, BYTES = 4, 16 << 30
"""Of the host, that each process should have, the one that measures, too."""
MOST = 3
LARGE = 1 << 16
"""Bytes of a program that takes longer to compile than a process takes to start."""
DEVICE_PART = "0.1"
"""Of the device's memory, that each may take to try what it compiles."""

_Job = tuple[bool, bytes]
"""Whether it is what results are held against that is compiled, or the candidate; and the request."""


def process_count(platform: str, cores: int, memory: int) -> int:
    """How many processes may compile beside the one that measures.

    Arguments:
        platform: what is compiled for.
        cores, memory: of the host, the latter in bytes.
    """
    return 0 if platform == "cpu" else max(0, min(MOST, cores // CORES - 1, memory // BYTES - 1))


class Ahead:
    """The processes that compile for one bench; what they cannot compile, the one that measures says.

    Arguments:
        folder: for programs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun: set[str] = set()
        self._processes: list[ChildProcess] = []

    def begin(self, request: Request) -> None:
        """Begin to compile what a request is judged by, and the candidates that it says should follow.

        Raises:
            OSError: their programs cannot be written.
        """
        if request.ahead is None or len(request.subject.bytecode) < LARGE:
            return
        self._processes = [each for each in self._processes if not each.has_ended]
        count = process_count(request.target.platform, core_count(), host_capacity()) - len(self._processes)
        if count <= 0:
            return
        jobs = self._jobs(request)
        processes: list[ChildProcess] = []
        for number, job in enumerate(jobs):  # the first compile while the next are made
            if number < count:
                processes.append(ChildProcess(Start.of(__name__, XLA_PYTHON_CLIENT_MEM_FRACTION=DEVICE_PART)))
                place = request.target.with_options({})
                processes[-1].send(place, str(self._folder), request.target.capacity)
                self._processes.append(processes[-1])
            processes[number % count].send("", *job)
        for each in processes:
            each.send("")

    def _jobs(self, request: Request) -> Iterator[_Job]:
        """What was not begun yet, in the order in which it is needed."""
        if request.exact is not None and request.subject.digest not in self._begun:
            yield True, self._sent(request)
        self._begun |= {request.subject.digest, request.path}
        for each in request.ahead() if request.ahead is not None else ():
            if each.path not in self._begun and not each.is_foreign:
                self._begun.add(each.path)
                yield False, self._sent(each)

    def _sent(self, request: Request) -> bytes:
        """A request without the arguments that it is measured on."""
        return encoded(replace(request, inputs=Recipe()), self._folder)

    def pause(self, *, is_paused: bool) -> None:
        """Stand still while something is timed, or go on."""
        for each in self._processes:
            each.pause(is_paused=is_paused)

    def end(self) -> None:
        """End all processes."""
        for each in self._processes:
            each.end()
        self._processes.clear()


class _Compiler:
    """Compiles what it is asked for, until that is all."""

    def __init__(self, _: Target, __: Path, ___: Say, ____: int) -> None:
        end_with_parent()

    def answer(self, *job: Any) -> None:
        """Compile what a job says; whoever needs what cannot be compiled says why. No job ends the process."""
        if not job:
            sys.exit()
        is_reference, raw = job
        with contextlib.suppress(PCPError, OSError, *FAILURES):
            request = decoded(raw, len)
            if not is_reference:
                compiled(request)
            elif request.exact is not None:
                reference = Reference(request.exact, request.subject, request.target)
                for oracle in reference.surely_needed(request.judged_at):
                    _ = oracle.memory


if __name__ == "__main__":
    serve(_Compiler)
