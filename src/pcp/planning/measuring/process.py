"""Processes in which code from outside may run, as seen by their parents: whatever becomes of them is a kind of failure."""

import functools
import math
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from pcp.backends import MemoryUse, Target
from pcp.backends.base import Buffer
from pcp.errors import PCPError
from pcp.ir import TensorSpec
from pcp.planning.measuring.kept_results import loaded
from pcp.planning.measuring.measurement import Failed, Failure
from pcp.planning.measuring.request import Request, encoded
from pcp.planning.measuring.significance import undisturbed
from pcp.processes.child import ChildProcess, Start, TookTooLong, said_in
from pcp.temporary import check_room

Array = np.ndarray[Any, Any]

TIMED = ("plain", "plain_again", "own", "own_again")
"""What is timed on operands not seen before, and on the same again."""
SKIPS = 2.0
"""How much faster calls on repeated operands may be, before that is taken for no accident."""
_MOST, _TIMES, _LONG = 1.0, 3, 0.3
_START_SECONDS = 120.0
_MEMORY = {each.name for each in fields(MemoryUse)}


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
            Failed: it died, said something else, or said nothing for too long and was killed.
        """
        try:
            line = self._child.line(seconds)
        except TookTooLong as error:
            raise Failed(Failure.timeout, str(error)) from None
        if line is None:
            death = self._child.death()
            raise Failed(
                Failure.out_of_memory if death.is_out_of_memory else Failure.crash, f"it ended with {death}"
            )
        answer = said_in(line)
        if answer.get("token") == self._token:
            return answer
        self.kill()
        raise Failed(Failure.crash, f"it answered {line.strip()[:80]!r}")

    def kill(self) -> None:
        """End the process, and all that it started and that stayed in its session."""
        self._child.end()


class Apart:
    """A process for code from outside, apart from what judges it; kept for further candidates, and started anew where it died.

    Such code may do anything to its process: change what compares, what is right, or memory that is not its own. So it is given
    arguments in files, and hands over results in files. What its process says is looked at as what any stranger says.

    Arguments:
        target: without options.
        folder, memory_bytes, in_group: as of `MeasuringProcess`.
    """

    def __init__(self, target: Target, folder: Path, memory_bytes: int, *, in_group: bool = False) -> None:
        self.folder = folder
        self._start = functools.partial(
            MeasuringProcess, target, folder, memory_bytes, "pcp.planning.measuring.runner", in_group=in_group
        )
        self._process: MeasuringProcess | None = None

    def ask(self, seconds: float, *words: Any) -> dict[str, Any]:
        """What it answers.

        Raises:
            Failed: it died, or took too long, or says that the candidate failed, and how.
            VerificationFailed: it does not start.
            TemporaryFolderUnusable: it died where no room is left for files.
        """
        try:
            if self._process is None:
                self._process = self._start()
                self._begin(self._process)
            self._process.ask(*words)
            answer = self._process.answer(seconds)
        except BaseException:  # Ctrl-C too: what it would answer belongs to no later request
            self.end()
            check_room(self.folder)
            raise
        if "failure" in answer:
            if answer["failure"] not in list(Failure):
                raise self.lies(
                    f"its process says that it failed by {answer['failure']!r:.40}, which is no failure"
                )
            raise Failed(Failure(answer["failure"]), str(answer.get("detail")))
        return answer

    def compiled(self, request: Request, limits: Mapping[str, float]) -> "Away":
        """A request's candidate, compiled there.

        Arguments:
            limits: seconds that its code may take, and that timing may.

        Raises:
            Failed: it cannot be compiled.
        """
        return Away(self, request, limits, "load", encoded(request, self.folder))

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def lies(self, words: str) -> Failed:
        """The child said what no child says: the process is ended, as it may say more."""
        self.end()
        return Failed(Failure.crash, words)

    @staticmethod
    def _begin(process: MeasuringProcess) -> None:
        process.ask("start")
        try:
            process.answer(_START_SECONDS)
        except Failed as ended:
            raise VerificationFailed(
                f"the process that kernels are tried in does not start: {ended}; see what `pcp doctor` says"
            ) from None


class Away:
    """A compiled candidate that is in another process; an `Executable`.

    Arguments:
        limits: as in `Apart.compiled`.
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
        if (
            not isinstance(memory, dict)
            or set(memory) != _MEMORY
            or not all(isinstance(each, int) and 0 <= each < 1 << 63 for each in memory.values())
        ):
            raise apart.lies(f"its process says that it takes {str(memory)[:80]}; expected bytes")
        self.memory = MemoryUse(**memory)

    def donating(self) -> "Away":
        """The same, given the memory of its operands."""
        return Away(self._apart, self._request, self._limits, "donate")

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results for flat arguments; see `Executable`.

        Raises:
            Failed: it failed.
        """
        [results], changed = self.calls([buffers], [0])
        if changed:
            raise Failed(
                Failure.changes_operands,
                "an operand, or the memory around it, was something else after the call; write to results only",
            )
        place = self._request.target.place
        return [place(array, spec) for array, spec in zip(results, self._request.returned, strict=True)]

    def calls(
        self, arguments: Sequence[Sequence[Any]], order: Sequence[int], seconds: float = math.inf
    ) -> tuple[list[list[Array]], list[int]]:
        """The results of every call that was made, and which lists of arguments were changed by one.

        Arguments:
            arguments: lists of flat arguments.
            order: which list is taken in which call.
            seconds: after which no further call is begun.

        Raises:
            Failed: it failed.
        """
        specs, folder = self._request.returned, self._apart.folder
        files = [folder / f"apart-result-{place}.npy" for place in range(len(specs))]
        is_main = threading.current_thread() is threading.main_thread()
        for file in files:
            file.unlink(missing_ok=True)
        answer = self._apart.ask(
            self._limits["candidate"],
            "run",
            self._which,
            self._written(arguments),
            list(map(str, files)),
            list(order),
            seconds,
            is_main,
        )
        match answer:
            case {"calls": int(count), "changed": list(changed)} if 0 < count <= len(order) and all(
                each in order for each in changed
            ):
                columns = [self._read(file, spec, count) for file, spec in zip(files, specs, strict=True)]
                return [list(each) for each in zip(*columns, strict=True)], changed
        said = {name: answer.get(name) for name in ("calls", "changed")}
        raise self._apart.lies(f"its process says {str(said)[:80]}; expected at most {len(order)} calls")

    def times(self, buffers: Sequence[Buffer]) -> list[list[float]]:
        """Seconds of calls of it and of the plain program in turn, as they were measured there.

        Raises:
            Failed: it failed.
        """
        said: Any = self._apart.ask(self._limits["timing"], "time", self._written([buffers])).get("times")
        match said:
            case [list(mine), list(plain)] if all(map(_is_time, [*mine, *plain])):
                return [mine, plain]
        raise self._no_times(said)

    def times_repeated(self, arrays: Sequence[Array], least: float, most: float) -> dict[str, list[float]]:
        """Seconds of calls of the plain program and of it, on operands not seen before and on the same again, by `TIMED`.

        Arguments:
            least, most: seconds to spend on it, unless a few calls take longer.

        Raises:
            Failed: it failed.
        """
        files = self._written([arrays])
        said: Any = self._apart.ask(self._limits["timing"], "time_repeated", files, least, most).get("times")
        if not isinstance(said, dict) or set(said) != set(TIMED):
            raise self._no_times(said)
        if not all(isinstance(each, list) and each and all(map(_is_time, each)) for each in said.values()):
            raise self._no_times(said)
        return said

    def check_repeating(self, buffers: Sequence[Buffer]) -> None:
        """Compare how much it gains from repeated operands with what the plain program does.

        On a busy machine it may seem to gain for a short time; then it is timed for longer, and the least gain counts.

        Raises:
            Failed: it skips work, or fails.
        """
        gains: list[float] = []
        while len(gains) < _TIMES and (not gains or gains[-1] > SKIPS):
            times = self.times_repeated(
                [np.asarray(each) for each in buffers], _LONG if gains else 0.0, _MOST
            )
            own, plain = (
                undisturbed(times[name]) / undisturbed(times[f"{name}_again"]) for name in ("own", "plain")
            )
            gains.append(own / max(1.0, plain))
        if min(gains) > SKIPS:
            detail = f"calls on the operands of the call before take 1/{min(gains):.1f} of the time of calls on others"
            raise Failed(Failure.skips_work, detail)

    def _no_times(self, said: Any) -> Failed:
        return self._apart.lies(f"its process says that it took {str(said)[:80]}; expected seconds")

    def _read(self, file: Path, spec: TensorSpec, count: int) -> Array:
        try:
            array = loaded(str(file), spec.dtype.numpy)
        except (OSError, ValueError, EOFError) as error:
            raise self._apart.lies(f"its process hands over no result: {error}") from None
        if array.shape != (count, *spec.shape) or array.dtype != spec.dtype.numpy:
            raise self._apart.lies(
                f"its process hands over {array.dtype}{list(array.shape)}; expected {count} of {spec}"
            )
        return array

    def _written(self, arguments: Sequence[Sequence[Any]]) -> list[str]:
        """Files, each with one argument of all lists."""
        files = []
        for place, arrays in enumerate(zip(*arguments, strict=True)):
            files.append(str(self._apart.folder / f"apart-{place}.npy"))
            whole = np.asarray(arrays[0])[None] if len(arrays) == 1 else np.stack(arrays)
            np.save(files[-1], whole, allow_pickle=False)
        return files


def _is_time(value: Any) -> bool:
    return type(value) is float and 0.0 < value < math.inf
