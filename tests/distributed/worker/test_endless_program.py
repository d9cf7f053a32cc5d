"""A worker in a process of its own, with a program that does not end: it stops within seconds, and says what it did."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pcp.distributed.messages import (
    Failure,
    FailureKind,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Revoke,
    Update,
)
from pcp.distributed.wire import ControlConnection, WireServer
from tests.distributed.worker.test_process import Shepherd

SECONDS = 90.0

WORKER = """
import sys
from pcp.cli import main
from pcp.distributed.worker import workshop
from pcp.distributed.worker.programs import training_process
from tests.distributed.worker import endless_child

training_process._CHILD = endless_child.__name__
workshop.GRACE_SECONDS = workshop.LONGEST_STUCK_SECONDS = 1.0
arguments = ["worker", "--connect", sys.argv[1], "--key", sys.argv[2], "--folder", sys.argv[3]]
sys.exit(main([*arguments, "--memory", "512MiB"]))
"""

Script = Callable[[Shepherd, ControlConnection, subprocess.Popen[bytes]], Awaitable[None]]


def run(folder: Path, script: Script) -> tuple[int, str]:
    """Let a worker train a lease that never ends, and a script of the Shepherd follow; its exit code and its words."""
    return asyncio.run(_run(folder, script))


async def _run(folder: Path, script: Script) -> tuple[int, str]:
    shepherd, done = Shepherd(folder), asyncio.get_running_loop().create_future()
    worker: subprocess.Popen[bytes] | None = None

    async def on_worker(connection: ControlConnection, _: Hello) -> None:
        try:
            await shepherd.begin(connection)
            lease = shepherd.assign(connection, 1)
            while (await shepherd.next(connection, Heartbeat)).lease_id != lease.lease_id:
                pass
            assert worker is not None
            await script(shepherd, connection, worker)
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    shepherd.wire.permissions.allow_push("ada", 1 << 20)
    shepherd.wire.permissions.announce([*shepherd.job.blobs, *shepherd.parameters])
    server: WireServer = await shepherd.wire.serve(on_worker)
    shepherd.wire.worker().save_bundle(folder / "ada.pem")
    words = folder / "words"
    arguments = [f"127.0.0.1:{server.port}", str(folder / "ada.pem"), str(folder / "files")]
    try:
        with words.open("wb") as file:
            worker = subprocess.Popen(
                [sys.executable, "-c", WORKER, *arguments],
                stderr=file,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PCP_LOG": "INFO", "PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,
            )
        async with asyncio.timeout(SECONDS):
            await done
            code = await asyncio.to_thread(worker.wait, SECONDS)
        return code, words.read_text()
    finally:
        if worker is not None:
            worker.kill()
            worker.wait()
        await server.close()


@pytest.mark.share(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_stopped_inside_an_endless_program_ends_well(
    tmp_path: Path, number: signal.Signals
) -> None:
    async def script(_: Shepherd, connection: ControlConnection, worker: subprocess.Popen[bytes]) -> None:
        worker.send_signal(number)
        heard: list[Message] = []
        while (message := await connection.receive()) is not None:
            heard.append(message)
            if isinstance(message, Goodbye):
                assert message == Goodbye(False, f"the worker received {number.name}")
                break

    code, words = run(tmp_path, script)
    assert code == 128 + number, words
    assert f"worker ada ends: the worker received {number.name}" in words
    assert "FATAL" not in words
    assert "Traceback" not in words


@pytest.mark.runs
def test_programs_that_take_too_much_are_ended_and_the_worker_goes_on(tmp_path: Path) -> None:
    """The first never ends, the second takes more memory than is offered; the third is trained."""

    async def script(shepherd: Shepherd, connection: ControlConnection, _: subprocess.Popen[bytes]) -> None:
        connection.post(Revoke(1, "expired: nothing came of it in 30.0 s"))
        failure = await shepherd.next(connection, Failure)
        assert (failure.lease_id, failure.kind) == (1, FailureKind.ENDLESS)
        assert (
            failure.reason
            == "lease 1 was given up, but its program still ran 1 s later: its process was ended"
        )
        shepherd.assign(connection, 2)
        failure = await shepherd.next(connection, Failure)
        assert (failure.lease_id, failure.kind) == (2, FailureKind.MEMORY)
        shepherd.assign(connection, 3)
        assert (await shepherd.next(connection, Update)).lease_id == 3
        await connection.close(Goodbye(True, "the run is complete"))

    code, words = run(tmp_path, script)
    assert code == 0, words
    assert "lease 1 is given up: expired: nothing came of it in 30.0 s" in words
    assert "pcp: programs are verified and run under " in words
    assert "FATAL" not in words
    assert "Traceback" not in words
