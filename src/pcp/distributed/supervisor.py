"""Keeps processes alive: starts them, starts them again where they die, ends them together.

Each child is in a session of its own, so that Ctrl-C reaches only the supervisor, which then decides; and each has the read
end of a pipe as its standard input, so that it notices (see `end_with_parent`) when the supervisor is gone without a word.
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pcp.distributed.wire.backoff import Backoff
from pcp.errors import PCPError
from pcp.systems import exit_in_words

log = logging.getLogger("pcp.distributed.supervisor")

UNUSABLE = 2
"""Exit code of a process that was given something wrong: starting it again would change nothing."""

FIRST_SECONDS, LONGEST_SECONDS = 1.0, 300.0
"""Bounds of the pauses of a patient supervisor, which double and are drawn at random below them."""

_LAST_BYTES = 4096


class ChildFailed(PCPError):
    """A process died again and again, or ended with a message that restarting would only repeat."""


@dataclass(frozen=True, slots=True)
class ChildEvent:
    """A child ended, and whether it was started again."""

    name: str
    code: int
    restarted: bool


@dataclass
class Child:
    """One process to keep alive.

    Arguments:
        name: for messages and for the file of its output.
        command: program and arguments.
        environment: variables set in addition to those of this process.
        process, starts: the last one, and when those of late were started.
        finished, given_up: whether it is not started again, and whether because it was given something wrong.
        backoff, due: how long it rests after a failure, and until when it does now.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    starts: list[float] = field(default_factory=list)
    finished: bool = False
    given_up: bool = False
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_SECONDS, LONGEST_SECONDS))
    due: float | None = None


class Supervisor:
    """Runs children until they finish.

    A child that exits with code 0 is finished; with code 2 it was given something wrong, which ends everything; any other
    end starts it again. The numbers of the processes that run stand in `processes.json`.

    A patient supervisor never gives up a child that fails: it starts it again after a pause, longer each time until it has run
    for a while. With code 2 only that child is over.

    Arguments:
        children: what to run.
        logs: folder for their output, one file each, and for `processes.json`.
        restarts: how many starts a child may have in any `window_seconds`.
        window_seconds: see above; long enough for a child that dies late in its start to be noticed.
        patient: see above; then there is no limit to restarts, and a child that ran for `window_seconds` has recovered.
    """

    def __init__(
        self,
        children: Sequence[Child],
        logs: Path,
        restarts: int = 5,
        window_seconds: float = 300.0,
        patient: bool = False,
    ) -> None:
        self.children = list(children)
        self._logs = logs
        self._restarts = restarts
        self._window = window_seconds
        self._patient = patient

    @property
    def processes_file(self) -> Path:
        """Where the numbers of the processes stand while they run."""
        return self._logs / "processes.json"

    def start(self) -> None:
        """Start every child."""
        self._logs.mkdir(parents=True, exist_ok=True)
        for child in self.children:
            self._start(child)
        self._write_processes()

    def poll(self) -> list[ChildEvent]:
        """Look after every child once.

        Returns:
            What ended since the last look.

        Raises:
            ChildFailed: a child cannot go on.
        """
        events = []
        for child in self.children:
            if child.due is not None:
                if time.monotonic() >= child.due:
                    self._start(child)
                    self._write_processes()
                continue
            code = None if child.process is None or child.finished else child.process.poll()
            if code is None:
                continue
            child.finished = code == 0
            self._close_pipe(child)
            if not child.finished and self._patient:
                self._let_rest(child, code)
            elif not child.finished:
                self._refuse_hopeless(child, code)
                log.warning("%s ended with %s; it is started again", child.name, exit_in_words(code))
                self._start(child)
            events.append(ChildEvent(child.name, code, not child.finished))
        if events:
            self._write_processes()
        return events

    def said_of(self, event: ChildEvent) -> str:
        """What to say of the end of a child of a patient supervisor."""
        child = next(child for child in self.children if child.name == event.name)
        if not event.restarted and not child.given_up:
            return f"{event.name} has finished"
        words = f"{event.name} ended with {exit_in_words(event.code)}: {self.last_words(event.name)}"
        if child.given_up:
            return f"{words}; it is not started again"
        return f"{words}; it is started again in {(child.due or 0.0) - time.monotonic():.0f} s"

    def last_words(self, name: str) -> str:
        """The last line of a child's output."""
        path = self._logs / f"{name}.log"
        if not path.exists():
            return "it said nothing"
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def finished(self, name: str) -> bool:
        """Whether a child has ended well."""
        return next(child for child in self.children if child.name == name).finished

    def stop(self, grace_seconds: float = 10.0) -> None:
        """End every child: ask all with SIGTERM, and after the grace end what is left."""
        for child in self.children:
            if child.process is not None and child.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    child.process.terminate()
        deadline = time.monotonic() + grace_seconds
        for child in self.children:
            if child.process is None:
                continue
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("%s did not end within %.0f s; it is killed", child.name, grace_seconds)
                child.process.kill()
                child.process.wait()
            self._close_pipe(child)
        self.processes_file.unlink(missing_ok=True)

    def _start(self, child: Child) -> None:
        with (self._logs / f"{child.name}.log").open("ab") as output:
            child.process = subprocess.Popen(
                child.command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | dict(child.environment),
                start_new_session=True,
            )
        child.starts.append(time.monotonic())
        child.due = None

    def _let_rest(self, child: Child, code: int) -> None:
        now = time.monotonic()
        child.finished = child.given_up = code == UNUSABLE
        if now - child.starts[-1] >= self._window:
            child.backoff.reset()
        child.starts = child.starts[-1:]
        child.due = None if child.given_up else now + child.backoff.next()

    def _refuse_hopeless(self, child: Child, code: int) -> None:
        if code == UNUSABLE:
            raise ChildFailed(f"{child.name} cannot go on: {self.last_words(child.name)}")
        now = time.monotonic()
        child.starts = [start for start in child.starts if now - start < self._window]
        if len(child.starts) > self._restarts:
            raise ChildFailed(
                f"{child.name} died {len(child.starts)} times within {self._window:.0f} s, the last time with "
                f"{exit_in_words(code)}: {self.last_words(child.name)}; its output is in {self._logs / child.name}.log"
            )

    def _write_processes(self) -> None:
        numbers = {
            child.name: child.process.pid for child in self.children if child.process and not child.finished
        }
        temporary = self.processes_file.with_name(".processes.json.new")
        temporary.write_text(
            json.dumps({"supervisor": os.getpid()} | numbers, indent=2) + "\n", encoding="utf-8"
        )
        os.replace(temporary, self.processes_file)

    @staticmethod
    def _close_pipe(child: Child) -> None:
        if child.process is not None and child.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                child.process.stdin.close()


def end_with_parent(grace_seconds: float = 10.0) -> None:
    """In a child: end this process when the supervisor's end of standard input closes.

    Arguments:
        grace_seconds: how long it may take to end by itself after SIGTERM.
    """

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(sys.stdin.fileno(), 1024):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_seconds)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
