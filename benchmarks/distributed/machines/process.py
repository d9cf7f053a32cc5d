"""`pcp` commands on emulated machines: what they say is kept in files and read from there, and they are ended."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcp.training.display.metrics import Tail

Record = dict[str, Any]


class Process:
    """One process of a command.

    Arguments:
        words: before `python -m`, such as those that lead to a machine.
        module: with its arguments.
        folder: for what it says.
        name: of the files there.
        environment: variables in addition to those of this process.
    """

    def __init__(
        self,
        words: Sequence[str],
        module: Sequence[str],
        folder: Path,
        name: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.records: list[Record] = []
        self.errors = folder / f"{name}.err"
        said = folder / f"{name}.jsonl"
        with self.errors.open("wb") as errors, said.open("wb") as output:
            self._process = subprocess.Popen(
                [*words, sys.executable, "-m", *module],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=os.environ | {"PCP_LOG": "INFO"} | dict(environment or {}),
                start_new_session=True,
            )
        self.number = self._process.pid
        self.began = time.monotonic()
        self._tail = Tail(said)

    def read(self) -> list[Record]:
        """What it said since the last call; all is in `records`."""
        new = list(self._tail.read())
        self.records += new
        return new

    @property
    def code(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and to what it started."""
        for each in (self.number, *children(self.number)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)

    def kill(self) -> None:
        """End it at once. What it started notices that by itself."""
        self._process.kill()
        self._process.wait()

    def explain(self) -> str:
        """The last that it wrote to standard error."""
        return self.errors.read_text(errors="replace")[-3000:]


def children(number: int) -> list[int]:
    """The processes that a process started, and those that these started."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{number}/task"):
            for each in Path(f"/proc/{number}/task/{task}/children").read_text().split():
                found += [int(each), *children(int(each))]
    return found


def processor_seconds(number: int) -> float:
    """Processor time of a process and of what it started, as far as that runs."""
    seconds = 0.0
    for each in (number, *children(number)):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def resident_bytes(number: int) -> int:
    """Memory of a process and of what it started that nobody else has."""
    total = 0
    for each in (number, *children(number)):
        with contextlib.suppress(OSError):
            fields = dict(
                line.split(":", 1) for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()[1:]
            )
            total += 1024 * int(fields["Pss"].split()[0])
    return total
