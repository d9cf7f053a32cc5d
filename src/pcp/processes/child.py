"""A child process, as seen by its parent: started, asked, waited for, ended with what it started, its death put into words."""

import contextlib
import json
import math
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from pcp.systems import end_group, exit_in_words

LONGEST_LINE = 1 << 24
"""Bytes of an answer, unless a child is allowed more; a longer one comes in pieces, which are none."""
_MOST_LINES = 16
"""Answers that wait to be taken; a child that says more waits, too."""
_POLL_SECONDS = 0.05
_WRITTEN_PART = 0.05
"""Of the time, that is spent on looking how much a child has written."""
_LAST_BYTES, _LAST_WORDS = 2000, 300
_NOISE_BYTES = 400
_DYING_SECONDS = 5.0
"""Between the end of a child's answers and its own."""
_PIPE_SECONDS = 1.0
"""How long the last words of a dead child are waited for: something that it started may hold the pipe."""
_OUT_OF_MEMORY = ("bad_alloc", "RESOURCE_EXHAUSTED", "ut of memory", "MemoryError", "annot allocate memory")


class Stopped(Exception):
    """A child that was killed because it took too much of something."""


class TookTooLong(Stopped):
    """It took too much time."""


class WroteTooMuch(Stopped):
    """It wrote too much to the disk."""

    def __init__(self, written: int) -> None:
        super().__init__(f"it wrote {written} bytes and was killed")
        self.written = written


def _nothing(_: int) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Start:
    """How a child is started.

    Arguments:
        command: program and arguments.
        environment: all its variables.
        written: from the number of the process, what it has written to the disk, in bytes.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    written: Callable[[int], int] = _nothing

    @staticmethod
    def of(module: str, **variables: str) -> "Start":
        """A module of this PCP, installed or not, with all that the user may do.

        Arguments:
            variables: set in addition to those of this process, or instead of them.
        """
        source = str(Path(__file__).parents[2])
        paths = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        own = {
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # a second client of a GPU must not take most of its memory
        }
        # -P: a folder that happens to be the current one must not shadow modules.
        return Start([sys.executable, "-P", "-m", module], os.environ | own | variables)


@dataclass(frozen=True, slots=True)
class Death:
    """How a child ended.

    Arguments:
        code: its exit code; of a signal its negative number.
        said: the last that it wrote beside its answers, printable, in one line.
        is_out_of_memory: whether that, or the signal, means that memory ran out.
    """

    code: int
    said: str
    is_out_of_memory: bool

    def __str__(self) -> str:
        return exit_in_words(self.code) + (f": {self.said}" if self.said else "")


class ChildProcess:
    """One process, and what it said that was not asked for yet; a context manager, which ends it.

    It is in a session of its own, if it is not told to stay: Ctrl-C is the parent's to handle, and what it starts ends with it.

    Arguments:
        start: how it is started.
        longest_line: bytes of an answer.
        most_written: bytes that it may write to the disk.
        in_group: whether it stays in the session of this process, and ends with its group.
        aside: asked of every line that it says, in a thread of its own, whether it was taken in there; others wait for `line`.
        noise: told every line that it writes beside its answers, in a thread of its own.
    """

    def __init__(
        self,
        start: Start,
        *,
        longest_line: int = LONGEST_LINE,
        most_written: float = math.inf,
        in_group: bool = False,
        aside: Callable[[bytes], bool] = lambda _: False,
        noise: Callable[[str], object] = len,
    ) -> None:
        self._process = subprocess.Popen(
            start.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=start.environment,
            start_new_session=not in_group,
        )
        self._written, self._most_written = start.written, most_written
        self._longest_line, self._tell_noise = longest_line, noise
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lines: queue.Queue[bytes | None] = queue.Queue(_MOST_LINES)
        self._is_aside = aside
        self._last = b""  # that it wrote beside its answers
        self._death: Death | None = None
        self._is_ended = self._says_no_more = False
        self._look_again = 0.0
        targets = (self._write, self._hear, self._listen)
        self._threads = [threading.Thread(target=each, daemon=True) for each in targets]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for thread in self._threads:
            thread.join(_PIPE_SECONDS)

    @property
    def number(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it was ended, or died."""
        return self._is_ended or self._process.poll() is not None

    def send(self, *words: Any) -> None:
        """Send a request, without waiting until it is read. A child that has died is noticed when its answer is waited for."""
        self._requests.put(framed(*words))

    def line(self, seconds: float = math.inf, look: Callable[[], object] = lambda: None) -> bytes | None:
        """The next line that it says; None once it says no more.

        Arguments:
            seconds: after which it is killed.
            look: called again and again meanwhile; what it raises ends the waiting, and not the child.

        Raises:
            TookTooLong, WroteTooMuch: it was killed.
        """
        deadline = time.monotonic() + seconds
        while not (self._says_no_more or self._is_ended):
            look()
            self._check_written()
            left = deadline - time.monotonic()
            try:
                said = self._lines.get(timeout=max(0.0, min(_POLL_SECONDS, left)))
            except queue.Empty:
                if left <= 0.0:
                    self.end()
                    raise TookTooLong(f"it took more than {seconds:g} s and was killed") from None
                continue
            if said:
                return said
            self._says_no_more = said is None
        return None

    def wake(self) -> None:
        """Have who waits for a line look up now."""
        with contextlib.suppress(queue.Full):  # there is one
            self._lines.put_nowait(b"")

    def pause(self, *, is_paused: bool) -> None:
        """Have it stand still, where the system can do that, or go on."""
        if hasattr(signal, "SIGSTOP") and not self.has_ended:
            self._process.send_signal(signal.SIGSTOP if is_paused else signal.SIGCONT)

    def end(self) -> None:
        """End it, with all that it started and that stayed in its session; from any thread, as often as one likes."""
        self._is_ended = True
        end_group(self._process)
        self._process.wait()
        self._requests.put(None)
        with contextlib.suppress(queue.Empty):
            while True:
                self._lines.get_nowait()
        self.wake()

    def death(self) -> Death:
        """How it ended. One that says no more, and goes on, is killed in the end."""
        self._death = self._death or self._died()
        return self._death

    def _died(self) -> Death:
        was_ended = self._is_ended
        try:
            code = self._process.wait(_DYING_SECONDS)
            self._threads[-1].join(_PIPE_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()
            was_ended = True
            code, self._last = self._process.wait(), b"it said no more, did not end, and was killed"
        noise = self._last.decode(errors="replace")
        is_full = code == -signal.SIGKILL or any(sign in noise for sign in _OUT_OF_MEMORY)
        return Death(code, " ".join(printable(noise).split())[-_LAST_WORDS:], is_full and not was_ended)

    def _check_written(self) -> None:
        began = time.monotonic()
        if math.isinf(self._most_written) or began < self._look_again:
            return
        written = self._written(self._process.pid)
        now = time.monotonic()
        self._look_again = now + (now - began) / _WRITTEN_PART
        if written > self._most_written:
            self.end()
            raise WroteTooMuch(written)

    def _write(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as file:  # closing writes what is left
            while (raw := self._requests.get()) is not None:
                file.write(raw)
                file.flush()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as file:
            while line := file.readline(self._longest_line):
                if not self._is_ended and not self._is_aside(line):
                    self._lines.put(line)
        if not self._is_ended:
            self._lines.put(None)

    def _listen(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as file:
            while line := file.readline(_NOISE_BYTES):
                self._last = (self._last + line)[-_LAST_BYTES:]
                if words := printable(line.decode(errors="replace")).strip():
                    self._tell_noise(words)


def said_in(line: bytes | None) -> dict[str, Any]:
    """The object of JSON in a line; nothing where there is none."""
    try:
        said = json.loads(line or b"")
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def framed(*words: Any) -> bytes:
    """A request as it travels."""
    raw = pickle.dumps(words)
    return len(raw).to_bytes(8, "little") + raw


def printable(text: str, longest: int | None = None) -> str:
    """What a process said that may have been taken over: shortened, and without what steers a terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text[:longest])
