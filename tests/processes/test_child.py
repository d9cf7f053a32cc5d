"""A child process: asked and answered within a time, ended with what it started, and its death put into words."""

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pcp.processes.child import ChildProcess, Start, Stopped, TookTooLong, WroteTooMuch, printable

BEGINNING = "import os, pathlib, signal, subprocess, sys, time\nfrom pcp.processes.parent import Parent\nparent = Parent()\n"
ECHO = """
while True:
    words = parent.asks()
    print("noise on standard output", flush=True)
    assert sys.stdin.read() == ""
    parent.say(words=words)
"""


def child(source: str, written: Callable[[int], int] = int, **more: Any) -> ChildProcess:
    """One that runs some lines, in which `parent` is its parent."""
    command = [sys.executable, "-P", "-c", BEGINNING + source]
    return ChildProcess(Start(command, Start.of("pcp").environment, written), **more)


def ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that is somebody else's."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def wait(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_requests_are_answered_in_turn_and_noise_is_kept_apart() -> None:
    noise: list[str] = []
    before = threading.active_count()
    with child(ECHO, noise=noise.append) as echo:
        for count in range(3):
            echo.send(count, (1, "x"))
            assert echo.line(20.0) == b'{"words": [%d, [1, "x"]]}\n' % count
        assert not echo.has_ended
        large = "x" * (4 << 20)  # which fits no pipe
        echo.send(large)
        assert echo.line(20.0) == b'{"words": ["%s"]}\n' % large.encode()
    assert echo.has_ended
    assert ended(echo.number)
    assert echo.line() is None
    assert threading.active_count() == before
    assert noise == ["noise on standard output"] * 4


def test_a_child_that_takes_too_long_is_killed_with_what_it_started() -> None:
    source = """
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
parent.say(pid=other.pid)
print("started", flush=True)
time.sleep(600)
"""
    with child(source) as slow:
        pid = json.loads(slow.line(20.0) or b"")["pid"]
        with pytest.raises(TookTooLong, match=r"^it took more than 0\.1 s and was killed$"):
            slow.line(0.1)
        assert slow.has_ended
        assert slow.line(0.1) is None
    wait(lambda: ended(pid))


@pytest.mark.parametrize(
    ("source", "words", "is_full"),
    [
        ("os._exit(0)", "code 0", False),
        ("sys.exit(7)", "code 7", False),
        ("os._exit(300)", "code 44", False),
        ("os.abort()", "SIGABRT", False),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV", False),
        ("os.kill(os.getpid(), 40)", "signal 40", False),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL", True),  # as the kernel does where memory runs out
        ("raise MemoryError('none left')", "code 1: .*MemoryError: none left", True),
        ("os.write(2, b'std::bad_alloc'); os.abort()", "SIGABRT: std::bad_alloc", True),
        ("os.write(2, b'LLVM ERROR: out of memory'); os.abort()", "SIGABRT: LLVM ERROR: out of memory", True),
        ("os.write(2, b'it leaks memory'); os.abort()", "SIGABRT: it leaks memory", False),
        ("os.write(2, b'x' * 9000 + b'\\n\\x1b[2J\\xff last\\n'); sys.exit(1)", "code 1: x+ \ufffd\\[2J\ufffd last", False),
        ("parent._answers.close(); time.sleep(60)", "SIGKILL: it said no more, did not end, and was killed", False),
        ("os.close(1); os.close(2); parent._answers.close(); time.sleep(0.1); os._exit(3)", "code 3", False),
    ],
)  # fmt: skip
def test_how_it_died_is_said(source: str, words: str, is_full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcp.processes.child._DYING_SECONDS", 1.0)
    with child(source) as dying:
        assert dying.line(20.0) is None
        death = dying.death()
    assert re.fullmatch(words, str(death)), str(death)
    assert death.is_out_of_memory is is_full
    assert len(death.said) <= 300
    assert dying.death() == death


def test_what_it_said_before_it_died_is_heard_and_a_line_may_be_too_long() -> None:
    with child(
        "parent.say(x=1)\nparent._answers.write(b'half'); parent._answers.flush()\nos.abort()"
    ) as dying:
        assert [dying.line(20.0), dying.line(20.0), dying.line(20.0)] == [b'{"x": 1}\n', b"half", None]
    with child("parent.say(x='y' * 100)\ntime.sleep(60)", longest_line=50) as long:
        assert len(long.line(20.0) or b"") == 50


def test_one_that_writes_too_much_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "file"

    def written(number: int) -> int:
        assert number > 0
        return file.stat().st_size if file.exists() else 0

    source = f"pathlib.Path({str(file)!r}).write_bytes(bytes(3000))\ntime.sleep(60)"
    with (
        child(source, written=written, most_written=2000) as full,
        pytest.raises(WroteTooMuch, match=r"^it wrote 3000 bytes and was killed$") as stopped,
    ):
        full.line(20.0)
    assert stopped.value.written == 3000
    assert ended(full.number)
    with (
        child(source.replace("3000", "1000"), written=written, most_written=2000) as sound,
        pytest.raises(Stopped),
    ):
        sound.line(0.5)


def test_who_waits_may_look_up_and_the_child_may_be_ended_meanwhile() -> None:
    with child("time.sleep(60)") as slow:

        def look() -> None:
            raise LookupError

        with pytest.raises(LookupError):
            slow.line(20.0, look)
        assert not slow.has_ended
        timer = threading.Timer(0.2, slow.end)
        timer.start()
        assert slow.line(60.0) is None
        timer.join()


def test_what_is_taken_aside_is_not_said_again() -> None:
    aside: list[bytes] = []

    def take(line: bytes) -> bool:
        aside.append(line)
        return b"aside" in line

    with child("parent.say(aside=1)\nparent.say(x=2)\nparent.say(aside=3)\nsys.exit(0)", aside=take) as two:
        assert [two.line(20.0), two.line(20.0)] == [b'{"x": 2}\n', None]
    assert len(aside) == 3


def test_a_flood_of_answers_waits_and_ends_with_the_child() -> None:
    before = threading.active_count()
    with child("while True: parent.say(x='y' * 1000)") as flood:
        for _ in range(100):
            assert flood.line(20.0) is not None
    assert threading.active_count() == before


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """Whatever it is doing: its input closes, which is all that it can notice."""
    source = f"""
import sys, time
sys.path[:0] = {sys.path!r}
from tests.processes.test_child import child
print(child("while True: pass").number, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, cwd=tmp_path) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.2)
        parent.kill()
    wait(lambda: ended(pid))


def test_what_a_dead_child_did_not_read_is_lost_without_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = list[object]()
    monkeypatch.setattr(threading, "excepthook", noise.append)
    with ChildProcess(Start(["/bin/false"])) as dead:
        for _ in range(3):
            dead.send("x" * (1 << 20))
        assert dead.line(20.0) is None
        assert str(dead.death()) == "code 1"
    assert not noise
    with pytest.raises(FileNotFoundError):
        ChildProcess(Start(["/no/such/program"]))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_it_says_is_printable(seed: int) -> None:
    draw = random.Random(seed)
    text = draw.randbytes(draw.choice([0, 10, 10_000])).decode(errors="replace")
    shown = printable(text, 400)
    assert shown == printable(shown)
    assert len(shown) <= 400
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    assert os.linesep not in shown or "\n" in text
