"""A Shepherd that was told no number of Workers: they come while it trains, and a slow one does less."""

import contextlib
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.distributed.processes.command import Command, is_round
from tests.distributed.processes.replaying import leases_of
from tests.distributed.processes.test_by_hand import is_lease_of, key_of, start_worker

BATCHES, SEGMENT = 480, 16
TOML = """
model = "gpt2-nano"
data = "{corpus}"
steps = {batches}
inner_steps = {segment}
batch = 2
warmup_steps = 4
evaluate_every = 0
checkpoint_every = 240
"""
RUNS, RESTS = 0.05, 0.2  # seconds


class Throttled:
    """Stops a Worker and the process of its programs for four fifths of the time, as if they had a slow machine."""

    def __init__(self, number: int) -> None:
        self._number, self._over = number, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            self._send(signal.SIGSTOP)
            self._over.wait(RESTS)
            self._send(signal.SIGCONT)
            self._over.wait(RUNS)

    def _send(self, what: signal.Signals) -> None:
        """To the process and its children, which are in sessions of their own; they end with the run."""
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            for children in Path(f"/proc/{self._number}/task").glob("*/children"):
                for child in children.read_text().split():
                    os.kill(int(child), what)
            os.kill(self._number, what)


@pytest.mark.runs
def test_a_slow_worker_that_comes_later_trains_less_and_ends_with_the_fast(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, run = tmp_path / "run.toml", tmp_path / "run"
    plan.write_text(TOML.format(corpus=corpus, batches=BATCHES, segment=SEGMENT), encoding="utf-8")
    with Command(["shepherd", str(plan), "--run", str(run)], tmp_path) as shepherd:
        address = shepherd.wait_for(lambda record: record.get("event") == "listening")["address"]
        with start_worker(address, key_of("fast", run, capsys), tmp_path, "--cpus", "0") as fast:
            shepherd.wait_for(is_round(2))
            with start_worker(address, key_of("slow", run, capsys), tmp_path, "--cpus", "1") as slow:
                shepherd.wait_for(lambda record: is_lease_of("slow", record))
                with Throttled(slow.process.pid):
                    assert shepherd.end() == 0, shepherd.said
                assert fast.end() == 0
                assert slow.end() == 0
    rounds = [record for record in shepherd.records if "round" in record]
    assert rounds[-1]["tokens"] == BATCHES * 2 * 64, "every batch was merged exactly once"
    assert [record["round"] for record in rounds] == list(range(1, len(rounds) + 1))
    assert [record["contributions"] for record in rounds[:2]] == [1, 1]
    leases = leases_of(shepherd.records)
    assert leases[0] == {"fast": (0, SEGMENT - 1)}
    sizes = [
        {name: last - first + 1 for name, (first, last) in held.items()} for held in leases if len(held) == 2
    ]
    assert sizes[0]["slow"] == SEGMENT // 4, "until its speed is known"
    settled = sizes[3:-1]
    assert settled
    assert sum(each["slow"] for each in settled) < 0.5 * sum(each["fast"] for each in settled)
