"""Ctrl-C in a process that plans: it ends within a second, whatever it is doing, and leaves nothing behind."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pcp
from pcp import ops
from pcp.planning.profile.database import ProfileDatabase

SECONDS = 1.0
LOADED = 4.0
"""How much longer than on a machine that does nothing else."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that takes many seconds to compile."""

    def long(x: pcp.Tensor, w: pcp.Tensor) -> pcp.Tensor:
        for index in range(800):
            x = ops.tanh(x @ w) * 1.01 if index % 5 == 0 else ops.sin(x) + index
        return x.sum()

    file = tmp_path_factory.mktemp("program") / "long.pcp"
    pcp.trace(long, *[pcp.spec((64, 64), "f32")] * 2).save(file)
    return file


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Folders of its own, but for native libraries: what is interrupted is planning, and not a C++ compiler."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "cache" / "pcp").mkdir(parents=True)
    (tmp_path / "cache" / "pcp" / "native").symlink_to(os.environ["PCP_TEST_BUILDS"])
    return os.environ | {"TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def _children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children")
    return [int(number) for number in listed.read_text().split()] if listed.exists() else []


def _wait(what: Callable[[], object], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _compiles_in_child(process: int, folder: Path) -> bool:
    children = _children(process)
    return (
        bool(children)
        and any(folder.glob("tmp/pcp-bench-*/*.mlirbc"))
        and len(os.listdir(f"/proc/{children[0]}/task")) > 8
    )


@pytest.mark.parametrize(
    ("command", "moment", "code"),
    [
        (["plan", "--tolerance", "1e-2"], "child", 130),
        pytest.param(["plan", "--tolerance", "1e-2"], "turn", 130, marks=pytest.mark.long),
        (["plan"], "compiling", 130),
        pytest.param(["explore"], "child", 130, marks=pytest.mark.long),
    ],
)
def test_ctrl_c(
    command: list[str], moment: str, code: int, program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    database = tmp_path / "profile.sqlite"
    turn = os.open(tmp_path / "profile.sqlite.turn", os.O_RDWR | os.O_CREAT, 0o600)
    if moment == "turn":
        fcntl.flock(turn, fcntl.LOCK_EX)
    name, *options = command
    with (
        (tmp_path / "log").open("w") as said,
        subprocess.Popen(
            [sys.executable, "-m", "pcp", name, str(program), "--database", str(database), *options],
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=environment | {"PCP_LOG": "INFO"},
            text=True,
        ) as process,
    ):
        moments: dict[str, Callable[[], object]] = {
            "child": lambda: _compiles_in_child(process.pid, tmp_path),
            "turn": lambda: "waiting for it" in (tmp_path / "log").read_text(),
            "compiling": lambda: list(tmp_path.glob("cache/pcp/xla/*.lock")),
        }
        _wait(moments[moment], process)
        children = _children(process.pid)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == code, (tmp_path / "log").read_text()
        assert time.monotonic() - began < SECONDS * LOADED
    os.close(turn)
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert "interrupted" in log
    assert not list((tmp_path / "tmp").iterdir())
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    if database.exists():
        assert all(row.failure is None for row in ProfileDatabase(database).measurements())


def test_a_process_that_is_asked_to_end_cleans_up(
    program: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "pcp", "plan", str(program), "--tolerance", "1e-2"],
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
    ) as process:
        _wait(lambda: _compiles_in_child(process.pid, tmp_path), process)
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    assert not list((tmp_path / "tmp").iterdir())
