"""Processes in which code from outside may run, as seen by their parents: whatever becomes of them is a kind of failure."""

import functools
import math
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from pcp.backends import MemoryUse, Target
from pcp.backends.base import Buffer
from pcp.errors import PCPError
from pcp.ir import TensorSpec
from pcp.planning.measuring.kept_results import loaded
from pcp.planning.measuring.measurement import Failure
from pcp.planning.measuring.request import Request, encoded
from pcp.planning.measuring.timing import Runnable
from pcp.processes.child import ChildProcess, Start, TookTooLong, said_in
from pcp.temporary import check_room

_START_SECONDS = 120.0
_MEMORY = {each.name for each in fields(MemoryUse)}


class ChildEnded(Exception):
    """The child died or was killed; `failure` says what that is for a candidate."""

    def __init__(self, failure: Failure, words: str) -> None:
        super().__init__(words)
        self.failure = failure


class VerificationFailed(PCPError):
    """The process for kernels from outside does not start; that is no fault of a kernel."""


class MeasuringProcess:
    """One process that measures.

    Arguments:
        target: that it compiles for.
        folder: that it may write to.
        memory_bytes: address space that it may take beyond what it has after start-up.
        module: what it runs.
        in_group: whether it ends with the group of this process, too.
    """

    def __init__(
        self,
        target: Target,
        folder: Path,
        memory_bytes: int,
        module: str = "pcp.planning.measuring.child",
        *,
        in_group: bool = False,
    ) -> None:
        self._child = ChildProcess(Start.of(module), in_group=in_group)
        self._token = ""
        self._child.send(target, str(folder), memory_bytes)

    def ask(self, *words: Any) -> None:
        """Send a request, with a token that its answers bear, so that nothing else is taken for one."""
        self._token = secrets.token_hex(8)
        self._child.send(self._token, *words)

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next line that it says.

        Raises:
            ChildEnded: it died, said something else, or said nothing for too long and was killed.
        """
        try:
            line = self._child.line(seconds)
        except TookTooLong as error:
            raise ChildEnded(Failure.timeout, str(error)) from None
        if line is None:
            death = self._child.death()
            raise ChildEnded(
                Failure.out_of_memory if death.is_out_of_memory else Failure.crash, f"it ended with {death}"
            )
        answer = said_in(line)
        if answer.get("token") == self._token:
            return answer
        self.kill()
        raise ChildEnded(Failure.crash, f"it answered {line.strip()[:80]!r}")

    def kill(self) -> None:
        """End the process, and all that it started and that stayed in its session."""
        self._child.end()


class KeptProcess:
    """A process for candidates, kept for further ones; started when it is needed, and anew where it died.

    Arguments:
        target: without options.
        folder, memory_bytes, module, in_group: as of `MeasuringProcess`.
    """

    def __init__(
        self, target: Target, folder: Path, memory_bytes: int, module: str, *, in_group: bool = False
    ) -> None:
        self.folder = folder
        self._start = functools.partial(
            MeasuringProcess, target, folder, memory_bytes, module, in_group=in_group
        )
        self._process: MeasuringProcess | None = None

    def ask(self, seconds: float, *words: Any) -> dict[str, Any]:
        """What it answers.

        Raises:
            ChildEnded: it died, or took too long.
            VerificationFailed: it does not start.
            TemporaryFolderUnusable: it died where no room is left for files.
        """
        try:
            if self._process is None:
                self._process = self._start()
                self._begin(self._process)
            self._process.ask(*words)
            return self._process.answer(seconds)
        except BaseException:  # Ctrl-C too: what it would answer belongs to no later request
            self.end()
            check_room(self.folder)
            raise

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    @staticmethod
    def _begin(process: MeasuringProcess) -> None:
        process.ask("start")
        try:
            process.answer(_START_SECONDS)
        except ChildEnded as ended:
            raise VerificationFailed(
                f"the process that kernels are tried in does not start: {ended}; see what `pcp doctor` says"
            ) from None


class Apart(KeptProcess):
    """A process for code from outside, apart from what judges it.

    Such code may do anything to its process: change what compares, what is right, or memory that is not its own. So it is given
    arguments in files, and hands over results in files. What its process says is looked at as what any stranger says.
    """

    def runnable(self, request: Request, limits: Mapping[str, float]) -> Runnable:
        """A request's candidate, compiled there.

        Arguments:
            limits: seconds that its code may take, and that timing may.

        Raises:
            ChildEnded: it cannot be compiled.
        """
        executable = Away(self, request, limits, "load", encoded(request, self.folder))
        return Runnable(executable, [replace(entry, alias=None) for entry in request.subject.arguments])

    def ask(self, seconds: float, *words: Any) -> dict[str, Any]:
        """As of any child process; it raises ChildEnded also where the child says that the candidate failed, and how."""
        answer = super().ask(seconds, *words)
        if "failure" in answer:
            is_one = answer["failure"] in list(Failure)
            failure = Failure(answer["failure"]) if is_one else Failure.crash
            raise ChildEnded(failure, str(answer.get("detail")))
        return answer

    def lies(self, words: str) -> ChildEnded:
        """The child said what no child says: the process is ended, as it may say more."""
        self.end()
        return ChildEnded(Failure.crash, words)


class Away:
    """A compiled candidate that is in another process; an `Executable`.

    Arguments:
        limits: as in `Apart.runnable`.
        which: of the forms that it has there, which are called by what has them compiled.
        words: that this is told.
    """

    def __init__(
        self, apart: Apart, request: Request, limits: Mapping[str, float], which: str, *words: Any
    ) -> None:
        self._apart, self._request, self._limits, self._which = apart, request, limits, which
        answer = apart.ask(limits["candidate"], which, *words)
        self.may_donate = answer.get("may_donate") is True
        memory = answer.get("memory")
        if not isinstance(memory, dict) or set(memory) != _MEMORY or not all(map(_is_size, memory.values())):
            raise apart.lies(f"its process says that it takes {str(memory)[:80]}; expected bytes")
        self.memory = MemoryUse(**memory)

    def donating(self) -> "Away":
        """The same, given the memory of its operands."""
        return Away(self._apart, self._request, self._limits, "donate")

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results for flat arguments; see `Executable`.

        Raises:
            ChildEnded: it failed.
        """
        results = self._request.subject.results
        folder = self._apart.folder
        files = [folder / f"apart-result-{place}.npy" for place in range(len(results))]
        is_main = threading.current_thread() is threading.main_thread()
        for file in files:
            file.unlink(missing_ok=True)
        self._apart.ask(
            self._limits["candidate"],
            "run",
            self._which,
            self._written(buffers),
            list(map(str, files)),
            is_main,
        )
        target = self._request.target
        pairs = zip(files, results, strict=True)
        return [target.place(self._read(file, entry.spec), entry.spec) for file, entry in pairs]

    def times(self, buffers: Sequence[Buffer]) -> list[list[float]]:
        """Seconds of calls of it and of the plain program in turn, as they were measured there.

        Raises:
            ChildEnded: it failed.
        """
        said: Any = self._apart.ask(self._limits["timing"], "time", self._written(buffers)).get("times")
        match said:
            case [list(mine), list(plain)] if all(map(_is_time, [*mine, *plain])):
                return [mine, plain]
        raise self._apart.lies(f"its process says that it took {str(said)[:80]}; expected seconds")

    def _read(self, file: Path, spec: TensorSpec) -> Any:
        try:
            array = loaded(str(file), spec.dtype.numpy)
        except (OSError, ValueError, EOFError) as error:
            raise self._apart.lies(f"its process hands over no result: {error}") from None
        if array.shape != spec.shape or array.dtype != spec.dtype.numpy:
            raise self._apart.lies(
                f"its process hands over {array.dtype}{list(array.shape)}; expected {spec}"
            )
        return array

    def _written(self, buffers: Sequence[Buffer]) -> list[str]:
        files = [str(self._apart.folder / f"apart-{place}.npy") for place in range(len(buffers))]
        for file, buffer in zip(files, buffers, strict=True):
            np.save(file, np.asarray(buffer), allow_pickle=False)
        return files


def _is_time(value: Any) -> bool:
    return type(value) is float and 0.0 < value < math.inf


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << 63
