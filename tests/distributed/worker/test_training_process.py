"""What the Worker makes of a process that runs programs and says or does what it should not."""

import dataclasses
import json
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, DataRange, FailureKind
from pcp.distributed.runtime import finished
from pcp.distributed.sandbox import Policy
from pcp.distributed.verification import ProgramRefused, VerificationCancelled
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.offer import Offer, ProgramStopped
from pcp.distributed.worker.programs import library_builder, training_process
from pcp.distributed.worker.programs.confined_process import ComputationFailed, ConfinedProcess, ProcessBug
from pcp.distributed.worker.programs.training_process import LOST, TrainingProcess
from pcp.distributed.worker.training.trainer import LeaseRefused
from pcp.kernels import native
from tests.distributed.tiny_run import lease_of, store_job, tiny_recipe

PREPARED = """
import os, sys, time
say = lambda line: (sys.stdout.write(line + "\\n"), sys.stdout.flush())
read = lambda: sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), "little"))
read()
"""
DONE = '"tokens": 1, "losses": [1.0], "seconds": 1, "overhead": 0, "waited": 0, "states": [], "settled": [], "number": 2}'


def started(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    script: str,
    offer: Offer = training_process.EVERYTHING,
    tolerance: float = 0.0,
) -> TrainingProcess:
    """A process that does what a script says, instead of its own."""
    monkeypatch.setattr(Policy, "command", lambda *_: [sys.executable, "-S", "-c", PREPARED + script])
    store = BlobStore(folder / "blobs", shared=True)
    job = Job({"step": store.put(b"step")}, store.put(b"data"), 1, 1, 1, 1, tolerance=tolerance)
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


def asks_for(wanted: str) -> str:
    """The script of a process that wants libraries built, and that is prepared once it is told that they are."""
    return f"""say('{{"libraries": {wanted}}}')
told = read(); b"built" in told or sys.exit(5); say('{{"number": 1}}'); time.sleep(60)"""


def test_the_libraries_that_the_process_wants_are_built_on_all_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    together, names = threading.Barrier(2, timeout=20), list[str]()

    def missing(name: str) -> str:
        names.append(name)
        if len(names) <= 2:
            together.wait()  # for another one that is built at the same time
        return ""

    monkeypatch.setattr(library_builder, "core_count", lambda: 2)
    monkeypatch.setattr(library_builder.native, "missing", missing)
    wanted = ["attention", "products", "steps"]
    for _ in range(2):  # a new process may ask again
        process = started(monkeypatch, tmp_path, asks_for(json.dumps(wanted)), tolerance=1e-2)
        process.close()
        assert sorted(names) == wanted
        names.clear()


@pytest.mark.parametrize(
    "wanted",
    ['["attention", "../x"]', '["products", "products"]', '[["products"]]', '"products"', "null", "7"],
)
def test_a_process_that_wants_what_is_no_library_lies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: str
) -> None:
    monkeypatch.setattr(library_builder.native, "missing", lambda name: pytest.fail(f"{name} is built"))
    with pytest.raises(ProgramStopped, match=r"lies: it wants .* built|said b'.*: libraries is "):
        started(monkeypatch, tmp_path, asks_for(wanted), tolerance=1e-2)


def test_libraries_are_built_once_and_only_where_the_step_is_planned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = list[str]()
    monkeypatch.setattr(library_builder.native, "missing", lambda name: names.append(name) or "")
    again = asks_for('["products"]').replace("told = read()", "told = read(); say('{\"libraries\": []}')")
    for offer in (training_process.EVERYTHING, Offer(artifacts="llvm-cpu:generic")):
        tolerance = 1e-2 if offer.artifacts else 0.0
        with pytest.raises(ProgramStopped, match=r"lies: it wants .*products.* built"):
            started(monkeypatch, tmp_path, asks_for('["products"]'), offer, tolerance)
    assert not names
    with pytest.raises(ProgramStopped, match=r"lies: it wants '\[\]' built"):
        started(monkeypatch, tmp_path, again, tolerance=1e-2)
    assert names == ["products"]


def test_a_worker_that_stops_does_not_wait_for_libraries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those that nobody has begun are not built any more."""
    begun, ends, names = threading.Event(), threading.Event(), list[str]()

    def missing(name: str) -> str:
        names.append(name)
        begun.set()
        ends.wait(20)
        return ""

    monkeypatch.setattr(library_builder, "core_count", lambda: 1)
    monkeypatch.setattr(library_builder.native, "missing", missing)
    store = BlobStore(tmp_path / "blobs", shared=True)
    job = dataclasses.replace(store_job(tiny_recipe(tmp_path), store), tolerance=1e-2)
    before = set(threading.enumerate())
    try:
        with pytest.raises(VerificationCancelled, match="while native libraries were built"):
            TrainingProcess(job, store, "cpu:0", begun.is_set, cache=tmp_path / "compiled")
    finally:
        ends.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
    assert len(names) == 1


def test_the_process_finds_what_was_built_while_it_waited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its folder of builds was empty when it was confined, and nothing that it asked before is held against them."""
    called = ("activations", "optimizers", "products", "temporaries")
    builds = [native.built(native.LIBRARIES[name]) for name in called]
    names = list[str]()

    def missing(name: str) -> str:
        build = builds[called.index(name)]
        for file in (build.file, build.file.with_suffix(".json")):
            shutil.copy(file, tmp_path / "cache" / "native")
        names.append(name)
        return ""

    store = BlobStore(tmp_path / "blobs", shared=True)
    job = dataclasses.replace(store_job(tiny_recipe(tmp_path), store), tolerance=1e-2, plan_seconds=0.0)
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PCP_LOG", "INFO")
    monkeypatch.setattr(library_builder.native, "missing", missing)
    caplog.set_level("INFO", "pcp.distributed.worker.programs")
    before = set(threading.enumerate())
    TrainingProcess(job, store, "cpu:0").close()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)  # until it has read all that the process wrote
    assert sorted(names) == [*called]
    assert any("the step runs as it is written" in line for line in caplog.messages)
    missed = [line for line in caplog.messages if " is missing" in line]
    instructions = "which cpu does not have here"  # nothing that is built would give it these
    assert [line for line in missed if not line.endswith(instructions)] == []


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
