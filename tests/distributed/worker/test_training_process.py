"""What the Worker makes of a process that runs programs and says or does what it should not."""

import os
import sys
import threading
from pathlib import Path

import pytest

from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, DataRange, FailureKind
from pcp.distributed.runtime import finished
from pcp.distributed.sandbox import Policy
from pcp.distributed.verification import ProgramRefused
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.offer import Offer, ProgramStopped
from pcp.distributed.worker.programs import training_process
from pcp.distributed.worker.programs.confined_process import ComputationFailed, ConfinedProcess, ProcessBug
from pcp.distributed.worker.programs.training_process import LOST, TrainingProcess
from pcp.distributed.worker.training.trainer import LeaseRefused
from tests.distributed.tiny_run import lease_of

PREPARED = """
import os, sys, time
say = lambda line: (sys.stdout.write(line + "\\n"), sys.stdout.flush())
read = lambda: sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), "little"))
read()
"""
DONE = '"tokens": 1, "losses": [1.0], "seconds": 1, "overhead": 0, "waited": 0, "states": [], "settled": [], "number": 2}'


def started(
    monkeypatch: pytest.MonkeyPatch, folder: Path, script: str, offer: Offer = training_process.EVERYTHING
) -> TrainingProcess:
    """A process that does what a script says, instead of its own."""
    monkeypatch.setattr(Policy, "command", lambda *_: [sys.executable, "-S", "-c", PREPARED + script])
    store = BlobStore(folder / "blobs", shared=True)
    job = Job({"step": store.put(b"step")}, store.put(b"data"), 1, 1, 1, 1)
    return TrainingProcess(job, store, "cpu:0", offer=offer, cache=folder / "compiled")


def train(process: TrainingProcess) -> object:
    try:
        return finished(
            process.train(lease_of(1, DataRange(0, 1), Blob(b"p" * 32, 1)), lambda *_: None, lambda: False)
        )
    finally:
        process.close()


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ("say('no json')", ProgramStopped, "the process that runs programs said b'no json"),
        ("say('[1, 2]')", ProgramStopped, r"said b'\[1, 2\]"),
        ("say('{\"number\": 7}')", ProgramStopped, "said b"),
        ("say('x' * (5 << 20))", ProgramStopped, "said b'xxx"),
        ("sys.exit(3)", ProgramStopped, "the process that runs programs ended with code 3"),
        ("os.abort()", ProgramStopped, "ended with SIGABRT"),
        ('say(\'{"number": 1, "bug": "Traceback \\\\u001b[2J"}\')', ProcessBug, "Traceback"),
        (
            'say(\'{"number": 1, "error": "ProgramRefused", "reason": "it holds a call"}\')',
            ProgramRefused,
            "it holds a",
        ),
        ('say(\'{"number": 1, "error": "SystemExit", "reason": "x"}\')', ComputationFailed, "^x$"),
        ('say(\'{"number": 1, "error": "OutOfMemory", "reason": "x"}\')', ProgramStopped, "^x$"),
    ],
)
def test_whatever_the_process_answers_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        started(monkeypatch, tmp_path, answer)
    assert "\x1b" not in str(raised.value)


def test_a_blob_that_is_a_link_or_is_not_there_is_not_pushed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever is pushed a link to the Worker's key would have the key."""
    key = tmp_path / "key"
    key.write_bytes(b"the key")
    for name, named in (("ab" * 32, 7), ("cd" * 32, 7)):
        os.makedirs(tmp_path / "blobs", exist_ok=True)
        link = tmp_path / "blobs" / ("ab" * 32)
        if not link.is_symlink():
            link.symlink_to(key)
        script = f"""say('{{"prepared": true, "number": 1}}'); read()
say('{{"payload": ["{name}", {named}], ' + {DONE!r}); time.sleep(60)"""
        process = started(monkeypatch, tmp_path, script)
        with pytest.raises(ComputationFailed, match=r"made no file|which is not a file of 7 bytes"):
            train(process)


def test_a_process_that_fills_the_disk_is_ended_and_says_how_much_is_offered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = f"""say('{{"prepared": true, "number": 1}}'); read()
open({str(tmp_path / "compiled" / "large")!r}, "wb").write(b"x" * (3 << 20)); time.sleep(60)"""
    process = started(monkeypatch, tmp_path, script, Offer(disk_bytes=2 << 20))
    with pytest.raises(
        ProgramStopped, match=r"bytes; of what --disk offers they may take 2097152"
    ) as stopped:
        train(process)
    assert stopped.value.why is FailureKind.DISK


def test_after_a_process_died_only_a_fresh_lease_is_trained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    process = started(monkeypatch, tmp_path, 'say(\'{"prepared": true, "number": 1}\'); read(); sys.exit(1)')
    lease = lease_of(1, DataRange(0, 1), Blob(b"p" * 32, 1))
    for _ in range(2):  # the second finds a new process
        with pytest.raises(ProgramStopped, match="with code 1"):
            finished(process.train(lease, lambda *_: None, lambda: False))
    carried = type(lease)(**{name: getattr(lease, name) for name in lease.__slots__} | {"fresh": False})
    with pytest.raises(LeaseRefused, match=LOST[:40]):
        finished(process.train(carried, lambda *_: None, lambda: False))
    process.close()


def test_native_libraries_are_built_on_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together, names = threading.Barrier(2, timeout=20), list[str]()

    def missing(name: str) -> str:
        names.append(name)
        if len(names) <= 2:
            together.wait()  # for another one that is built at the same time
        return ""

    monkeypatch.setattr(training_process, "core_count", lambda: 2)
    monkeypatch.setattr(training_process.native, "missing", missing)
    training_process._lend(tmp_path / "cache")
    assert sorted(names) == sorted(training_process.native.LIBRARIES)


def test_what_a_dead_process_did_not_read_is_lost_without_noise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Writing to it fails, and so does closing the pipe, which would write the rest."""
    noise = list[object]()
    monkeypatch.setattr(threading, "excepthook", noise.append)
    monkeypatch.setattr(Policy, "command", lambda *_: [sys.executable, "-S", "-c", ""])
    before = set(threading.enumerate())
    process = ConfinedProcess("", Policy(tmp_path / "alone", "cpu:0"), training_process.EVERYTHING)
    threads = set(threading.enumerate()) - before
    why = process.died()
    process.send("work", 1)
    process.end(why)
    for thread in threads:
        thread.join(20.0)
    assert not noise
