"""What the coordinator reports, as records that displays and files understand."""

from typing import Any

import pytest
from tests.distributed.tiny_run import lease_of

from pcp.distributed.algorithms import DiLoCo
from pcp.distributed.coordinator import RunConfig, State
from pcp.distributed.coordinator.effects import (
    LeaseChanged,
    LeaseProgressed,
    Metrics,
    RoundMerged,
    Trouble,
    UpdateAccepted,
    UpdateRefused,
    WorkerChanged,
)
from pcp.distributed.coordinator.log.records import RunStarted
from pcp.distributed.coordinator.run import start_run
from pcp.distributed.coordinator.state import HeldLease, state_of
from pcp.distributed.messages import Blob, DataRange
from pcp.distributed.shepherd.reports import PROGRESS_SECONDS, Record, Reporter, counted_in, records_of
from pcp.training.display.fleet import Fleet

NAMES = {1: "ada", 2: "bob"}
PARAMETERS = Blob(b"p" * 32, 100)


@pytest.fixture
def state() -> State:
    config = RunConfig("run", 400, DiLoCo(20), workers=2, tokens_per_batch=768)
    state = state_of(start_run(RunStarted(config, (PARAMETERS,), (None,))))
    state.run.worker_ids |= {"ada": 1, "bob": 2}
    for number, count in ((7, 20), (8, 0)):
        lease = lease_of(number, DataRange(40, count), PARAMETERS)
        state.leases[number] = HeldLease(lease, 2, frozenset({0}), 0.0, 60.0)
    return state


def worker(name: str, **facts: Any) -> Record:
    return {"event": "worker", "worker": name, **facts}


ROUND = RoundMerged(2, 0, 1.75, 2, 30720, 0, 92160, 8.0, 2, (("NOT_FINITE", 1), ("DUPLICATE", 2)))


@pytest.mark.parametrize(
    ("metrics", "record"),
    [
        (
            WorkerChanged(1, "ada", "joined", "cpu:0", 2),
            worker("ada", state="joining", reason="cpu:0", live=2),
        ),
        (
            WorkerChanged(1, "ada", "lost", "silent", 1),
            worker("ada", state="lost", reason="silent", live=1),
        ),
        (LeaseChanged(7, 2, "granted", "batches 40 to 59"), worker("bob", state="training", lease="40-59")),
        (LeaseChanged(8, 2, "granted", "only its push"), worker("bob", state="training", lease="push")),
        (LeaseChanged(6, 1, "ended", "expired"), worker("ada", state="waiting", lease="", reason="expired")),
        (LeaseProgressed(2, 7, 5, 0.08), worker("bob", state="training", steps_per_second=12.5)),
        (
            UpdateAccepted(2, 2, 0, (1.0, 2.0), 768, 1.25),
            worker("bob", state="waiting", lease="", updates=1, tokens=768, trained_seconds=1.25, loss=1.5),
        ),
        (
            UpdateRefused(1, 6, "unknown lease"),
            worker("ada", state="waiting", lease="", refused=1, reason="refused: unknown lease"),
        ),
        (Trouble("the disk is slow"), {"event": "trouble", "message": "the disk is slow"}),
        (
            ROUND,
            {
                "step": 60,
                "loss": 1.75,
                "tokens_per_second": 2 * 20 * 768 / 8.0,
                "round": 3,
                "contributions": 2,
                "live_workers": 2,
                "tokens": 92160,
                "refused": 3,
            },
        ),
    ],
)
def test_a_report_is_a_record(state: State, metrics: Metrics, record: Record) -> None:
    assert records_of(metrics, state, NAMES) == [record]
    fleet = Fleet("run", 200)
    fleet.take(record, 0.0)  # displays take it
    assert fleet.summary(0.0)["run"] == "run"


@pytest.mark.parametrize("metrics", [LeaseProgressed(1, 0, 0, 0.0), LeaseProgressed(2, 7, 0, 0.0)])
def test_a_heartbeat_without_progress_is_no_record(state: State, metrics: Metrics) -> None:
    assert records_of(metrics, state, NAMES) == []


def test_progress_is_said_now_and_then_changes_at_once(state: State) -> None:
    said: list[Record] = []
    reporter = Reporter(said.append)
    reporter.report(LeaseChanged(7, 2, "granted", ""), state, 100.0)
    for second in range(1, 8):
        reporter.report(LeaseProgressed(2, 7, second, 0.08), state, 100.0 + second)
    reporter.report(UpdateAccepted(2, 2, 0, (1.0,), 768, 1.0), state, 107.5)
    assert PROGRESS_SECONDS == 3.0
    assert [record["state"] for record in said] == ["training", "training", "training", "waiting"]


def test_the_same_is_not_said_twice_in_a_row(state: State) -> None:
    said: list[Record] = []
    reporter = Reporter(said.append)
    lost = WorkerChanged(1, "ada", "lost", "silent", 1)
    for metrics in (lost, lost, WorkerChanged(2, "bob", "lost", "silent", 0), lost, ROUND, ROUND):
        reporter.report(metrics, state, 100.0)
    assert [record.get("worker", "round") for record in said] == ["ada", "bob", "round", "round"]


class CountedNames(dict[str, int]):
    """Names of workers that count how often all of them are gone through."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def test_a_heartbeat_costs_the_same_among_many(state: State) -> None:
    names = CountedNames({f"worker-{number}": number for number in range(1, 2001)})
    state.run.worker_ids = names
    said: list[Record] = []
    reporter = Reporter(said.append)
    for number in range(1, 2001):
        reporter.report(LeaseProgressed(number, 7, 1, 0.08), state, 100.0)
    assert [record["worker"] for record in said] == list(names)
    assert names.walks == 1
    names["late"] = 2001
    reporter.report(WorkerChanged(2001, "late", "joined", "cpu:0", 2001), state, 101.0)
    reporter.report(LeaseProgressed(2001, 7, 1, 0.08), state, 105.0)
    assert said[-1] == worker("late", state="training", steps_per_second=12.5)
    assert names.walks == 1


def test_a_run_of_samples_counts_samples() -> None:
    told: list[dict[str, object]] = []
    report = counted_in("samples", told.append)
    report({"step": 3, "tokens_per_second": 7.5, "tokens": 9})
    assert told == [{"step": 3, "samples_per_second": 7.5, "tokens": 9}]
    assert counted_in("tokens", told.append) == told.append
