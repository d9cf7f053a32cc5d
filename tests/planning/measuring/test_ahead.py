"""What results are held against is compiled beside what is measured: on a GPU, where cores and memory are left."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.backends import Target
from pcp.backends.cache import default_cache
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring import ahead
from pcp.planning.measuring.ahead import Ahead, has_room
from pcp.planning.measuring.request import Request, decoded

GIB = 1 << 30
PLAIN, OTHER = (pcp.trace(lambda x, n=n: pcp.sin(x) + n, pcp.spec((3,), "f32")) for n in (1.0, 2.0))


@pytest.mark.parametrize(
    ("platform", "cores", "memory", "able"),
    [
        ("cuda", 16, 128, True),
        ("cuda", 8, 32, True),
        ("cuda", 2, 24, False),
        ("cuda", 4, 128, False),
        ("cuda", 16, 16, False),
        ("cpu", 64, 512, False),
    ],
)
def test_a_process_compiles_where_cores_and_memory_are_left(
    platform: str, cores: int, memory: int, able: bool
) -> None:
    assert has_room(platform, cores, memory * GIB) == able


class Process:
    """A process that only notes what it is told."""

    made: list["Process"]

    def __init__(self, _: Any) -> None:
        self.words: list[tuple[Any, ...]] = []
        self.has_ended, self.is_paused = False, False
        Process.made.append(self)

    def send(self, *words: Any) -> None:
        self.words.append(words)

    def pause(self, *, is_paused: bool) -> None:
        self.is_paused = is_paused

    def end(self) -> None:
        self.has_ended = True


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Process]]:
    Process.made = []
    monkeypatch.setattr(ahead, "ChildProcess", Process)
    monkeypatch.setattr(ahead, "has_room", lambda *_: True)
    monkeypatch.setattr(ahead, "LARGE", 0)
    return iter([Process.made])


def request(program: pcp.Program = PLAIN, **more: Any) -> Request:
    arrays = [[np.zeros(1 << 14, np.float32)]]
    given = {"exact": widened(program), "inputs": arrays, "target": Target.of("cpu:0")} | more
    return Request(program, program, "plain", **given)


def test_what_results_are_held_against_is_begun_once_for_each_program(
    processes: Iterator[list[Process]], tmp_path: Path
) -> None:
    made, begun = next(processes), Ahead(tmp_path)
    begun.begin(request(exact=None))
    assert not made
    begun.begin(request())
    begun.begin(request())
    [process] = made
    _, (_, raw), last = process.words
    assert last == ("",), "it ends"
    assert len(raw) < 10_000, "no arrays travel"
    assert decoded(raw, len).subject == PLAIN
    begun.pause(is_paused=True)
    assert process.is_paused
    begun.begin(request(OTHER))
    assert process.has_ended
    assert len(made) == 2
    begun.end()
    assert made[1].has_ended


def test_a_small_program_is_compiled_where_it_is_measured(
    processes: Iterator[list[Process]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "LARGE", 1 << 16)
    Ahead(tmp_path).begin(request())
    assert not next(processes)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_a_process_that_stands_still_ends_with_its_parent() -> None:
    child = "; ".join(
        [
            "import os, signal",
            "from pcp.systems import end_with_parent",
            "end_with_parent()",
            "print(os.getpid(), flush=True)",
            "os.kill(os.getpid(), signal.SIGSTOP)",
        ]
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        process.kill()
        process.wait()
        deadline = time.monotonic() + 30
        while is_there(number) and time.monotonic() < deadline:
            time.sleep(0.02)
    assert not is_there(number)


def is_there(number: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.cpu
def test_what_was_compiled_ahead_is_found_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(ahead, "has_room", lambda *_: True)
    monkeypatch.setattr(ahead, "LARGE", 0)
    begun = Ahead(tmp_path)
    begun.begin(request())
    process = begun._process
    assert process is not None
    deadline = time.monotonic() + 120
    while not process.has_ended and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process._process.returncode == 0
    assert len(list(default_cache().folder.glob("*.xla"))) == 1
