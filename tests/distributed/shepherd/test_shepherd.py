"""The Shepherd's host in this process, with workers that are scripts: what it does when something fails or is interrupted."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.distributed.shepherd.scripted import SECONDS, Run, Worker
from tests.distributed.tiny_run import assert_equal_arrays

from pcp.distributed import job
from pcp.distributed.coordinator import RunLocked
from pcp.distributed.job import InvalidJob
from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Blob,
    Goodbye,
    Hello,
    Outcome,
    Update,
    UpdateReply,
)
from pcp.distributed.round_arithmetic.array_blobs import store_arrays
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.shepherd import uploads
from pcp.distributed.shepherd.evaluation import Evaluator
from pcp.distributed.shepherd.merger import Merger
from pcp.distributed.shepherd.process import Shepherd
from pcp.distributed.wire import (
    BlobStore,
    CertificateRefused,
    RefusedByPeer,
    connect,
)
from pcp.training.data.run_data import DataKind
from pcp.training.run_folder import load_state


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


def test_a_run_that_another_version_began_is_not_continued(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(worker: Worker) -> None:
        await worker.lease()
        shepherd.stop()
        await worker.next(Goodbye)

    with monkeypatch.context() as earlier:
        earlier.setattr(job, "VERSIONS", {DataKind.tokens: 3})
        shepherd = run.shepherd()
        assert not run.drive(script, shepherd)
    with pytest.raises(InvalidJob, match=r"described in version 3; .*install the one that began the run"):
        run.shepherd()


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
        late = Hello(PROTOCOL_VERSION, "bob", b"an-incarnation-2", ("cpu:0",), 1 << 30)
        async with await connect(worker.connection.address, run.authority.issue("bob"), late) as connection:
            assert connection.answer == Goodbye(True, "the run is complete")
            assert connection.welcome is None
        go_on.set()

    assert run.drive(script)
    last = [record for record in run.records if "step" in record][-1]
    assert last["step"] == 6
    assert "validation_loss" in last


def test_a_shepherd_that_was_killed_while_it_evaluated_does_so_when_it_is_back(run: Run) -> None:
    async def script(worker: Worker) -> None:
        for round in range(2):
            await worker.answer(await worker.lease(), run.delta(round))

    assert run.drive(script)
    loss = next(record["validation_loss"] for record in reversed(run.records) if "step" in record)
    run.records.clear()

    async def alone() -> bool:
        async with asyncio.timeout(SECONDS):
            return await run.shepherd().run("127.0.0.1", 0, lambda _: None)

    assert asyncio.run(alone())
    assert [record for record in run.records if "step" in record] == [{"step": 6, "validation_loss": loss}]


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
