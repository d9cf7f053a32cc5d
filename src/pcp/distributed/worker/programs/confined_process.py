"""A confined process that is asked to do things, and what it says. It may have been taken over: nothing that it says is
trusted further than its form.
"""

import contextlib
import json
import logging
import pickle
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from pcp.backends.cache import DEFAULT_LIMIT
from pcp.distributed.messages import (
    FailureKind,
)
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused
from pcp.distributed.sandbox import Policy, taken
from pcp.distributed.supervisor import describe
from pcp.distributed.verification import ProgramRefused, VerificationCancelled
from pcp.distributed.worker.artifacts import ArtifactForeign
from pcp.distributed.worker.offer import Offer, ProgramStopped
from pcp.distributed.worker.training.repetition import RepetitionRefused
from pcp.distributed.worker.training.trainer import LeaseRefused
from pcp.errors import PCPError
from pcp.planning.artifact import InvalidArtifact
from pcp.systems import end_group

log = logging.getLogger("pcp.distributed.worker.programs")

_POLL_SECONDS = 0.1
_DISK_SECONDS = 0.5
_LONGEST_ANSWER, _MOST_ANSWERS = 4 << 20, 16
LONGEST_LINE = 400
_OF_A_LEASE = b'{"lease"'
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


class ProcessBug(RuntimeError):
    """The process that runs programs raised what nobody foresaw; the message has its traceback."""


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
        aside: Callable[[int, Callable[[], dict[str, Any]]], None] = lambda _lease, _answer: None,
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
        self._said: queue.Queue[bytes | None] = queue.Queue(_MOST_ANSWERS)
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
            self._said.put_nowait(b"")

    def send(self, *words: Any) -> None:
        """Send a request, without waiting until it is read. A process that has died is noticed when it is asked."""
        self._requests.put(pickle.dumps(words))

    def ask(
        self,
        kind: str,
        *arguments: Any,
        aborted: Callable[[], bool],
        raises: type[Exception],
        meanwhile: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Have it do something, and wait for that; what it says before it is done goes to `meanwhile`."""
        self._number += 1
        told = False
        self.send(kind, self._number, *arguments)
        while True:
            if not told and aborted():
                told = True
                self.send("abort", self._number)
            self._look_at_disk()
            try:
                line = self._said.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if line == b"":
                if self._why is not None:
                    raise self._why
                continue
            if line is None:
                raise self.died()
            try:
                said = json.loads(line)
                if meanwhile is not None and "number" not in said:
                    meanwhile(said)
                    continue
                if said.pop("number") != self._number:
                    raise ValueError
                return self._checked(said, raises)
            except (ValueError, KeyError, TypeError, AttributeError):
                self.end(
                    ProgramStopped(FailureKind.CRASH, f"the process that runs programs said {line[:80]!r}")
                )

    def _checked(self, said: dict[str, Any], raises: type[Exception]) -> dict[str, Any]:
        if "aborted" in said:
            raise raises("the work was given up")
        if "bug" in said:
            raise ProcessBug(printable(str(said["bug"]), 10_000))
        if "error" in said:
            name, reason = str(said["error"]), printable(str(said["reason"]), 2_000)
            if name in _OUT_OF_MEMORY:
                raise ProgramStopped(FailureKind.MEMORY, reason)
            if name == "StoreFull":
                raise ProgramStopped(FailureKind.DISK, reason)
            raise _ERRORS.get(name, ComputationFailed)(reason)
        return said

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
        words = f"the process that runs programs ended with {describe(code)}"
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
        assert self._child.stdout is not None
        with self._child.stdout as file:
            while line := file.readline(_LONGEST_ANSWER):
                if self._why is not None:
                    continue
                if line.startswith(_OF_A_LEASE):
                    self._hear_aside(line)
                else:
                    self._said.put(line)
        if self._why is None:
            self._said.put(None)

    def _hear_aside(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            self._aside(int(said.pop("lease")), lambda: self._checked(said, ComputationFailed))
        except (ValueError, KeyError, TypeError, AttributeError):
            self.end(ProgramStopped(FailureKind.CRASH, f"the process that runs programs said {line[:80]!r}"))

    def _log(self) -> None:
        assert self._child.stderr is not None
        with self._child.stderr as file:
            while line := file.readline(LONGEST_LINE):
                if words := printable(line.decode(errors="replace"), LONGEST_LINE).strip():
                    self._words = words
                    log.info("%s", words)


def printable(text: str, longest: int) -> str:
    """What a process said that may have been taken over: shortened, and without what steers a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text[:longest])
