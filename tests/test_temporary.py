"""Folders for temporary files: what happens where they cannot be written, and to those that a killed process left behind."""

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
from pcp.temporary import (
    CONFINED,
    LIKE_A_USERS,
    LOWERING,
    MEASURING,
    OWNER,
    PREFIXES,
    WORKING,
    TemporaryFolder,
    TemporaryFolderUnusable,
    _signed,
    sweep,
)

HOLD = """
import sys
from pcp.temporary import TemporaryFolder
folder = TemporaryFolder(sys.argv[1])
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def left_behind(parent: Path, name: str) -> Path:
    """A folder whose process has ended without removing it."""
    folder = parent / name
    folder.mkdir()
    (folder / OWNER).write_text(_signed(folder, "1 1"))
    return folder


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
    folder = TemporaryFolder()
    assert left.exists()  # its process lives
    assert (left / OWNER).read_text().split()[0] == str(other.pid)
    other.send_signal(signal.SIGKILL)
    other.wait()
    another = TemporaryFolder()
    assert set(temporary.glob(f"{MEASURING}*")) == {folder.path, another.path}
    folder.remove()
    another.remove()
    assert not list(temporary.iterdir())


def test_what_is_not_ours_is_left_alone(temporary: Path) -> None:
    target = temporary / "target"
    target.mkdir()
    (target / OWNER).write_text(_signed(target, "1 1"))
    (temporary / f"{MEASURING}link").symlink_to(target)
    (temporary / f"{MEASURING}new").mkdir()  # its owner is about to be written
    (temporary / f"{MEASURING}file").write_text("")
    for name, owner in (
        ("run-ours", "1 1"),
        ("run-theirs", f"1 1 {'0' * 16}"),
    ):  # others name folders so, too
        (temporary / name).mkdir()
        (temporary / name / OWNER).write_text(owner)
    sweep(temporary)
    assert len(list(temporary.iterdir())) == 6
    assert (target / OWNER).exists()


def test_a_folder_of_another_user_is_left_alone(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = left_behind(temporary, f"{MEASURING}other")
    monkeypatch.setattr(os, "getuid", lambda: left.stat().st_uid + 1)
    sweep(temporary)
    assert left.exists()
    monkeypatch.undo()
    sweep(temporary)
    assert not left.exists()


def test_a_process_for_kernels_from_outside_has_such_a_folder(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = left_behind(temporary, f"{MEASURING}left")
    with Bench():
        [folder] = temporary.iterdir()
        assert folder != left
        assert folder.name.startswith(MEASURING)
        assert (folder / OWNER).read_text().split()[0] == str(os.getpid())
    assert not list(temporary.iterdir())
    monkeypatch.setenv("TMPDIR", str(temporary / "none"))
    with pytest.raises(TemporaryFolderUnusable, match=r"temporary files, .*none, but: No such file"):
        Bench()


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
    assert not list(temporary.glob(f"{MEASURING}*"))


KILLED = {
    LIKE_A_USERS: """
from pcp.backends import device
from pcp.kernels.candidate import read_candidate
from pcp.planning.verification import user_process
user_process._ended = lambda folder, _: wait(folder)
candidate = read_candidate(sys.argv[1])
user_process.run_as_user(candidate, device("cpu:0"), [], [], 0)
""",
    LOWERING: """
from pcp.kernels.candidate import read_candidate
from pcp.planning.added import lowering_process
from pcp.processes import child
child.subprocess.Popen = lambda *_, **__: wait(next(Path(os.environ["TMPDIR"]).iterdir()))
candidate = read_candidate(sys.argv[1])
lowering_process.lowered_by_child(candidate, candidate.problems[0], lowering_process.as_the_user, 60.0)
""",
    WORKING: """
from argparse import Namespace
from pcp.cli import worker
worker.Credentials.load_bundle = lambda _: None
worker.WireWay = lambda *_: None
worker.WorkerProcess = lambda _way, folder, *_: wait(folder.parent)
worker.protection = lambda _: "nothing"
given = {"supervised": False, "cpus": None, "key": [""], "device": "cpu:0", "disk": 1, "memory": None}
given |= {"print": None, "devices": None, "listen": None, "data": None, "json": True, "artifact_only": None}
worker.run(Namespace(connect="127.0.0.1:1", folder=None, **given))
""",
    CONFINED: """
from pcp.distributed.sandbox import policy
policy.Policy.make_folders = lambda self: wait(self.folder.parent)
policy.protection()
""",
}
"""What makes a folder of each kind, and waits in the midst of its work."""
WAIT = """
import os, sys
from pathlib import Path
def wait(folder):
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("prefix", KILLED)
def test_the_folders_of_killed_work_of_every_kind_are_removed(prefix: str, temporary: Path) -> None:
    kernel = Path(__file__).parent.parent / "examples" / "kernels" / "softmax_bf16"
    command = [sys.executable, "-c", WAIT + KILLED[prefix], str(kernel)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            left = Path(process.stdout.readline().strip())
            assert left.parent == temporary
            assert left.name.startswith(prefix)
            sweep(temporary)
            assert left.exists()  # its process lives
        finally:
            process.kill()
    sweep(temporary)
    assert not left.exists()


def test_a_bench_removes_its_folder(temporary: Path) -> None:
    with Bench():
        assert len(list(temporary.iterdir())) == 1
    assert not list(temporary.iterdir())
