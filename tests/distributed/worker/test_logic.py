"""The worker's logic, event by event."""

from dataclasses import replace
from typing import TypeVar

import pytest

from pcp.distributed.messages import (
    Assign,
    Blob,
    DataRange,
    Failure,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Lease,
    Message,
    Ready,
    Revoke,
    Update,
    UpdateReply,
    Welcome,
)
from pcp.distributed.worker import Stage, WorkerConfig, WorkerLogic
from pcp.distributed.worker.effects import (
    AbortLease,
    Connect,
    Disconnect,
    Effect,
    FetchBlob,
    Notice,
    Prepare,
    SendMessage,
    StartLease,
    Stop,
    UploadUpdate,
)
from pcp.distributed.worker.events import (
    BlobFetched,
    BlobUnavailable,
    Connected,
    Disconnected,
    Event,
    LeaseFailed,
    LeaseProgress,
    LeaseTrained,
    MessageReceived,
    PreparationFailed,
    Prepared,
    Started,
    Stopping,
    Tick,
    UpdateUploaded,
    UploadFailed,
)

T = TypeVar("T")

CONFIG = WorkerConfig("a", b"process", devices=("cpu:0",), memory_bytes=5)
PROGRAM, PARAMETERS, GRADIENT = (Blob(bytes([number]) * 32, number) for number in (1, 2, 3))
WELCOME = Welcome(4, 11, "tested", 1.0, "{}", (PROGRAM, PARAMETERS))
LEASE = Lease(21, 11, 3, DataRange(40, 4), 12, 3, PARAMETERS, (), 60.0)


class Bench:
    """Feeds a worker's logic and keeps what it asks for."""

    def __init__(self, config: WorkerConfig = CONFIG) -> None:
        self.now = 0.0
        self.connection = 0
        self.logic = WorkerLogic(config)
        self.effects: list[Effect] = []
        self.do(Started(0.0))

    def do(self, event: Event) -> None:
        self.effects = self.logic.handle(event)

    def hear(self, message: Message) -> None:
        self.do(MessageReceived(self.now, self.connection, message))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.do(Tick(self.now))

    def connect(self, welcome: Welcome = WELCOME) -> None:
        self.connection += 1
        self.do(Connected(self.now, self.connection))
        self.hear(welcome)

    def lose(self) -> None:
        self.do(Disconnected(self.now, self.connection, "reset by peer"))

    def join(self) -> None:
        self.connect()
        self.do(Prepared(self.now, "{}"))

    def train(self) -> None:
        """Come as far as an upload under way."""
        self.join()
        self.hear(Assign(LEASE))
        self.do(BlobFetched(self.now, PARAMETERS))
        self.do(LeaseTrained(self.now, 21, GRADIENT, 400, (2.0, 1.0), 3.0))

    def made(self, kind: type[T]) -> list[T]:
        return [each for each in self.effects if isinstance(each, kind)]

    def said(self) -> list[Message]:
        return [each.message for each in self.made(SendMessage)]

    @property
    def stage(self) -> Stage | None:
        task = self.logic.state.task
        return None if task is None else task.stage


@pytest.fixture
def bench() -> Bench:
    return Bench()


UPDATE = Update(21, 11, 3, 3, GRADIENT, 4, 400, (2.0, 1.0), 3.0)


def test_a_lease_from_hello_to_the_accepted_update(bench: Bench) -> None:
    assert bench.effects == [Connect(0.0)]
    bench.connection = 1
    bench.do(Connected(0.0, 1))
    assert bench.said() == [Hello(1, "a", b"process", ("cpu:0",), 5)]
    bench.hear(WELCOME)
    assert bench.effects == [Prepare("{}", (PROGRAM, PARAMETERS))]
    bench.do(Prepared(0.0, "{}"))
    assert bench.said() == [Ready(11)]
    bench.hear(Assign(LEASE))
    assert bench.effects == [FetchBlob(PARAMETERS)]
    bench.do(BlobFetched(0.0, PARAMETERS))
    assert bench.effects == [StartLease(LEASE)]
    bench.do(LeaseTrained(0.0, 21, GRADIENT, 400, (2.0, 1.0), 3.0))
    assert bench.effects == [UploadUpdate(21, GRADIENT)]
    bench.do(UpdateUploaded(0.0, 21))
    assert bench.said() == [UPDATE]
    bench.hear(UpdateReply(21, True, ""))
    assert bench.stage is None


def test_heartbeats_tell_the_progress(bench: Bench) -> None:
    bench.join()
    bench.wait(0.9)
    assert bench.said() == []
    bench.hear(Assign(LEASE))
    bench.do(BlobFetched(bench.now, PARAMETERS))
    bench.do(LeaseProgress(bench.now, 21, 2, 0.25))
    bench.wait(0.2)
    assert bench.said() == [Heartbeat(1, 11, 21, 2, 0.25)]
    bench.wait(0.5)
    assert bench.said() == []


def test_a_silent_shepherd_is_left(bench: Bench) -> None:
    bench.join()
    for _ in range(4):
        bench.wait(1.0)
        assert bench.made(Disconnect) == []
    bench.wait(1.0)
    assert bench.made(Disconnect) == [Disconnect(1, "the Shepherd is silent for 5.0 s")]
    assert len(bench.made(Connect)) == 1


def test_the_shepherd_is_not_blamed_for_the_worker_s_own_sleep(bench: Bench) -> None:
    bench.join()
    bench.wait(1.0)
    bench.wait(60.0)
    assert bench.made(Disconnect) == []
    bench.hear(HeartbeatReply(2))
    bench.wait(1.0)
    assert bench.made(Disconnect) == []


def test_an_unanswered_hello_is_given_up(bench: Bench) -> None:
    bench.do(Connected(0.0, 1))
    bench.wait(10.0)
    assert bench.effects == []
    bench.wait(0.1)
    assert bench.made(Disconnect) == [Disconnect(1, "the Shepherd does not answer the hello")]


def test_the_pauses_double_and_are_spread() -> None:
    pauses = [CONFIG.retry_seconds(attempt) for attempt in range(12)]
    for attempt, pause in enumerate(pauses):
        longest = min(30.0, 0.25 * 2**attempt)
        assert longest / 2 <= pause <= longest
    other = replace(CONFIG, incarnation=b"another")
    assert other.retry_seconds(3) != pauses[3]
    assert other.retry_seconds(1000) <= 30.0


def test_pauses_start_again_once_a_connection_is_good(bench: Bench) -> None:
    for _ in range(6):
        bench.do(Disconnected(bench.now, 0, "refused"))
    assert bench.made(Connect)[0].after_seconds > 3.0
    assert "no connection to the Shepherd (refused); trying again in" in bench.made(Notice)[0].message
    bench.join()
    bench.hear(HeartbeatReply(1))
    bench.lose()
    assert bench.made(Connect)[0].after_seconds <= 0.25


def test_a_lease_survives_a_short_loss_of_the_connection(bench: Bench) -> None:
    bench.train()
    bench.lose()
    bench.do(UpdateUploaded(bench.now, 21))
    assert bench.said() == []
    bench.connect()
    assert bench.said() == [UPDATE, Ready(11)]
    bench.hear(Assign(LEASE))
    assert bench.effects == []
    assert bench.stage is Stage.REPORTED


@pytest.mark.parametrize("welcome", [replace(WELCOME, generation=12), replace(WELCOME, run_id="another")])
def test_a_lease_of_an_earlier_membership_is_dropped(bench: Bench, welcome: Welcome) -> None:
    bench.train()
    bench.lose()
    bench.connect(welcome)
    assert bench.made(AbortLease) == [AbortLease(21, "it belongs to an earlier membership")]
    assert bench.said() == [Ready(welcome.generation)]


def test_another_run_is_prepared_anew(bench: Bench) -> None:
    bench.join()
    bench.lose()
    bench.connect(replace(WELCOME, run='{"model": 2}'))
    assert bench.made(Prepare) == [Prepare('{"model": 2}', (PROGRAM, PARAMETERS))]
    bench.do(Prepared(bench.now, "{}"))
    assert bench.effects == []


def test_preparation_goes_on_without_a_connection(bench: Bench) -> None:
    bench.connect()
    bench.lose()
    bench.do(Prepared(bench.now, "{}"))
    assert bench.effects == []
    bench.connect()
    assert bench.said()[-1] == Ready(11)


def test_a_failed_preparation_is_told_and_tried_again_later(bench: Bench) -> None:
    bench.connect()
    bench.do(PreparationFailed(bench.now, "{}", "custom_call is forbidden"))
    assert bench.said() == [Failure(11, 0, "custom_call is forbidden")]
    assert len(bench.made(Connect)) == 1
    bench.connect()
    assert len(bench.made(Prepare)) == 1


def test_without_a_shepherd_a_lease_is_given_up_in_the_end(bench: Bench) -> None:
    bench.train()
    bench.lose()
    bench.wait(60.0)
    assert bench.effects == []
    bench.wait(1.0)
    assert bench.effects == [AbortLease(21, "no Shepherd for 60 s")]


def test_a_revoked_lease_is_aborted_and_what_it_still_says_is_ignored(bench: Bench) -> None:
    bench.train()
    bench.hear(Revoke(20, "another"))
    assert bench.effects == []
    bench.hear(Revoke(21, "expired"))
    assert bench.effects == [AbortLease(21, "expired")]
    bench.do(UpdateUploaded(bench.now, 21))
    bench.do(LeaseFailed(bench.now, 21, "too late"))
    assert bench.effects == []


def test_a_new_lease_replaces_the_old(bench: Bench) -> None:
    bench.train()
    bench.hear(Assign(replace(LEASE, lease_id=22)))
    assert bench.effects == [AbortLease(21, "another lease was assigned"), FetchBlob(PARAMETERS)]


def test_a_lease_that_cannot_be_fulfilled_is_told(bench: Bench) -> None:
    bench.connect()
    bench.hear(Assign(LEASE))
    assert bench.said() == [Failure(11, 21, "not prepared for it")]
    bench.do(Prepared(bench.now, "{}"))
    bench.hear(Assign(LEASE))
    bench.do(BlobUnavailable(bench.now, PARAMETERS, "not found"))
    assert bench.said() == [Failure(11, 21, "the parameters cannot be fetched: not found")]
    bench.hear(Assign(LEASE))
    bench.do(LeaseFailed(bench.now, 21, "out of memory"))
    assert bench.said() == [Failure(11, 21, "out of memory")]
    assert bench.made(Notice)[0].message == "lease 21 failed: out of memory"
    bench.hear(Assign(replace(LEASE, generation=10)))
    assert bench.said() == [Failure(11, 21, "not prepared for it")]


def test_a_failed_upload_is_tried_again(bench: Bench) -> None:
    bench.train()
    bench.do(UploadFailed(bench.now, 21, "reset"))
    assert "the upload failed (reset); again in" in bench.made(Notice)[0].message
    bench.wait(0.3)
    assert bench.made(UploadUpdate) == [UploadUpdate(21, GRADIENT)]
    bench.wait(0.3)
    assert bench.made(UploadUpdate) == []


def test_a_refused_update_ends_the_lease_and_is_told(bench: Bench) -> None:
    bench.train()
    bench.do(UpdateUploaded(bench.now, 21))
    bench.hear(UpdateReply(21, False, "the round is closed"))
    assert bench.made(Notice)[0].message == "the update of lease 21 was refused: the round is closed"
    assert bench.stage is None


def test_the_end_of_the_run_ends_the_worker(bench: Bench) -> None:
    bench.train()
    bench.hear(Goodbye(True, "the run is complete"))
    assert bench.effects == [
        AbortLease(21, "the run is complete"),
        Disconnect(1, "the run is complete"),
        Stop(True, "the run is complete"),
    ]
    bench.wait(100.0)
    assert bench.effects == []


def test_another_goodbye_does_not(bench: Bench) -> None:
    bench.join()
    bench.hear(Goodbye(False, "fenced"))
    assert len(bench.made(Connect)) == 1


def test_a_worker_that_is_stopped_says_goodbye(bench: Bench) -> None:
    bench.train()
    bench.do(Stopping(bench.now, "interrupted"))
    assert bench.effects == [
        AbortLease(21, "interrupted"),
        SendMessage(1, Goodbye(False, "interrupted")),
        Disconnect(1, "interrupted"),
        Stop(False, "interrupted"),
    ]


def test_one_connection_is_enough(bench: Bench) -> None:
    bench.join()
    bench.do(Connected(bench.now, 7))
    assert bench.effects == [Disconnect(7, "there is a connection already")]
    bench.do(Disconnected(bench.now, 7, "gone"))
    assert bench.effects == []


def test_a_shepherd_that_talks_like_a_worker_is_left(bench: Bench) -> None:
    bench.join()
    bench.hear(Ready(1))
    assert bench.made(Disconnect) == [Disconnect(1, "a Shepherd does not send Ready")]
