"""Compiling what results are held against, in a process beside the one that measures, on the host of a GPU.

Compiled forms are kept on disk, where that one finds them, or waits until they are there. A thread will not do: with some
releases of XLA one process compiles one program at a time. On a processor two compilers get in each other's way. Candidates are
compiled where they are measured: XLA times products on a GPU to choose how they run, and would be disturbed in that.

`python -m pcp.planning.measuring.ahead` is such a process.
"""

import contextlib
import sys
from dataclasses import replace
from pathlib import Path

from pcp.backends import Target
from pcp.backends.host_memory import host_capacity
from pcp.backends.processors import core_count
from pcp.errors import PCPError
from pcp.planning.judging.reference import Reference
from pcp.planning.measuring.child import Say, serve
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request, decoded, encoded
from pcp.planning.measuring.trial import FAILURES
from pcp.processes.child import ChildProcess, Start
from pcp.systems import end_with_parent

CORES, BYTES = 8, 32 << 30
"""Of the host, that there should be for two processes."""
LARGE = 1 << 16
"""Bytes of a program that takes longer to compile than a process takes to start."""
DEVICE_PART = "0.1"
"""Of the device's memory, that such a process may take."""


def has_room(platform: str, cores: int, memory: int) -> bool:
    """Whether a process may compile beside the one that measures.

    Arguments:
        platform: what is compiled for.
        cores, memory: of the host, the latter in bytes.
    """
    return platform != "cpu" and cores >= CORES and memory >= BYTES


class Ahead:
    """The process that compiles for a bench; what it cannot compile, the one that measures says.

    Arguments:
        folder: for programs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._begun: set[str] = set()
        self._process: ChildProcess | None = None

    def begin(self, request: Request) -> None:
        """Begin to compile what a request is judged by, once for each program.

        Raises:
            OSError: the programs cannot be written.
        """
        program = request.subject
        if request.exact is None or program.digest in self._begun or len(program.bytecode) < LARGE:
            return
        self._begun.add(program.digest)
        if not has_room(request.target.platform, core_count(), host_capacity()):
            return
        self.end()
        self._process = ChildProcess(Start.of(__name__, XLA_PYTHON_CLIENT_MEM_FRACTION=DEVICE_PART))
        self._process.send(request.target.with_options({}), str(self._folder), request.target.capacity)
        self._process.send("", encoded(replace(request, inputs=Recipe()), self._folder))
        self._process.send("")

    def pause(self, *, is_paused: bool) -> None:
        """Stand still while something is timed, or go on."""
        if self._process is not None:
            self._process.pause(is_paused=is_paused)

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.end()
            self._process = None


class _Compiler:
    """Compiles what it is asked for, until that is all."""

    def __init__(self, _: Target, __: Path, ___: Say, ____: int) -> None:
        end_with_parent()

    def answer(self, raw: bytes = b"") -> None:
        """Compile what a request is judged by; whoever needs what cannot be compiled says why. Nothing ends the process."""
        if not raw:
            sys.exit()
        with contextlib.suppress(PCPError, OSError, *FAILURES):
            request = decoded(raw, len)
            if request.exact is not None:
                reference = Reference(request.exact, request.subject, request.target)
                for oracle in reference.surely_needed(request.judged_at):
                    _ = oracle.memory


if __name__ == "__main__":
    serve(_Compiler)
