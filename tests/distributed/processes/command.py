"""A `pcp` command as a process: started, listened to, waited for with a deadline, and ended whatever happens."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

SECONDS = 100.0

Record = dict[str, Any]


class Command:
    """One process; a context manager that kills it.

    Arguments:
        arguments: of `pcp`, without `--json`, which is added.
        folder: where its standard error goes.
        environment: variables in addition to those of this process.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, environment: dict[str, str] | None = None
    ) -> None:
        self.error_file = folder / f"{arguments[0]}-{time.monotonic_ns()}.err"
        self.records: list[Record] = []
        self._changed = threading.Condition()
        with self.error_file.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pcp", *arguments, "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"PCP_LOG": "INFO"} | (environment or {}),
                # Its own session, as in a terminal of its own: a signal is sent to it and to nobody else.
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Command":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(10.0)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def said(self) -> str:
        """What it wrote to standard error."""
        return self.error_file.read_text()

    def wait_for(
        self, condition: Callable[[Record], bool], count: int = 1, seconds: float = SECONDS
    ) -> Record:
        """The record that fulfils a condition for the `count`-th time, as soon as it was written."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                found = [record for record in self.records if condition(record)]
                if len(found) >= count:
                    return found[count - 1]
                left = deadline - time.monotonic()
                assert left > 0, (
                    f"no such record within {seconds} s; the last: {self.records[-5:]}; {self.said}"
                )
                assert self._reader.is_alive(), (
                    f"it ended without such a record: {self.records[-5:]}; {self.said}"
                )
                self._changed.wait(min(left, 1.0))

    def end(self, seconds: float = SECONDS) -> int:
        """Wait for its end, and return the exit code."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not ended within {seconds} s; the last: {self.records[-5:]}; {self.said}")
        self._reader.join(10.0)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.records.append(json.loads(line))
                self._changed.notify_all()


def is_round(number: int) -> Callable[[Record], bool]:
    """Whether a record tells that so many outer steps are done."""
    return lambda record: record.get("round", 0) >= number


def process_ids(run: Path) -> dict[str, int]:
    """The processes of a run on this machine, by name."""
    numbers: dict[str, int] = json.loads((run / "logs" / "processes.json").read_text())
    return numbers
