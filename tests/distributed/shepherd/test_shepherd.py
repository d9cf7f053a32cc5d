"""The Shepherd's host in this process, with workers that are scripts: what it does when something fails or is interrupted."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.distributed.tiny_run import assert_equal_arrays, tiny_recipe

from pcp.distributed.coordinator import EventLogWriteFailed, RunLocked
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.messages import (
    Assign,
    Blob,
    Goodbye,
    Hello,
    Lease,
    Outcome,
    Ready,
    Update,
    UpdateReply,
    Welcome,
)
from pcp.distributed.round_arithmetic.array_blobs import store_arrays
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.shepherd import uploads
from pcp.distributed.shepherd.evaluation import Evaluator
from pcp.distributed.shepherd.merger import Merger
from pcp.distributed.shepherd.process import Shepherd
from pcp.distributed.wire import (
    Authority,
    BlobStore,
    BulkClient,
    CertificateRefused,
    ControlConnection,
    RefusedByPeer,
    connect,
)
from pcp.distributed.wire.blob_files import StoreFull
from pcp.errors import PCPError
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder, load_state

SECONDS = 60.0
Script = Callable[["Worker"], Awaitable[None]]


class Worker:
    """A worker that a test plays."""

    def __init__(
        self, connection: ControlConnection, bulk: BulkClient, store: BlobStore, recipe: Recipe
    ) -> None:
        self.connection = connection
        self.bulk = bulk
        self.store = store
        self.recipe = recipe
        assert isinstance(connection.answer, Welcome)
        self.generation = connection.answer.generation
        self.welcome = connection.answer

    async def next(self, *kinds: type) -> Any:
        """The next message of one of these kinds; None at the end of the connection."""
        while (message := await self.connection.receive()) is not None:
            if isinstance(message, kinds):
                return message
        return None

    async def lease(self) -> Lease:
        assign = await self.next(Assign)
        assert isinstance(assign, Assign)
        return assign.lease

    async def upload(self, lease: Lease, delta: Any) -> Update:
        """Upload a push and tell of it."""
        blob = store_arrays(self.store, delta)
        await asyncio.to_thread(self.bulk.push, blob, self.store)
        return self.tell(lease, blob)

    def tell(self, lease: Lease, blob: Blob) -> Update:
        """Tell of a push."""
        count = lease.data.count
        tokens = count * self.recipe.tokens_per_step
        update = Update(
            lease.lease_id,
            self.generation,
            lease.round,
            blob,
            count,
            tokens,
            (2.0,) * count,
            0.1,
        )
        self.connection.post(update)
        return update

    async def answer(self, lease: Lease, delta: Any) -> UpdateReply:
        await self.upload(lease, delta)
        reply = await self.next(UpdateReply)
        assert isinstance(reply, UpdateReply)
        return reply


class Run:
    """A run of one worker slot, and its Shepherd for as long as a test wants it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = RunFolder(folder)
        self.recipe = tiny_recipe(
            folder, workers=1, steps=6, checkpoint_every=3, evaluate_every=3, **settings
        )
        self.authority = Authority.create(folder / "keys")
        self.records: list[dict[str, Any]] = []
        self.address = ""

    def shepherd(self, patience_seconds: float = 0.0) -> Shepherd:
        credentials = self.authority.issue("shepherd", "shepherd", ["127.0.0.1"])
        return Shepherd(
            self.folder,
            self.recipe,
            credentials,
            self.authority.revocations,
            self.records.append,
            patience_seconds,
        )

    def delta(self, seed: int = 0) -> Any:
        generator = np.random.default_rng(seed)
        size = partition(self.recipe.parameters, 1).size(0)
        return {"values": (generator.standard_normal(size) * 0.01).astype(np.float32)}

    def drive(self, script: Script, shepherd: Shepherd | None = None) -> bool:
        """Run a Shepherd and one scripted worker until the Shepherd ends; whether the run is complete."""
        return asyncio.run(self._drive(script, shepherd or self.shepherd()))

    async def _drive(self, script: Script, shepherd: Shepherd) -> bool:
        listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(SECONDS):
            serving = asyncio.create_task(shepherd.run("127.0.0.1", 0, listening.set_result))
            await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
            if listening.done():
                await self._play(script, f"127.0.0.1:{listening.result()}")
            return await serving

    async def _play(self, script: Script, address: str) -> None:
        self.address = address
        store = BlobStore(self.folder.path / "ada")
        async with await self.connected("ada") as connection:
            with BulkClient(address, self.authority.issue("ada")) as bulk:
                worker = Worker(connection, bulk, store, self.recipe)
                connection.post(Ready(worker.generation))
                await script(worker)

    async def connected(self, name: str) -> ControlConnection:
        """A connection of a worker of that name to the Shepherd that is driven."""
        hello = Hello(1, name, f"process of {name:>5}".encode(), ("cpu:0",), 1 << 30)
        return await connect(self.address, self.authority.issue(name), hello)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_the_run_s_file_limits_connections_and_refusals_are_records(tmp_path: Path) -> None:
    run = Run(tmp_path, wire={"connections_per_worker": 1})

    async def script(worker: Worker) -> None:
        await worker.lease()
        for _ in range(3):
            with pytest.raises(
                RefusedByPeer, match="ada has 1 connections already; one key is for one worker"
            ):
                await run.connected("ada")
        shepherd.stop()
        await worker.next(Goodbye)

    shepherd = run.shepherd()
    assert not run.drive(script, shepherd)
    (record,) = [record for record in run.records if record.get("event") == "refused"]
    assert (record["kind"], record["count"]) == ("capacity", 1)  # the others are told of after a minute
    assert record["latest"].endswith("ada has 1 connections already; one key is for one worker")


def test_a_run_of_a_scripted_worker_is_nesterov_in_numpy(run: Run) -> None:
    async def script(worker: Worker) -> None:
        for round in range(2):
            lease = await worker.lease()
            assert (lease.data.start, lease.data.count, lease.first_step) == (3 * round, 3, 3 * round)
            assert await worker.answer(lease, run.delta(round)) == UpdateReply(
                lease.lease_id, Outcome.ADMITTED, ""
            )
        assert await worker.next(Goodbye) == Goodbye(True, "the run is complete")

    assert run.drive(script)
    step, state, metadata = load_state(run.folder)
    assert (step, metadata["round"]) == (6, 2)
    parts = partition(run.recipe.parameters, 1)
    [expected] = parts.vectors(run.recipe.parameters)
    velocity = np.zeros_like(expected)
    for round in range(2):
        push = run.delta(round)["values"]
        velocity = np.float32(0.9) * velocity + push
        expected = expected - np.float32(0.7) * (push + np.float32(0.9) * velocity)
    assert_equal_arrays(state["params"], parts.parameters([expected]), 1e-5, 1e-7)
    assert [record["round"] for record in run.records if "round" in record] == [1, 2]
    assert [record["step"] for record in run.records if "validation_loss" in record][-1] == 6
    blobs = {path.name for path in (run.folder.path / "blobs").iterdir()}
    assert len(blobs) == 6 + 1 + 2, "programs, tokens, parameters and momentum; what else was stored is gone"


def test_an_update_of_nan_is_refused_and_its_batches_are_leased_again(run: Run) -> None:
    async def script(worker: Worker) -> None:
        lease = await worker.lease()
        broken = run.delta()
        broken["values"][7] = np.nan
        reply = await worker.answer(lease, broken)
        assert reply.outcome is Outcome.REFUSED
        assert "the push is unusable" in reply.reason
        assert "array 'values'" in reply.reason
        again = await worker.lease()
        assert again.data == lease.data
        assert (again.fresh, again.lease_id != lease.lease_id) == (True, True)
        await worker.answer(again, run.delta())
        await worker.answer(await worker.lease(), run.delta())

    assert run.drive(script)
    assert sum(record["refused"] for record in run.records if record.get("round") == 2) == 1


def test_an_update_that_is_told_first_is_admitted_when_its_upload_is_there(run: Run) -> None:
    async def script(worker: Worker) -> None:
        for round in range(2):
            lease = await worker.lease()
            blob = store_arrays(worker.store, run.delta(round))
            worker.tell(lease, blob)
            worker.tell(lease, blob)  # as after a lost connection
            await asyncio.to_thread(worker.bulk.push, blob, worker.store)
            reply = await worker.next(UpdateReply)
            assert reply == UpdateReply(lease.lease_id, Outcome.ADMITTED, "")

    assert run.drive(script)


def test_an_upload_that_no_update_names_is_removed_after_a_while(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "UNCLAIMED_SECONDS", 0.0)
    blobs = BlobStore(run.folder.path / "blobs")

    async def script(worker: Worker) -> None:
        lease = await worker.lease()
        stray = worker.store.put(b"nobody tells of this")
        await asyncio.to_thread(worker.bulk.push, stray, worker.store)
        while blobs.has(stray):
            await asyncio.to_thread(threading.Event().wait, 0.02)
        for round in range(2):
            blob = store_arrays(worker.store, run.delta(round))
            worker.tell(lease, blob)
            await asyncio.to_thread(worker.bulk.push, blob, worker.store)
            assert (await worker.next(UpdateReply)).outcome is Outcome.ADMITTED
            lease = await worker.lease() if round == 0 else lease

    assert run.drive(script)


def test_updates_that_the_coordinator_refuses_cost_no_computation(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[Blob] = []
    check = Merger.check

    def counted(merger: Merger, fragment: int, blob: Blob) -> None:
        checked.append(blob)
        check(merger, fragment, blob)

    monkeypatch.setattr(Merger, "check", counted)

    async def script(worker: Worker) -> None:
        lease = await worker.lease()
        for _ in range(5):
            worker.connection.post(
                Update(77, worker.generation, 0, Blob(b"x" * 32, 5), 3, 48, (2.0,) * 3, 0.1)
            )
            reply = await worker.next(UpdateReply)
            assert (reply.outcome, reply.reason) == (Outcome.REFUSED, "unknown lease")
        await worker.answer(lease, run.delta())
        await worker.answer(await worker.lease(), run.delta())

    assert run.drive(script)
    assert len(checked) == 2


def test_a_bug_in_an_outer_step_ends_the_process_with_its_traceback(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merge(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Merger, "merge", merge)

    async def script(worker: Worker) -> None:
        await worker.answer(await worker.lease(), run.delta())
        assert await worker.next(Goodbye) == Goodbye(False, "the Shepherd stops")

    with pytest.raises(ZeroDivisionError, match="a bug") as raised:
        run.drive(script)
    assert any(entry.name == "_stepped" for entry in raised.traceback)


def test_an_outer_step_waits_for_room_on_the_disk(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    merge, failures = Merger.merge, [OSError(28, "No space left on device"), StoreFull("there is no room")]

    def full(merger: Merger, step: RunOuterStep) -> Any:
        if failures:
            raise failures.pop()
        return merge(merger, step)

    async def script(worker: Worker) -> None:
        for round in range(2):
            lease = await worker.lease()
            assert lease.round == round
            assert (await worker.answer(lease, run.delta(round))).outcome is Outcome.ADMITTED

    monkeypatch.setattr(Merger, "merge", full)
    assert run.drive(script)
    said = [record["message"] for record in run.records if record.get("event") == "trouble"]
    assert any("waits for room on the disk" in message for message in said)
    full_now = next(message for message in said if "is full" in message)
    assert "Free some space there: the run waits, keeps all it has, and then goes on by itself" in full_now
    assert any("has room again; the run goes on" in message for message in said)


def test_a_record_waits_for_room_on_the_disk_and_nothing_that_follows_happens_before(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shepherd = run.shepherd()
    storage, failures = shepherd._storage, [28, 122, 28]
    append = storage.append

    def full(segment: int, data: bytes) -> None:
        if failures:
            raise OSError(failures.pop(), "No space left on device")
        append(segment, data)

    async def script(worker: Worker) -> None:
        lease = await worker.lease()
        monkeypatch.setattr(storage, "append", full)
        assert (await worker.answer(lease, run.delta())).outcome is Outcome.ADMITTED
        assert not failures, "an update was admitted that is not in the log"
        assert (await worker.answer(await worker.lease(), run.delta(1))).outcome is Outcome.ADMITTED

    assert run.drive(script, shepherd)


def test_an_upload_that_finds_no_room_stops_the_time_of_leases(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shepherd = run.shepherd()

    async def script(worker: Worker) -> None:
        lease = await worker.lease()
        with monkeypatch.context() as patch:
            patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
            with pytest.raises(PCPError, match="no room"):
                await worker.upload(lease, run.delta())
            asked = 0

            def full() -> bool:
                nonlocal asked
                asked += 1
                return True

            patch.setattr(shepherd._disk, "full", full)
            while asked < 2:  # a tick may have been on its way
                await asyncio.sleep(0.01)
            last = shepherd._coordinator.state.last_tick
            while asked < 5:
                await asyncio.sleep(0.01)
            assert shepherd._coordinator.state.last_tick == last
        assert (await worker.answer(lease, run.delta())).outcome is Outcome.ADMITTED
        assert (await worker.answer(await worker.lease(), run.delta(1))).outcome is Outcome.ADMITTED

    assert run.drive(script, shepherd)


def test_an_event_log_on_a_failing_disk_ends_the_shepherd(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shepherd = run.shepherd()

    def append(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    async def script(worker: Worker) -> None:
        lease = await worker.lease()
        monkeypatch.setattr(shepherd._storage, "append", append)
        await worker.upload(lease, run.delta())
        while await worker.next(UpdateReply) is not None:
            raise AssertionError("an update was admitted that is not in the log")

    with pytest.raises(EventLogWriteFailed, match=r"Input/output error.*start the Shepherd again"):
        run.drive(script, shepherd)


def test_a_stopped_shepherd_says_goodbye_and_another_goes_on(run: Run) -> None:
    first = run.shepherd()

    async def until_stopped(worker: Worker) -> None:
        await worker.answer(await worker.lease(), run.delta(0))
        await worker.lease()
        first.stop()
        assert await worker.next(Goodbye) == Goodbye(False, "the Shepherd stops")

    assert not run.drive(until_stopped, first)
    orphan = BlobStore(run.folder.path / "blobs").put(b"an upload that no record names")

    async def to_the_end(worker: Worker) -> None:
        lease = await worker.lease()
        assert (lease.round, lease.adopt[0].version, lease.data.start) == (1, 1, 3)
        assert not BlobStore(run.folder.path / "blobs").has(orphan)
        await worker.answer(lease, run.delta(1))

    assert run.drive(to_the_end)
    assert load_state(run.folder)[0] == 6


def test_a_second_shepherd_of_one_folder_is_refused(run: Run) -> None:
    first = run.shepherd()
    with pytest.raises(
        RunLocked, match="is held by another Shepherd; stop it, or give this run another directory"
    ):
        run.shepherd()

    async def stop(_: Worker) -> None:
        first.stop()

    threading.Timer(0.3, lambda: run.drive(stop, first)).start()
    second = run.shepherd(patience_seconds=SECONDS)
    assert not run.drive(lambda _: stop_now(second), second)


async def stop_now(shepherd: Shepherd) -> None:
    shepherd.stop()


def test_a_worker_that_comes_too_late_hears_that_the_run_is_complete(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    loss = Evaluator.loss

    def slow_loss(evaluator: Evaluator, parameters: tuple[Blob, ...]) -> float:
        assert go_on.wait(SECONDS)
        return loss(evaluator, parameters)

    monkeypatch.setattr(Evaluator, "loss", slow_loss)

    async def script(worker: Worker) -> None:
        for round in range(2):
            await worker.answer(await worker.lease(), run.delta(round))
        await worker.next(Goodbye)
        late = Hello(1, "bob", b"an-incarnation-2", ("cpu:0",), 1 << 30)
        async with await connect(worker.connection.address, run.authority.issue("bob"), late) as connection:
            assert connection.answer == Goodbye(True, "the run is complete")
            assert connection.welcome is None
        go_on.set()

    assert run.drive(script)
    assert run.records[-1]["step"] == 6
    assert "validation_loss" in run.records[-1]


def test_a_shepherd_that_was_killed_while_it_evaluated_does_so_when_it_is_back(run: Run) -> None:
    async def script(worker: Worker) -> None:
        for round in range(2):
            await worker.answer(await worker.lease(), run.delta(round))

    assert run.drive(script)
    loss = run.records[-1]["validation_loss"]
    run.records.clear()

    async def alone() -> bool:
        async with asyncio.timeout(SECONDS):
            return await run.shepherd().run("127.0.0.1", 0, lambda _: None)

    assert asyncio.run(alone())
    assert run.records == [{"step": 6, "validation_loss": loss}]


def test_a_worker_whose_certificate_is_revoked_is_put_out(run: Run) -> None:
    shepherd = run.shepherd()

    async def script(worker: Worker) -> None:
        await worker.lease()
        run.authority.revoke("ada")
        with pytest.raises(CertificateRefused, match="the certificate of ada was revoked"):
            await worker.next(Goodbye)
        shepherd.stop()

    assert not run.drive(script, shepherd)
    assert not [thread for thread in threading.enumerate() if thread.name in ("compute", "evaluate")]
