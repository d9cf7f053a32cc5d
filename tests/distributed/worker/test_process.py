"""The Worker's host in this process, with a Shepherd that is a script and a trainer that computes nothing."""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pcp.distributed.job import InvalidJob, Job, JobUnsigned, Term, signed
from pcp.distributed.messages import (
    Assign,
    Blob,
    DataRange,
    Failure,
    FailureKind,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Lease,
    Message,
    Outcome,
    Ready,
    Revoke,
    Update,
    UpdateReply,
    Welcome,
)
from pcp.distributed.verification import ProgramRefused
from pcp.distributed.wire import (
    BlobStore,
    ControlConnection,
    RefusalCode,
    RefusedByPeer,
    WireServer,
)
from pcp.distributed.worker import workshop
from pcp.distributed.worker.effects import Stop
from pcp.distributed.worker.failures import NotOffered
from pcp.distributed.worker.offer import EVERYTHING
from pcp.distributed.worker.process import WorkerProcess
from pcp.distributed.worker.training.inbox import Inbox
from pcp.distributed.worker.training.trainer import LeaseAborted, LeaseRefused, Trained
from pcp.distributed.worker.ways import wire
from pcp.distributed.worker.ways.wire import WireWay
from tests.distributed.tiny_run import lease_of
from tests.distributed.wire.loopback import Run

SECONDS = 30.0
FINISHED = Goodbye(True, "the run is complete")
Script = Callable[[ControlConnection], Awaitable[None]]


class Trainer:
    """Stands for `TrainingProcess`: a test says what happens when it is made, and when it trains."""

    made: Callable[[], None]
    trains: Callable[[Lease, Callable[[], bool]], None]

    def __init__(self, _job: Job, store: BlobStore, *_: object) -> None:
        type(self).made()
        self._store = store
        self.profile = None
        self.inbox = Inbox()

    def close(self) -> None:
        """There is no process."""

    async def train(
        self, lease: Lease, progress: Callable[[int, float], None], aborted: Callable[[], bool], _: object
    ) -> Trained:
        progress(1, 0.5)
        type(self).trains(lease, aborted)
        return Trained(self._store.put(f"delta {lease.lease_id}".encode()), 48, (2.0,) * 3, 0.1, 0.01)


@pytest.fixture(autouse=True)
def trainer(monkeypatch: pytest.MonkeyPatch) -> type[Trainer]:
    monkeypatch.setattr(wire, "TrainingProcess", Trainer)
    Trainer.made = staticmethod(lambda: None)
    Trainer.trains = staticmethod(lambda _lease, _aborted: None)
    return Trainer


def trains_until_aborted(trainer: type[Trainer]) -> tuple[threading.Event, threading.Event]:
    """Let the first lease be trained until it is given up; returns what tells of its beginning and of its end."""
    begun, ended = threading.Event(), threading.Event()

    def trains(lease: Lease, aborted: Callable[[], bool]) -> None:
        if lease.lease_id == 1:
            begun.set()
            while not aborted():
                threading.Event().wait(0.005)
            ended.set()
            raise LeaseAborted

    trainer.trains = staticmethod(trains)
    return begun, ended


class Shepherd:
    """Scripts, one for each connection that comes, and what workers said."""

    def __init__(self, folder: Path) -> None:
        self.wire = Run(folder)
        self.folder = folder
        names = ("start", "restart", "step", "flat.0", "put.0", "push.0")
        self.job = Job(
            {name: self.wire.store.put(name.encode()) for name in names},
            self.wire.store.put(b"tokens"),
            2,
            8,
            1,
            11,
        )
        self.parameters = [self.wire.store.put(f"parameters {number}".encode()) for number in range(4)]
        self.heard: list[Message] = []
        self.worker: WorkerProcess | None = None
        self.offer = EVERYTHING

    def welcome(self, run: str | None = None, blobs: tuple[Blob, ...] | None = None) -> Welcome:
        offered = self.job.offered if blobs is None else blobs
        return Welcome(1, 5, "run", 0.5, self.signed(run), offered)

    def signed(self, run: str | None = None) -> str:
        """A description, by default that of the job, signed if it is one."""
        run = self.job.to_json() if run is None else run
        return signed(run, self.wire.authority.sign, Term.of("run", time.time()))

    async def begin(self, connection: ControlConnection) -> None:
        """Welcome a worker, and wait until it is ready."""
        connection.post(self.welcome())
        await self.next(connection, Ready)

    async def next(self, connection: ControlConnection, kind: type) -> Any:
        while (message := await connection.receive()) is not None:
            self.heard.append(message)
            if isinstance(message, Heartbeat):
                connection.post(HeartbeatReply(message.sequence))
            if isinstance(message, kind):
                return message
        return None

    def assign(self, connection: ControlConnection, number: int) -> Lease:
        lease = lease_of(number, DataRange(3 * number, 3), self.parameters[number])
        lease = Lease(**{name: getattr(lease, name) for name in Lease.__slots__} | {"generation": 5})
        connection.post(Assign(lease))
        return lease

    def run(self, *scripts: Script) -> Stop:
        """Run one worker until it ends, with a script for each of its connections."""
        return asyncio.run(self._run(list(scripts)))

    async def _run(self, scripts: list[Script]) -> Stop:
        failures: list[BaseException] = []

        async def on_worker(connection: ControlConnection, _: Hello) -> None:
            try:
                await scripts.pop(0)(connection)
            except BaseException as error:
                failures.append(error)
                raise

        self.wire.permissions.announce([*self.job.offered, *self.parameters])
        self.wire.permissions.allow_push("ada", 1 << 20)
        self.server: WireServer = await self.wire.serve(on_worker)
        self.on_worker = on_worker
        address = f"127.0.0.1:{self.server.port}"
        way = WireWay(address, self.wire.worker())
        self.worker = WorkerProcess(way, self.folder / "ada", "cpu:0", 1 << 30, self.offer)
        try:
            async with asyncio.timeout(SECONDS):
                return await self.worker.run()
        finally:
            await self.server.close()
            assert not failures, failures

    async def restart(self) -> None:
        """End every connection without a word, and listen on the same port again."""
        port = self.server.port
        await self.server.close()
        self.server = await WireServer.start(
            "127.0.0.1", port, self.wire.shepherd, self.on_worker, self.wire.store, self.wire.permissions
        )


@pytest.fixture
def shepherd(tmp_path: Path) -> Shepherd:
    return Shepherd(tmp_path)


def test_leases_are_fetched_trained_pushed_and_told(shepherd: Shepherd) -> None:
    async def script(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        for number in (1, 2):
            lease = shepherd.assign(connection, number)
            update = await shepherd.next(connection, Update)
            assert (update.lease_id, update.steps, update.tokens) == (number, 3, 48)
            assert shepherd.wire.store.get(update.payload) == f"delta {lease.lease_id}".encode()
            connection.post(UpdateReply(number, Outcome.ADMITTED, ""))
        await connection.close(FINISHED)

    assert shepherd.run(script) == Stop(True, "the run is complete")
    kept = {blob.digest.hex() for blob in shepherd.job.blobs}
    assert {path.name for path in (shepherd.folder / "ada").iterdir()} == kept


def test_blobs_that_an_earlier_process_left_are_removed(shepherd: Shepherd) -> None:
    left = BlobStore(shepherd.folder / "ada").put(b"an old pseudo-gradient")

    async def script(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        assert not BlobStore(shepherd.folder / "ada").has(left)
        await connection.close(FINISHED)

    assert shepherd.run(script).finished


def test_a_revoked_lease_is_given_up_and_the_next_is_trained(
    shepherd: Shepherd, trainer: type[Trainer]
) -> None:
    begun, given_up = trains_until_aborted(trainer)

    async def script(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        shepherd.assign(connection, 1)
        assert await asyncio.to_thread(begun.wait, SECONDS)
        connection.post(Revoke(1, "expired"))
        assert await asyncio.to_thread(given_up.wait, SECONDS)
        shepherd.assign(connection, 2)
        assert (await shepherd.next(connection, Update)).lease_id == 2
        await connection.close(FINISHED)

    assert shepherd.run(script).finished


def test_a_lease_that_cannot_be_trained_is_a_failure_and_the_worker_stays(
    shepherd: Shepherd, trainer: type[Trainer]
) -> None:
    def trains(lease: Lease, _aborted: Callable[[], bool]) -> None:
        if lease.lease_id == 1:
            raise LeaseRefused("lease 1 asks for 0 steps")

    trainer.trains = staticmethod(trains)

    async def script(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        shepherd.assign(connection, 1)
        assert await shepherd.next(connection, Failure) == Failure(5, 1, "lease 1 asks for 0 steps")
        shepherd.assign(connection, 2)
        assert (await shepherd.next(connection, Update)).lease_id == 2
        await connection.close(FINISHED)

    assert shepherd.run(script).finished


def test_parameters_that_the_shepherd_does_not_have_are_a_failure(shepherd: Shepherd) -> None:
    async def script(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        shepherd.wire.store.remove(shepherd.parameters[1].digest)
        shepherd.assign(connection, 1)
        failure = await shepherd.next(connection, Failure)
        assert (failure.lease_id, failure.reason.split(":")[0]) == (1, "fragment 0 cannot be fetched")
        await connection.close(FINISHED)

    assert shepherd.run(script).finished


def test_a_bug_in_training_ends_the_process_with_its_traceback(
    shepherd: Shepherd, trainer: type[Trainer]
) -> None:
    def trains(_lease: Lease, _aborted: Callable[[], bool]) -> None:
        raise ZeroDivisionError("a bug")

    trainer.trains = staticmethod(trains)

    async def script(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        shepherd.assign(connection, 1)
        goodbye = await shepherd.next(connection, Goodbye)
        assert goodbye == Goodbye(False, "the worker failed; its log says why")

    with pytest.raises(ZeroDivisionError, match="a bug") as raised:
        shepherd.run(script)
    assert any(entry.name == "_train" for entry in raised.traceback)


def test_a_program_that_is_refused_is_told_and_ends_the_worker(
    shepherd: Shepherd, trainer: type[Trainer]
) -> None:
    words = "the program 'step' is refused: it would run native code"

    def made() -> None:
        raise ProgramRefused(words)

    trainer.made = staticmethod(made)

    async def script(connection: ControlConnection) -> None:
        connection.post(shepherd.welcome())
        failure = await shepherd.next(connection, Failure)
        assert failure == Failure(5, 0, words, FailureKind.REFUSED)

    with pytest.raises(ProgramRefused, match="it would run native code"):
        shepherd.run(script)


@pytest.mark.parametrize(
    ("run", "blobs", "error", "message"),
    [
        ("{}", None, InvalidJob, "the description of the run cannot be read"),
        (
            json.dumps({"version": 9}),
            None,
            InvalidJob,
            "described in version 9; this PCP understands 6, 7 and 8",
        ),
        (None, (), NotOffered, r"the run names blob \w{16}, which the Shepherd does not offer"),
    ],
)
def test_a_run_that_makes_no_sense_ends_the_worker(
    shepherd: Shepherd, run: str | None, blobs: Any, error: type[Exception], message: str
) -> None:
    async def script(connection: ControlConnection) -> None:
        connection.post(shepherd.welcome(run, blobs))
        assert (await shepherd.next(connection, Failure)).lease_id == 0

    with pytest.raises(error, match=message):
        shepherd.run(script)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda job: job.to_json(), "the description of the run bears no signature"),
        (lambda _job: "[" * 100_000, "cannot be read"),
    ],
)
def test_a_run_that_is_not_signed_ends_the_worker(shepherd: Shepherd, change: Any, message: str) -> None:
    shepherd.signed = lambda _run=None: change(shepherd.job)  # type: ignore[method-assign]  # as a Shepherd that was taken over

    async def script(connection: ControlConnection) -> None:
        connection.post(shepherd.welcome())
        assert (await shepherd.next(connection, Failure)).lease_id == 0

    with pytest.raises((JobUnsigned, InvalidJob), match=message):
        shepherd.run(script)


def test_a_shepherd_that_was_taken_over_cannot_offer_other_programs(shepherd: Shepherd) -> None:
    """It has what the authority signed once, its own key, and that of a stranger."""
    content = json.loads(shepherd.signed())
    content["programs"]["step"] = content["programs"]["start"]
    shepherd.signed = lambda _run=None: json.dumps(content)  # type: ignore[method-assign]  # with the old signature

    async def script(connection: ControlConnection) -> None:
        connection.post(shepherd.welcome())
        failure = await shepherd.next(connection, Failure)
        assert (failure.lease_id, failure.kind) == (0, FailureKind.UNSIGNED)

    with pytest.raises(JobUnsigned, match="offers other programs or settings than the run's owner signed"):
        shepherd.run(script)


def test_a_blob_that_cannot_be_fetched_now_is_tried_again(shepherd: Shepherd) -> None:
    content = shepherd.wire.store.get(shepherd.job.data)
    shepherd.wire.store.remove(shepherd.job.data.digest)

    async def first(connection: ControlConnection) -> None:
        connection.post(shepherd.welcome())
        assert (await shepherd.next(connection, Failure)).lease_id == 0
        shepherd.wire.store.put(content)

    async def second(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        await connection.close(FINISHED)

    assert shepherd.run(first, second).finished


def test_a_goodbye_instead_of_a_welcome_is_heard(shepherd: Shepherd) -> None:
    async def not_now(connection: ControlConnection) -> None:
        await connection.close(Goodbye(False, "another live process is ada"))

    async def over(connection: ControlConnection) -> None:
        await connection.close(FINISHED)

    assert shepherd.run(not_now, over) == Stop(True, "the run is complete")


@pytest.mark.parametrize("code", [RefusalCode.VERSION, RefusalCode.IDENTITY])
def test_a_refusal_that_lasts_ends_the_worker(shepherd: Shepherd, code: RefusalCode) -> None:
    async def script(connection: ControlConnection) -> None:
        await connection.refuse(code, "the Shepherd speaks protocol version 2")

    with pytest.raises(RefusedByPeer, match="the Shepherd speaks protocol version 2"):
        shepherd.run(script)


def test_a_refusal_that_passes_is_waited_out(shepherd: Shepherd) -> None:
    async def busy(connection: ControlConnection) -> None:
        await connection.refuse(RefusalCode.CAPACITY, "too many workers")

    async def over(connection: ControlConnection) -> None:
        await connection.close(FINISHED)

    assert shepherd.run(busy, over).finished


def test_a_shepherd_that_vanishes_is_looked_for_and_the_lease_goes_on(
    shepherd: Shepherd, trainer: type[Trainer], caplog: pytest.LogCaptureFixture
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def trains(_lease: Lease, _aborted: Callable[[], bool]) -> None:
        begun.set()
        assert go_on.wait(SECONDS)

    trainer.trains = staticmethod(trains)
    restarting: list[asyncio.Task[None]] = []

    async def first(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        shepherd.assign(connection, 1)
        assert await asyncio.to_thread(begun.wait, SECONDS)
        restarting.append(asyncio.create_task(shepherd.restart()))

    async def second(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        go_on.set()
        assert (await shepherd.next(connection, Update)).lease_id == 1
        await connection.close(FINISHED)

    assert shepherd.run(first, second).finished
    assert "no connection to the Shepherd" in caplog.text


def test_a_worker_that_is_asked_to_stop_gives_its_lease_back(
    shepherd: Shepherd, trainer: type[Trainer]
) -> None:
    begun, ended = trains_until_aborted(trainer)

    async def script(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        shepherd.assign(connection, 1)
        assert await asyncio.to_thread(begun.wait, SECONDS)
        assert shepherd.worker is not None
        shepherd.worker.stop("enough")
        assert await shepherd.next(connection, Goodbye) == Goodbye(False, "enough")

    assert shepherd.run(script) == Stop(False, "enough")
    assert ended.is_set()


def test_a_program_without_end_cannot_keep_the_worker(
    shepherd: Shepherd, trainer: type[Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def trains(_lease: Lease, _aborted: Callable[[], bool]) -> None:
        begun.set()
        go_on.wait(SECONDS)

    trainer.trains = staticmethod(trains)
    monkeypatch.setattr(workshop, "GRACE_SECONDS", 0.05)

    async def script(connection: ControlConnection) -> None:
        await shepherd.begin(connection)
        shepherd.assign(connection, 1)
        assert await asyncio.to_thread(begun.wait, SECONDS)
        assert shepherd.worker is not None
        shepherd.worker.stop("enough")
        await shepherd.next(connection, Goodbye)

    assert shepherd.run(script) == Stop(False, "enough")
    go_on.set()
