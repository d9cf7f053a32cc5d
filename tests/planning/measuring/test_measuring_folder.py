"""The folder that a bench shares with its child: what happens where it cannot be written, and where it was left behind."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pcp
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.folder import (
    OWNER,
    PREFIX,
    PREFIXES,
    VERIFYING,
    MeasuringFolder,
    TemporaryFolderUnusable,
    sweep,
)
from pcp.planning.verification import CandidateProcess

HOLD = """
import sys
from pcp.planning.measuring.folder import MeasuringFolder
folder = MeasuringFolder(sys.argv[1])
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.fixture(params=PREFIXES)
def other(temporary: Path, request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[str]"]:
    """Another process that has such a folder."""
    assert temporary.exists()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, request.param], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        yield process
        process.kill()


def test_what_a_killed_process_left_behind_is_removed(
    temporary: Path, other: "subprocess.Popen[str]"
) -> None:
    assert other.stdout is not None
    left = Path(other.stdout.readline().strip())
    (left / "input.npy").write_bytes(b"large")
    folder = MeasuringFolder()
    assert left.exists()  # its process lives
    assert (left / OWNER).read_text().split()[0] == str(other.pid)
    other.send_signal(signal.SIGKILL)
    other.wait()
    another = MeasuringFolder()
    assert set(temporary.glob(f"{PREFIX}*")) == {folder.path, another.path}
    folder.remove()
    another.remove()
    assert not list(temporary.iterdir())


def test_what_is_not_ours_is_left_alone(temporary: Path) -> None:
    target = temporary / "target"
    target.mkdir()
    (target / OWNER).write_text("1 1")
    (temporary / f"{PREFIX}link").symlink_to(target)
    (temporary / f"{PREFIX}new").mkdir()  # its owner is about to be written
    (temporary / f"{PREFIX}file").write_text("")
    sweep(temporary)
    assert len(list(temporary.iterdir())) == 4
    assert (target / OWNER).exists()


def test_a_folder_of_another_user_is_left_alone(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = temporary / f"{PREFIX}other"
    left.mkdir()
    (left / OWNER).write_text("1 1")
    monkeypatch.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
    sweep(temporary)
    assert left.exists()
    monkeypatch.undo()
    sweep(temporary)
    assert not left.exists()


def test_a_process_for_kernels_from_outside_has_such_a_folder(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = temporary / f"{VERIFYING}left"
    left.mkdir()
    (left / OWNER).write_text("1 1")
    with CandidateProcess("cpu:0"):
        [folder] = temporary.iterdir()
        assert folder != left
        assert folder.name.startswith(VERIFYING)
        assert (folder / OWNER).read_text().split()[0] == str(os.getpid())
    assert not list(temporary.iterdir())
    monkeypatch.setenv("TMPDIR", str(temporary / "none"))
    with pytest.raises(TemporaryFolderUnusable, match=r"temporary files, .*none, but: No such file"):
        CandidateProcess("cpu:0")


def test_a_folder_for_temporary_files_that_is_missing(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(temporary / "none"))
    program = pcp.trace(lambda x: x @ x, pcp.spec((8, 8), "f32"))
    match = (
        r"temporary files, .*none, but: No such file.*make it a folder that you may write to, or set TMPDIR"
    )
    with pytest.raises(TemporaryFolderUnusable, match=match):
        pcp.plan(program, tolerance=1e-2, database=temporary / "profile.sqlite")


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), OSError("262144 requested and 6128 written")]
)
def test_a_full_folder_for_temporary_files(
    error: OSError, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(*_: object, **__: object) -> None:
        raise error

    program = pcp.trace(lambda x: x @ x, pcp.spec((8, 8), "f32"))
    monkeypatch.setattr(np, "save", save)
    x = np.random.default_rng().standard_normal((8, 8)).astype(np.float32)
    with pytest.raises(
        TemporaryFolderUnusable,
        match=rf"temporary files, {temporary}, but.*free some space there, or set TMPDIR",
    ):
        pcp.plan(program, tolerance=1e-2, example=(x,), database=temporary / "profile.sqlite")
    assert not list(temporary.glob(f"{PREFIX}*"))


def test_a_bench_removes_its_folder(temporary: Path) -> None:
    with Bench():
        assert len(list(temporary.iterdir())) == 1
    assert not list(temporary.iterdir())
