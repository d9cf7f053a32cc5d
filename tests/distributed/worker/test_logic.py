"""The worker's logic, event by event: its connection, and leases without overlap."""

from dataclasses import replace

import pytest

from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Assign,
    Failure,
    FailureKind,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Outcome,
    Ready,
    Revoke,
    UpdateReply,
    Welcome,
)
from pcp.distributed.worker.effects import (
    AbortLease,
    Adopt,
    CancelUpload,
    Connect,
    Disconnect,
    FetchBlob,
    ForgetBlob,
    Notice,
    Prepare,
    SendMessage,
    SettlePush,
    StartLease,
    Stop,
    UploadUpdate,
)
from pcp.distributed.worker.events import (
    BlobUnavailable,
    Connected,
    Disconnected,
    LeaseFailed,
    LeaseProgress,
    PreparationFailed,
    Prepared,
    Stopping,
    UploadFailed,
)
from pcp.distributed.worker.pushes import PUSH_UPLOADS
from tests.distributed.worker.bench import CONFIG, LEASE, PARAMETERS, PAYLOAD, PROGRAM, UPDATE, WELCOME, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_lease_from_hello_to_the_accepted_update(bench: Bench) -> None:
    assert bench.effects == [Connect(0.0)]
    bench.connection = 1
    bench.do(Connected(0.0, 1))
    assert bench.said() == [Hello(PROTOCOL_VERSION, "a", b"process", ("cpu:0",), 5)]
    bench.hear(WELCOME)
    assert bench.effects == [Prepare("{}", (PROGRAM,))]
    bench.do(Prepared(0.0, "{}"))
    assert bench.said() == [Ready(11)]
    bench.hear(Assign(LEASE))
    assert bench.effects == [FetchBlob(PARAMETERS)]
    bench.fetched()
    assert bench.effects == [Adopt(21, 0, 0, 0, PARAMETERS, False), StartLease(LEASE)]
    bench.trained()
    assert bench.effects == [ForgetBlob(PARAMETERS), UploadUpdate(21, PAYLOAD)]
    bench.uploaded()
    assert bench.said() == [UPDATE]
    bench.hear(UpdateReply(21, Outcome.ADMITTED, ""))
    assert bench.effects == [SettlePush(21, Outcome.ADMITTED)]
    bench.hear(UpdateReply(21, Outcome.ADMITTED, ""))
    assert bench.effects == []


def test_heartbeats_tell_the_progress(bench: Bench) -> None:
    bench.join()
    bench.wait(0.9)
    assert bench.said() == []
    bench.hear(Assign(LEASE))
    bench.fetched()
    bench.do(LeaseProgress(bench.now, 21, 2, 0.25))
    bench.wait(0.2)
    assert bench.said() == [Heartbeat(1, 11, 21, 2, 0.25, 4)]
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


def test_a_worker_without_a_shepherd_gives_up_after_a_day() -> None:
    bench, tries = Bench(), 0
    while not (stops := bench.made(Stop)):
        [connect] = bench.made(Connect)
        tries += 1
        bench.now += connect.after_seconds
        bench.do(Disconnected(bench.now, 0, "refused"))
    assert stops == [Stop(False, "for 24 hours no connection to the Shepherd was good: refused")]
    assert 86400.0 < bench.now < 86400.0 + 31.0
    assert 86400 / 30 < tries < 86400 / 15 + 20
    bench.do(Disconnected(bench.now, 0, "refused"))
    assert bench.effects == []


def test_a_lease_survives_a_short_loss_of_the_connection(bench: Bench) -> None:
    bench.train()
    bench.lose()
    bench.uploaded()
    assert bench.said() == []
    bench.connect()
    assert bench.said() == [UPDATE, Ready(11)]
    bench.hear(Assign(LEASE))
    assert bench.effects == []
    bench.wait(0.0)
    bench.wait(1.0)
    assert bench.said() == [Heartbeat(1, 11, 21, 4, 0.75, 4)]


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
    assert bench.made(Prepare) == [Prepare('{"model": 2}', (PROGRAM,))]
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
    [told] = bench.made(Notice)
    assert told.message.startswith("the run cannot be prepared here (custom_call is forbidden); trying again")
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
    bench.uploaded()
    bench.do(LeaseFailed(bench.now, 21, "too late"))
    assert bench.effects == []
    bench.do(LeaseFailed(bench.now, 21, "its process was ended", FailureKind.ENDLESS))
    assert bench.said() == [Failure(11, 21, "its process was ended", FailureKind.ENDLESS)]


def test_a_new_lease_replaces_the_one_that_is_trained(bench: Bench) -> None:
    bench.join()
    bench.hear(Assign(LEASE))
    bench.fetched()
    bench.hear(Assign(replace(LEASE, lease_id=22)))
    assert bench.effects == [
        ForgetBlob(PARAMETERS),
        AbortLease(21, "another lease was assigned"),
        FetchBlob(PARAMETERS),
    ]


def test_a_lease_that_cannot_be_fulfilled_is_told(bench: Bench) -> None:
    bench.connect()
    bench.hear(Assign(LEASE))
    assert bench.said() == [Failure(11, 21, "not prepared for it")]
    bench.do(Prepared(bench.now, "{}"))
    bench.hear(Assign(LEASE))
    bench.do(BlobUnavailable(bench.now, PARAMETERS, "not found"))
    assert bench.said() == [Failure(11, 21, "fragment 0 cannot be fetched: not found")]
    bench.hear(Assign(LEASE))
    bench.fetched()
    bench.do(LeaseFailed(bench.now, 21, "out of memory"))
    assert bench.said() == [Failure(11, 21, "out of memory")]
    assert bench.made(Notice)[0].message == "lease 21 failed: out of memory"
    bench.hear(Assign(replace(LEASE, generation=10)))
    assert bench.said() == [Failure(11, 21, "not prepared for it")]


def test_after_a_loss_only_a_fresh_lease_is_begun(bench: Bench) -> None:
    lost = "training that this lease goes on from is lost here; a fresh lease is needed"
    later = replace(LEASE, lease_id=22, fresh=False)
    bench.join()
    bench.hear(Assign(later))
    assert bench.said() == [Failure(11, 22, lost)]
    bench.hear(Assign(LEASE))
    bench.fetched()
    bench.hear(Revoke(21, "expired"))
    bench.hear(Assign(later))
    assert bench.said() == [Failure(11, 22, lost)]
    bench.hear(Assign(LEASE))
    bench.fetched()
    bench.trained()
    bench.uploaded()
    bench.hear(UpdateReply(21, Outcome.REFUSED, "not the tokens that the steps hold"))
    bench.hear(Assign(later))
    assert bench.said() == [Failure(11, 22, lost)]
    bench.hear(Assign(replace(later, fresh=True)))
    assert bench.effects == [FetchBlob(PARAMETERS)]


def test_a_failed_upload_is_tried_again(bench: Bench) -> None:
    bench.train()
    bench.do(UploadFailed(bench.now, 21, "reset"))
    assert "the upload failed (reset); again in" in bench.made(Notice)[0].message
    bench.wait(0.3)
    assert bench.made(UploadUpdate) == [UploadUpdate(21, PAYLOAD)]
    bench.wait(0.3)
    assert bench.made(UploadUpdate) == []


def test_a_refused_update_ends_the_lease_and_is_told(bench: Bench) -> None:
    bench.train()
    bench.uploaded()
    bench.hear(UpdateReply(21, Outcome.REFUSED, "the round is closed"))
    assert bench.effects == [
        Notice("the update of lease 21 was refused: the round is closed"),
        SettlePush(21, Outcome.REFUSED),
    ]


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


def test_an_upload_that_always_fails_is_given_up_with_its_lease(bench: Bench) -> None:
    bench.train()
    for _ in range(PUSH_UPLOADS - 1):
        bench.do(UploadFailed(bench.now, 21, "reset"))
        assert not bench.made(AbortLease)
    bench.do(UploadFailed(bench.now, 21, "reset"))
    assert bench.made(AbortLease) == [AbortLease(21, f"the upload failed {PUSH_UPLOADS} times: reset")]


def test_an_answer_before_the_upload_is_done_cancels_it(bench: Bench) -> None:
    bench.train()
    bench.hear(UpdateReply(21, Outcome.CARRIED, "the round is closed"))
    assert bench.effects == [CancelUpload(21), SettlePush(21, Outcome.CARRIED)]
    bench.uploaded()
    assert bench.effects == []
