"""What should be measured next is compiled beside what is measured: on a GPU, where cores and memory are left."""

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
from pcp.planning.measuring.ahead import Ahead, process_count
from pcp.planning.measuring.request import Request, decoded

GIB = 1 << 30
PLAIN = pcp.trace(lambda x: pcp.sin(x) + 1.0, pcp.spec((3,), "f32"))


@pytest.mark.parametrize(
    ("platform", "cores", "memory", "count"),
    [
        ("cuda", 16, 128, 3),
        ("cuda", 64, 512, 3),
        ("cuda", 8, 128, 1),
        ("cuda", 16, 32, 1),
        ("cuda", 2, 24, 0),
        ("cuda", 4, 128, 0),
        ("cuda", 16, 8, 0),
        ("cpu", 64, 512, 0),
    ],
)
def test_processes_compile_where_cores_and_memory_are_left(
    platform: str, cores: int, memory: int, count: int
) -> None:
    assert process_count(platform, cores, memory * GIB) == count


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

    @property
    def jobs(self) -> list[str]:
        """What it compiles, by the names of paths; of what results are held against, in brackets."""
        _, *share, last = self.words
        assert last == ("",), "it ends"
        named = [(is_reference, decoded(raw, len)) for _, is_reference, raw in share]
        assert all(len(raw) < 10_000 for *_, raw in share), "no arrays travel"
        return [f"({each.path})" if is_reference else each.path for is_reference, each in named]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Process]]:
    Process.made = []
    monkeypatch.setattr(ahead, "ChildProcess", Process)
    monkeypatch.setattr(ahead, "process_count", lambda *_: 2)
    monkeypatch.setattr(ahead, "LARGE", 0)
    return iter([Process.made])


def request(path: str, followers: list[str] | None = None, **more: Any) -> Request:
    arrays = [[np.zeros(1 << 14, np.float32)]]
    others = None if followers is None else lambda: [request(each) for each in followers]
    given = {"exact": widened(PLAIN), "inputs": arrays, "target": Target.of("cpu:0")} | more
    return Request(PLAIN, PLAIN, path, ahead=others, **given)


def test_what_follows_and_what_results_are_held_against_is_shared_out_once(
    processes: Iterator[list[Process]], tmp_path: Path
) -> None:
    made, begun = next(processes), Ahead(tmp_path)
    begun.begin(request("alone"))
    assert not made
    begun.begin(request("plain", ["first", "second", "third"]))
    assert [each.jobs for each in made] == [["(plain)", "second"], ["first", "third"]]
    begun.begin(request("first", ["second", "fourth"]))
    assert len(made) == 2, "both are busy"
    made[0].has_ended = True
    begun.begin(request("first", ["second", "fourth"]))
    assert [each.jobs for each in made[2:]] == [["fourth"]]
    begun.pause(is_paused=True)
    assert [each.is_paused for each in made] == [False, True, True]
    begun.begin(request("first", ["fifth"]))
    assert len(made) == 3, "no process is free"
    begun.pause(is_paused=False)
    begun.end()
    assert all(each.has_ended and not each.is_paused for each in made)


def test_a_small_program_is_compiled_where_it_is_measured(
    processes: Iterator[list[Process]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "LARGE", 1 << 16)
    Ahead(tmp_path).begin(request("plain", ["first"]))
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
    monkeypatch.setattr(ahead, "process_count", lambda *_: 1)
    monkeypatch.setattr(ahead, "LARGE", 0)
    begun = Ahead(tmp_path)
    begun.begin(request("plain", ["first"]))
    [process] = begun._processes
    deadline = time.monotonic() + 120
    while not process.has_ended and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process._process.returncode == 0
    assert len(list(default_cache().folder.glob("*.xla"))) == 2
