"""A process that measures, as seen by its parent: started, asked, and killed where it does not answer."""

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pcp.backends import Target
from pcp.planning.measuring.measurement import Failure
from pcp.systems import end_group, exit_in_words

_LONGEST_ANSWER = 1 << 24
_LONGEST_WORDS = 2000
_OUT_OF_MEMORY_WORDS = ("bad_alloc", "RESOURCE_EXHAUSTED", "Out of memory", "out of memory", "MemoryError")


class ChildEnded(Exception):
    """The child died or was killed; `failure` says what that is for a candidate."""

    def __init__(self, failure: Failure, words: str) -> None:
        super().__init__(words)
        self.failure = failure


class MeasuringProcess:
    """One process that measures, and what it said that was not asked for yet."""

    def __init__(
        self, target: Target, folder: Path, memory_bytes: int, module: str = "pcp.planning.measuring.child"
    ) -> None:
        self._noise = open(folder / "child.log", "w+b")  # noqa: SIM115  (closed by kill)
        self._process = subprocess.Popen(
            # -P: a folder that happens to be the current one must not shadow modules.
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            env=os.environ | environment(),
            start_new_session=True,  # Ctrl-C is the parent's to handle
        )
        self._left = b""
        self._token = ""
        self._send({"target": target.described(), "folder": str(folder), "memory_bytes": memory_bytes})

    def ask(self, request: dict[str, Any]) -> None:
        """Send a request, with a token that its answers bear, so that nothing else is taken for one."""
        self._token = secrets.token_hex(8)
        self._send(request | {"token": self._token})

    def _send(self, words: dict[str, Any]) -> None:
        """Send a line. A child that has died is noticed when it is asked for an answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(words).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next line that it says.

        Raises:
            ChildEnded: it died, said something else, or said nothing for too long and was killed.
        """
        for line in self._lines(time.monotonic() + seconds):
            try:
                answer = json.loads(line)
            except ValueError:
                answer = None
            if isinstance(answer, dict) and answer.get("token") == self._token:
                return answer
            self.kill()
            raise ChildEnded(Failure.crash, f"it answered {line[:80]!r}")
        if self._process.poll() is None:
            self.kill()
            raise ChildEnded(Failure.timeout, f"it took more than {seconds:g} s and was killed")
        raise self._ended()

    def kill(self) -> None:
        """End the process, and all that it started and that stayed in its session."""
        end_group(self._process)
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

    def _ended(self) -> ChildEnded:
        code = self._process.returncode
        size = self._noise.seek(0, os.SEEK_END)
        self._noise.seek(max(0, size - _LONGEST_WORDS))
        noise = self._noise.read().decode(errors="replace")
        said = " ".join("".join(c if c.isprintable() else " " for c in noise).split())[-300:]
        words = f"it ended with {exit_in_words(code)}" + (f": {said}" if said else "")
        full = code == -signal.SIGKILL or any(sign in noise for sign in _OUT_OF_MEMORY_WORDS)
        return ChildEnded(Failure.out_of_memory if full else Failure.crash, words)


def environment() -> Mapping[str, str]:
    """Where this PCP is, installed or not; and a second client of a GPU must not take most of its memory."""
    source = str(Path(__file__).parents[3])
    paths = [source, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
