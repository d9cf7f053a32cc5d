"""Processes that are kept alive, given up, ended together, and that notice the end of their supervisor."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pcp.distributed.supervisor import Child, ChildEvent, ChildFailed, Supervisor
from pcp.distributed.wire.backoff import Backoff
from pcp.systems import exit_in_words
from tests.distributed.waiting import is_gone, wait_until

Supervise = Callable[..., Supervisor]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Supervise]:
    """Make supervisors, and end what they started."""
    made: list[Supervisor] = []

    def make(*children: Child, **settings: Any) -> Supervisor:
        made.append(Supervisor(children, tmp_path / "logs", **settings))
        made[-1].start()
        return made[-1]

    yield make
    for supervisor in made:
        supervisor.stop()


def python(name: str, source: str) -> Child:
    return Child(name, [sys.executable, "-S", "-c", source])


def events_of(supervisor: Supervisor, count: int) -> list[ChildEvent]:
    """Poll until so many children have ended."""
    events: list[ChildEvent] = []

    def enough() -> bool:
        events.extend(supervisor.poll())
        return len(events) >= count

    wait_until(enough)
    return events


WAIT = "import sys; sys.stdin.read()"


def test_a_child_that_exits_well_is_finished(supervise: Supervise) -> None:
    supervisor = supervise(python("a", "print('done')"))
    assert events_of(supervisor, 1) == [ChildEvent("a", 0, False)]
    assert supervisor.finished("a")
    assert supervisor.poll() == []
    assert supervisor.last_words("a") == "done"


def test_a_child_that_dies_is_started_again_with_its_output_kept(
    supervise: Supervise, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    source = f"""
import pathlib
seen = pathlib.Path({str(marker)!r})
print(seen.exists(), flush=True)
if not seen.exists():
    seen.touch()
    raise SystemExit(1)
"""
    supervisor = supervise(python("a", source))
    assert events_of(supervisor, 2) == [ChildEvent("a", 1, True), ChildEvent("a", 0, False)]
    assert (tmp_path / "logs" / "a.log").read_text().splitlines() == ["False", "True"]


def test_a_killed_child_is_started_again(supervise: Supervise) -> None:
    supervisor = supervise(python("a", WAIT))
    first = json.loads(supervisor.processes_file.read_text())
    assert first["supervisor"] == os.getpid()
    os.kill(first["a"], signal.SIGKILL)
    assert events_of(supervisor, 1) == [ChildEvent("a", -signal.SIGKILL, True)]
    second = json.loads(supervisor.processes_file.read_text())
    assert second["a"] != first["a"]
    assert not is_gone(second["a"])
    supervisor.stop()
    assert is_gone(second["a"])
    assert not supervisor.processes_file.exists()


def test_a_child_that_was_given_something_wrong_ends_everything(supervise: Supervise) -> None:
    supervisor = supervise(python("a", "print('pcp: no such thing'); raise SystemExit(2)"))
    with pytest.raises(ChildFailed, match="a cannot go on: pcp: no such thing"):
        events_of(supervisor, 1)


def test_a_child_that_dies_again_and_again_ends_everything(supervise: Supervise, tmp_path: Path) -> None:
    supervisor = supervise(python("a", "raise SystemExit('broken')"), restarts=2)
    message = (
        r"a died 3 times within 300 s, the last time with code 1: broken; its output is in .*logs/a\.log"
    )
    with pytest.raises(ChildFailed, match=message):
        events_of(supervisor, 99)
    assert (tmp_path / "logs" / "a.log").read_text() == "broken\n" * 3


def test_a_child_that_dies_now_and_then_is_always_started_again(supervise: Supervise) -> None:
    supervisor = supervise(python("a", "raise SystemExit(1)"), restarts=1, window_seconds=0.0)
    assert events_of(supervisor, 4)[-1] == ChildEvent("a", 1, True)


def test_a_child_that_ignores_the_request_to_end_is_killed(
    supervise: Supervise, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); " + WAIT
    )
    supervisor = supervise(python("a", stubborn), python("b", WAIT))
    wait_until(lambda: supervisor.last_words("a") == "deaf")
    pids = json.loads(supervisor.processes_file.read_text())
    supervisor.stop(grace_seconds=0.3)
    assert is_gone(pids["a"])
    assert is_gone(pids["b"])
    assert "a did not end within 0 s; it is killed" in caplog.text
    assert "b did not end" not in caplog.text


def test_ctrl_c_in_the_terminal_does_not_reach_children(supervise: Supervise) -> None:
    supervisor = supervise(python("a", WAIT))
    pid = json.loads(supervisor.processes_file.read_text())["a"]
    assert os.getpgid(pid) != os.getpgid(0)
    assert os.getsid(pid) == pid


def test_last_words_of_a_silent_or_talkative_child(tmp_path: Path) -> None:
    supervisor = Supervisor([python("a", "")], tmp_path / "logs")
    assert supervisor.last_words("a") == "it said nothing"
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_bytes(b"\n")
    assert supervisor.last_words("a") == "it said nothing"
    (tmp_path / "logs" / "a.log").write_bytes(b"x" * 100_000 + b"\n\xff end\n\n")
    assert supervisor.last_words("a") == "\ufffd end"


@pytest.mark.parametrize(
    ("code", "text"), [(0, "code 0"), (3, "code 3"), (-9, "SIGKILL"), (-200, "signal 200")]
)
def test_exit_codes_in_words(code: int, text: str) -> None:
    assert exit_in_words(code) == text


CHILD = """
import os, signal, sys, threading
from pcp.distributed.supervisor import end_with_parent
def goodbye(*_):
    print("asked to end", flush=True)
    if sys.argv[1] == "polite":
        os._exit(0)
signal.signal(signal.SIGTERM, goodbye)
end_with_parent(0.2)
print("pid", os.getpid(), flush=True)
while True:
    signal.pause()
"""
PARENT = """
import sys
from pathlib import Path
from pcp.distributed.supervisor import Child, Supervisor
supervisor = Supervisor([Child("child", [sys.executable, "-c", sys.argv[2], sys.argv[3]])], Path(sys.argv[1]))
supervisor.start()
sys.stdin.read()
"""


@pytest.mark.parametrize("manner", ["polite", "deaf"])
def test_a_child_ends_by_itself_when_its_supervisor_was_killed(tmp_path: Path, manner: str) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path), CHILD, manner]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as parent:
        log = tmp_path / "child.log"
        wait_until(lambda: log.exists() and log.read_text().endswith("\n"))
        pid = int(log.read_text().split()[1])
        parent.kill()
    wait_until(lambda: is_gone(pid))
    assert log.read_text().splitlines()[1:] == ["asked to end"]


def test_a_patient_supervisor_lets_a_child_rest_longer_each_time(supervise: Supervise) -> None:
    failing, wrong = python("a", "raise SystemExit(1)"), python("b", "raise SystemExit(2)")
    failing.backoff = Backoff(0.01, 0.02, rng=random.Random(0))
    supervisor = supervise(failing, wrong, patient=True, restarts=0)
    events = events_of(supervisor, 8)
    assert {event.name for event in events} == {"a", "b"}
    assert failing.backoff.attempts >= 7
    assert not failing.given_up
    assert (wrong.finished, wrong.given_up) == (True, True)
    first = next(event for event in events if event.name == "b")
    assert supervisor.said_of(first) == "b ended with code 2: it said nothing; it is not started again"


def test_a_child_that_ran_for_a_while_has_recovered(supervise: Supervise) -> None:
    child = python("a", "raise SystemExit(1)")
    child.backoff = Backoff(0.01, 0.02)
    supervisor = supervise(child, patient=True, window_seconds=0.0)
    events_of(supervisor, 4)
    assert child.backoff.attempts == 1
