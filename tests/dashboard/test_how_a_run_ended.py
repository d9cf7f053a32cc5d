"""`state_of` for every end of a run of one process, which a Shepherd's records tell otherwise."""

import contextlib
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pcp.cli import main
from pcp.dashboard.follower import Follower
from pcp.training.display.fleet import state_of
from pcp.training.recipes.config import TrainingConfig
from pcp.training.run_folder import RunFolder
from pcp.training.running import RunInUse, life_of, running
from tests.dashboard.written import add, written_run


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "run", TrainingConfig())
    add(folder, time.time() - 3600, step=10, loss=2.5)
    return folder


def state(folder: RunFolder) -> str:
    return state_of(Follower(folder).update().summary(time.time()))


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (None, "complete"),
        (KeyboardInterrupt(), "stopped: interrupted"),
        (SystemExit(143), "stopped: interrupted"),
        (ValueError("7"), "stopped: failed: ValueError: 7"),
    ],
)
def test_an_end_that_was_told(folder: RunFolder, error: BaseException | None, shown: str) -> None:
    with contextlib.suppress(BaseException), running(folder):
        if error is not None:
            raise error
    assert state(folder) == shown
    with running(folder):
        assert state(folder).startswith("running; nothing new for 1:00:0"), "it was resumed"
    assert state(folder) == "complete"


def test_a_run_of_a_version_that_told_no_end(folder: RunFolder) -> None:
    assert state(folder).startswith("silent for 1:00:0")
    add(folder, time.time() - 3600, step=2000, validation_loss=2.5)
    assert state(folder) == "complete"


def test_one_that_is_alive_is_not_called_killed_and_one_that_is_not_is(folder: RunFolder) -> None:
    assert life_of(folder) is None
    with running(folder):
        assert state(folder).startswith("running; nothing new for 1:00:0")
        with (
            pytest.raises(RunInUse, match=r"another process trains in .*run; wait for its end or stop it"),
            running(folder),
        ):
            pass
    folder.running_file.write_bytes(b"")  # as it is while it runs
    assert state(folder) == "killed: its process is gone, and said nothing of an end"


def test_status_says_it(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    folder.running_file.touch()
    assert main(["status", str(folder.path)]) == 0
    assert capsys.readouterr().out.startswith("run: killed: its process is gone")


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written_run(tmp_path / "run")
    follower, later = Follower(folder), time.time() + 120
    assert state_of(follower.update().summary(later)).endswith(
        "killed, or it hangs; what is shown is as old as that"
    )
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4096))
    shown = state_of(follower.update().summary(later))
    assert shown.startswith("silent for 2:0")
    assert shown.endswith(": its disk has no room; what is shown is as old as that")
    assert state_of(follower.update().summary(time.time())) == "running"
