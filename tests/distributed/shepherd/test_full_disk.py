"""A Shepherd whose disk is full waits, keeps what it has, and goes on when there is room; one whose disk fails ends."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.distributed.shepherd.scripted import Run, Worker

from pcp.distributed.coordinator import EventLogWriteFailed
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.messages import Outcome, UpdateReply
from pcp.distributed.shepherd.merger import Merger
from pcp.distributed.wire.blob_files import StoreFull
from pcp.errors import PCPError


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


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
