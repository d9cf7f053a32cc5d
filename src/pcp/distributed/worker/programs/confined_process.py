"""A confined process that is asked to do things, and what it says. It may have been taken over: nothing that it says is
trusted further than its form (`sayings`), and whatever has another ends the process, never the Worker.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pcp.backends.cache import DEFAULT_LIMIT
from pcp.distributed.messages import FailureKind
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused
from pcp.distributed.sandbox import Policy
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
    read,
    wrong,
)
from pcp.distributed.worker.training.repetition import RepetitionRefused
from pcp.distributed.worker.training.trainer import LeaseRefused
from pcp.errors import PCPError
from pcp.planning.artifact import InvalidArtifact
from pcp.processes.child import ChildProcess, WroteTooMuch, printable

log = logging.getLogger("pcp.distributed.worker.programs")

_LONGEST_ANSWER = 4 << 20
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
        self._aside, self._offer = aside, offer
        limits = {"PCP_CACHE_LIMIT": str(min(DEFAULT_LIMIT, offer.disk_bytes // 4))}
        if offer.memory_bytes is not None:
            limits["PCP_MEMORY_LIMIT"] = str(offer.memory_bytes)
        start = policy.start(module)
        self._number = 0
        self._why: ProgramStopped | None = None
        self._child = ChildProcess(
            replace(start, environment={**start.environment, **limits}),
            longest_line=_LONGEST_ANSWER,
            most_written=offer.disk_bytes,
            aside=self._is_aside,
            noise=_Log().take,
        )

    @property
    def ended(self) -> bool:
        return self._child.has_ended

    def end(self, why: ProgramStopped) -> None:
        """End it, with all that it started and that stayed in its session."""
        self._why = self._why or why
        self._child.end()

    def wake(self) -> None:
        """Have who waits for an answer ask whether to give up."""
        self._child.wake()

    def send(self, *words: Any) -> None:
        """Send a request, without waiting until it is read. A process that has died is noticed when it is asked."""
        self._child.send(*words)

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

        def look() -> None:
            nonlocal told
            if not told and aborted():
                told = True
                self.send("abort", self._number)

        while True:
            try:
                said = self._next(look)
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
                raise self.died() from None
            return self._checked(answer, raises)

    def _next(self, look: Callable[[], None]) -> Said:
        """What it says next. Raises ProgramStopped once it has ended."""
        try:
            line = self._child.line(look=look)
        except WroteTooMuch as error:
            words = f"the files of the run take {error.written} bytes; of what --disk offers they may take"
            self.end(ProgramStopped(FailureKind.DISK, f"{words} {self._offer.disk_bytes}"))
            raise self.died() from None
        if line is None:
            raise self.died()
        return read(line)

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

    def died(self) -> ProgramStopped:
        """Why it ended."""
        if self._why is None:
            death = self._child.death()
            kind = FailureKind.MEMORY if death.is_out_of_memory else FailureKind.CRASH
            # Whoever ended it meanwhile has said why.
            self._why = self._why or ProgramStopped(
                kind, f"the process that runs programs ended with {death}"
            )
        return self._why

    def _is_aside(self, line: bytes) -> bool:
        """Take in what it says of a lease; whatever that is, the process is ended at worst. The rest is not looked at here."""
        try:
            said = read(line)
            if said.lease is None:
                return False
            # What is said of a lease that nobody waits for is not looked at.
            self._aside(
                said.lease, lambda: self._checked(look_at(said, (Trouble, Bug, Done)), ComputationFailed)
            )
        except SaidWrong as error:
            self.end(ProgramStopped(FailureKind.CRASH, str(error)))
        except Exception as error:
            log.exception("what the process that runs programs said could not be taken in")
            words = f"what the process that runs programs said could not be taken in: {error!r}"
            self.end(ProgramStopped(FailureKind.CRASH, printable(words, LONGEST_LINE)))
        return True


class _Log:
    """Logs what the process writes beside its answers, but no more than some lines a second."""

    def __init__(self) -> None:
        self._second, self._lines = 0, 0

    def take(self, words: str) -> None:
        """Log a line, or count it."""
        if (now := int(time.monotonic())) != self._second:
            if self._lines > LINES_A_SECOND:
                log.info("%d lines more of the process that runs programs", self._lines - LINES_A_SECOND)
            self._second, self._lines = now, 0
        self._lines += 1
        if self._lines <= LINES_A_SECOND:
            log.info("%s", words)
