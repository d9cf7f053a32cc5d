"""A confined process that is asked to do things, and what it says. It may have been taken over: nothing that it says is
trusted further than its form (`sayings`), and whatever has another ends the process, never the Worker.
"""

import contextlib
import logging
import pickle
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from pcp.backends.cache import DEFAULT_LIMIT
from pcp.distributed.messages import FailureKind
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused
from pcp.distributed.sandbox import Policy, taken
from pcp.distributed.verification import ProgramRefused, VerificationCancelled
from pcp.distributed.worker.artifacts import ArtifactForeign
from pcp.distributed.worker.offer import Offer, ProgramStopped
from pcp.distributed.worker.programs.sayings import (
    ENDS,
    LONGEST_LINE,
    REMARKS,
    Aborted,
    Answer,
    Bug,
    Done,
    Remark,
    Said,
    SaidWrong,
    Trouble,
    look_at,
    printable,
    read,
    wrong,
)
from pcp.distributed.worker.training.repetition import RepetitionRefused
from pcp.distributed.worker.training.trainer import LeaseRefused
from pcp.errors import PCPError
from pcp.planning.artifact import InvalidArtifact
from pcp.systems import end_group, exit_in_words

log = logging.getLogger("pcp.distributed.worker.programs")

_POLL_SECONDS = 0.1
_DISK_SECONDS = 0.5
_LONGEST_ANSWER, _MOST_ANSWERS = 4 << 20, 16
LINES_A_SECOND = 100
"""Of what it writes beside its answers, for the log; those beyond are counted."""
_ERRORS: dict[str, type[PCPError]] = {
    each.__name__: each
    for each in (
        ArraysRefused,
        ArtifactForeign,
        InvalidArtifact,
        LeaseRefused,
        ProgramRefused,
        RepetitionRefused,
        VerificationCancelled,
    )
}
_OUT_OF_MEMORY = ("OutOfMemory", "MemoryError", "ProgramTooLarge")


class ComputationFailed(PCPError):
    """What was asked of the process that runs programs could not be done."""


class ProcessBug(ProgramStopped):
    """The process that runs programs raised what nobody foresaw; the log has its traceback, and the message its end."""

    def __init__(self, traceback: str) -> None:
        log.error("the process that runs programs failed:\n%s", traceback)
        last = traceback.strip().rpartition("\n")[2]
        super().__init__(FailureKind.CRASH, f"the process that runs programs failed: {last}")


class _Sign(Enum):
    """What stands for something else than words of the process."""

    AWAKE = "look up"
    AT_END = "it says nothing more"


class ConfinedProcess:
    """One process, and what it said that was not asked for yet.

    Arguments:
        module: what it runs.
        policy: how it is confined.
        offer: what it may take.
        aside: told what it says of a lease while something else is asked of it: which, and what gives the answer or raises
            what it would have raised; in a thread of its own.
    """

    def __init__(
        self,
        module: str,
        policy: Policy,
        offer: Offer,
        aside: Callable[[int, Callable[[], Done]], None] = lambda _lease, _answer: None,
    ) -> None:
        self._aside = aside
        self._policy, self._offer = policy, offer
        environment = policy.environment()
        environment["PCP_CACHE_LIMIT"] = str(min(DEFAULT_LIMIT, offer.disk_bytes // 4))
        if offer.memory_bytes is not None:
            environment["PCP_MEMORY_LIMIT"] = str(offer.memory_bytes)
        self._child = subprocess.Popen(
            policy.command(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._said: queue.Queue[Said | _Sign] = queue.Queue(_MOST_ANSWERS)
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._number = 0
        self._why: ProgramStopped | None = None
        self._words = ""  # the last that it wrote beside its answers
        self._looked = time.monotonic()
        for target in (self._write, self._hear, self._log):
            threading.Thread(target=target, daemon=True).start()

    @property
    def ended(self) -> bool:
        return self._why is not None or self._child.poll() is not None

    def end(self, why: ProgramStopped) -> None:
        """End it, with all that it started and that stayed in its session."""
        self._why = self._why or why
        end_group(self._child)
        self._child.wait()
        self._requests.put(None)
        with contextlib.suppress(queue.Empty):
            while True:
                self._said.get_nowait()
        self.wake()

    def wake(self) -> None:
        with contextlib.suppress(queue.Full):  # who waits is awake then
            self._said.put_nowait(_Sign.AWAKE)

    def send(self, *words: Any) -> None:
        """Send a request, without waiting until it is read. A process that has died is noticed when it is asked."""
        self._requests.put(pickle.dumps(words))

    def ask(
        self,
        kind: str,
        *arguments: Any,
        aborted: Callable[[], bool],
        raises: type[Exception],
        answers: Sequence[type],
        meanwhile: Callable[[Remark], None] | None = None,
    ) -> Any:
        """Have it do something, and wait for that; what it says before it is done goes to `meanwhile`.

        Arguments:
            aborted: asked again and again whether to give up.
            raises: what is raised then.
            answers: the forms of what it may say when it is done.

        Returns:
            One of these.

        Raises:
            ProgramStopped: it died, was ended, or said what it must not.
            PCPError: what it says that it raised.
        """
        self._number += 1
        told = False
        self.send(kind, self._number, *arguments)
        while True:
            if not told and aborted():
                told = True
                self.send("abort", self._number)
            self._look_at_disk()
            said = self._next()
            if isinstance(said, Said):
                try:
                    if meanwhile is not None and said.number is None:
                        meanwhile(look_at(said, REMARKS))
                        continue
                    if said.number != self._number:
                        raise wrong(said.line, f"expected an answer to request {self._number}")
                    answer = look_at(said, (*ENDS, *answers))
                    if isinstance(answer, Aborted) and not told:
                        raise wrong(said.line, "nobody asked it to give up")
                except SaidWrong as error:
                    self.end(ProgramStopped(FailureKind.CRASH, str(error)))
                    continue
                return self._checked(answer, raises)

    def _next(self) -> "Said | None":
        """What it said next; None where that is nothing yet. Raises ProgramStopped once it has ended."""
        try:
            said = self._said.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            said = _Sign.AWAKE
        if said is _Sign.AT_END:
            raise self.died()
        if isinstance(said, Said):
            return said
        if self._why is not None:
            raise self._why
        return None

    def _checked(self, answer: Answer, raises: type[Exception]) -> Any:
        match answer:
            case Aborted():
                raise raises("the work was given up")
            case Bug(traceback):
                self.end(ProcessBug(traceback))
                raise self.died()
            case Trouble(name, reason):
                if name in _OUT_OF_MEMORY:
                    raise ProgramStopped(FailureKind.MEMORY, reason)
                if name == "StoreFull":
                    raise ProgramStopped(FailureKind.DISK, reason)
                raise _ERRORS.get(name, ComputationFailed)(reason)
        return answer

    def _look_at_disk(self) -> None:
        now = time.monotonic()
        if now - self._looked < _DISK_SECONDS:
            return
        self._looked = now
        found = taken(self._policy.written, self._child.pid)
        if found > self._offer.disk_bytes:
            self.end(
                ProgramStopped(
                    FailureKind.DISK,
                    f"the files of the run take {found} bytes; of what --disk offers they may take "
                    f"{self._offer.disk_bytes}",
                )
            )

    def died(self) -> ProgramStopped:
        """Why it ended."""
        code = self._child.wait()
        if self._why is not None:
            return self._why
        words = f"the process that runs programs ended with {exit_in_words(code)}"
        full = any(sign in self._words for sign in ("bad_alloc", "RESOURCE_EXHAUSTED", "emory"))
        self._why = ProgramStopped(
            FailureKind.MEMORY if full or code == -signal.SIGKILL else FailureKind.CRASH,
            f"{words}: {self._words}" if self._words else words,
        )
        return self._why

    def _write(self) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(OSError), self._child.stdin as file:  # closing writes what is left
            while (raw := self._requests.get()) is not None:
                file.write(len(raw).to_bytes(8, "little") + raw)
                file.flush()

    def _hear(self) -> None:
        """Take in what it says, until it ends. Whatever that is, this thread hears on: it ends the process at worst."""
        assert self._child.stdout is not None
        with self._child.stdout as file:
            while line := file.readline(_LONGEST_ANSWER):
                if self._why is not None:
                    continue
                try:
                    self._take(read(line))
                except SaidWrong as error:
                    self.end(ProgramStopped(FailureKind.CRASH, str(error)))
                except Exception as error:
                    log.exception("what the process that runs programs said could not be taken in")
                    words = f"what the process that runs programs said could not be taken in: {error!r}"
                    self.end(ProgramStopped(FailureKind.CRASH, printable(words, LONGEST_LINE)))
        if self._why is None:
            self._said.put(_Sign.AT_END)

    def _take(self, said: Said) -> None:
        if said.lease is None:
            self._said.put(said)
            return
        # What is said of a lease that nobody waits for is not looked at.
        self._aside(said.lease, lambda: self._checked(look_at(said, (Trouble, Bug, Done)), ComputationFailed))

    def _log(self) -> None:
        assert self._child.stderr is not None
        second, lines = 0, 0
        with self._child.stderr as file:
            while line := file.readline(LONGEST_LINE):
                if not (words := printable(line.decode(errors="replace"), LONGEST_LINE).strip()):
                    continue
                self._words = words
                if (now := int(time.monotonic())) != second:
                    if lines > LINES_A_SECOND:
                        log.info("%d lines more of the process that runs programs", lines - LINES_A_SECOND)
                    second, lines = now, 0
                lines += 1
                if lines <= LINES_A_SECOND:
                    log.info("%s", words)
