"""The worker's logic with a lease that is granted ahead: it is fetched for meanwhile, and begins without a word."""

from dataclasses import replace

import pytest

from pcp.distributed.messages import (
    Adoption,
    Assign,
    Blob,
    Failure,
    Heartbeat,
    Merged,
    Outcome,
    Revoke,
    UpdateReply,
)
from pcp.distributed.worker.effects import (
    AbortLease,
    Adopt,
    FetchBlob,
    Follow,
    ForgetBlob,
    SendMessage,
    SettlePush,
    StartLease,
    UploadUpdate,
)
from pcp.distributed.worker.events import BlobUnavailable, LeaseFailed, LeaseProgress, LeaseStepped
from tests.distributed.worker.bench import CHANGE, PAYLOAD, UPDATE, Bench
from tests.distributed.worker.test_overlap import ANOTHER, FRESH, NEXT

AHEAD = replace(NEXT, after=21)
NEWER = Blob(b"6" * 32, 6)


@pytest.fixture
def bench() -> Bench:
    """A worker that trains FRESH."""
    bench = Bench(overlap=True)
    bench.join()
    bench.hear(Assign(FRESH))
    bench.fetched(ANOTHER)
    bench.fetched()
    return bench


def test_a_worker_says_once_that_its_lease_is_near_its_end(bench: Bench) -> None:
    bench.do(LeaseProgress(bench.now, 21, 1, 0.7))
    assert bench.said() == []
    bench.do(LeaseProgress(bench.now, 21, 2, 0.7))
    assert bench.said() == [Heartbeat(1, 11, 21, 2, 0.7, 4)]
    bench.do(LeaseProgress(bench.now, 21, 3, 0.4))
    assert bench.said() == []


def test_a_worker_that_holds_its_next_lease_says_nothing(bench: Bench) -> None:
    bench.hear(Assign(AHEAD))
    bench.do(LeaseProgress(bench.now, 21, 3, 0.4))
    assert bench.said() == []


def test_a_worker_that_waits_for_each_merge_says_nothing() -> None:
    bench = Bench()
    bench.join()
    bench.hear(Assign(replace(FRESH, adopt=FRESH.adopt[:1])))
    bench.fetched()
    bench.do(LeaseProgress(bench.now, 21, 3, 0.4))
    assert bench.said() == []


def test_the_next_lease_begins_when_the_one_before_is_trained(bench: Bench) -> None:
    bench.hear(Assign(AHEAD))
    assert bench.effects == [Follow(21)]
    bench.trained()
    assert bench.effects[-3:] == [SendMessage(1, UPDATE), UploadUpdate(21, PAYLOAD), StartLease(AHEAD)]


def test_the_trainer_hears_of_the_next_lease_once_it_has_begun() -> None:
    bench = Bench(overlap=True)
    bench.join()
    bench.hear(Assign(FRESH))
    bench.hear(Assign(AHEAD))
    assert not bench.made(Follow)
    bench.fetched(ANOTHER)
    bench.fetched()
    assert bench.effects[-2:] == [StartLease(FRESH), Follow(21)]


def test_what_the_next_lease_adopts_is_fetched_meanwhile(bench: Bench) -> None:
    bench.hear(
        Assign(replace(AHEAD, adopt=(Adoption(0, 1, 0, NEWER, CHANGE), Adoption(1, 1, 2, None, None))))
    )
    assert bench.effects == [FetchBlob(CHANGE), Follow(21)], (
        "the change from the version that the lease before began with"
    )
    bench.fetched(CHANGE)
    assert bench.effects == []
    bench.hear(Merged(1, 1, ANOTHER, NEWER))
    assert bench.effects == [FetchBlob(NEWER)]
    bench.trained()
    assert bench.made(Adopt) == [Adopt(22, 0, 1, 0, CHANGE, True)]
    assert bench.made(StartLease)
    bench.fetched(NEWER)
    assert bench.effects == [Adopt(22, 1, 1, 2, NEWER, True)]


def test_a_change_is_taken_by_the_version_of_its_own_fragment() -> None:
    bench = Bench(overlap=True)
    bench.join()
    bench.hear(Assign(replace(FRESH, adopt=(FRESH.adopt[0], replace(FRESH.adopt[1], version=5)))))
    bench.hear(Assign(replace(AHEAD, adopt=(Adoption(0, 1, 0, NEWER, CHANGE),))))
    assert bench.made(FetchBlob) == [FetchBlob(CHANGE)]


def test_a_blob_that_both_leases_name_is_kept(bench: Bench) -> None:
    bench.hear(Assign(replace(AHEAD, adopt=(Adoption(1, 1, 0, ANOTHER, None),))))
    bench.trained()
    assert ForgetBlob(ANOTHER) not in bench.effects


def test_a_lease_told_again_is_taken_once(bench: Bench) -> None:
    for _ in range(2):
        bench.hear(Assign(AHEAD))
        bench.hear(Assign(FRESH))
    bench.trained()
    bench.hear(Assign(replace(AHEAD, after=0)))
    assert bench.effects == []


def test_a_lease_that_comes_when_the_one_before_was_just_reported_begins_at_once(bench: Bench) -> None:
    bench.trained()
    bench.hear(Assign(AHEAD))
    assert bench.effects == [StartLease(AHEAD)]


def test_who_fails_lets_go_of_the_next_lease_too(bench: Bench) -> None:
    bench.hear(Assign(replace(AHEAD, adopt=(Adoption(0, 1, 0, NEWER, None),))))
    bench.do(LeaseFailed(bench.now, 21, "no memory"))
    assert ForgetBlob(NEWER) in bench.effects
    assert bench.said() == [Failure(11, 21, "no memory")]
    bench.hear(Assign(replace(AHEAD, lease_id=23)))
    assert bench.effects == [], "it follows what is given up: the Shepherd takes it back"


def test_a_lease_that_follows_another_than_the_one_that_is_trained_is_not_taken(bench: Bench) -> None:
    bench.hear(Assign(replace(AHEAD, after=20)))
    assert bench.effects == []
    bench.trained()
    assert not bench.made(StartLease)


def test_what_the_next_lease_lacks_ends_that_one_only(bench: Bench) -> None:
    bench.hear(Assign(replace(AHEAD, adopt=(Adoption(0, 1, 0, NEWER, None),))))
    bench.do(BlobUnavailable(bench.now, NEWER, "gone"))
    assert bench.said() == [Failure(11, 22, "fragment 0 cannot be fetched: gone")]
    assert not bench.made(AbortLease)


def test_a_next_lease_that_is_taken_back_does_not_begin(bench: Bench) -> None:
    bench.hear(Assign(AHEAD))
    bench.hear(Revoke(22, "the round is closed"))
    bench.trained()
    assert not bench.made(StartLease)


def test_an_earlier_membership_ends_both(bench: Bench) -> None:
    bench.hear(Assign(AHEAD))
    bench.lose()
    bench.wait(61.0)
    assert bench.logic.state.task is bench.logic.state.following is None


def test_the_next_lease_begins_while_the_push_of_the_one_before_is_made(bench: Bench) -> None:
    bench.hear(Assign(AHEAD))
    bench.do(LeaseStepped(bench.now, 21))
    assert bench.effects[-1] == StartLease(AHEAD)
    assert ForgetBlob(ANOTHER) in bench.effects
    assert not bench.said()
    adopted = FRESH.adopt[1].version
    bench.hear(
        Assign(
            replace(
                AHEAD, lease_id=23, after=22, adopt=(Adoption(1, adopted + 1, 0, NEWER, Blob(b"7" * 32, 7)),)
            )
        )
    )
    assert bench.made(FetchBlob) == [FetchBlob(Blob(b"7" * 32, 7))], "the change from what was adopted"
    bench.trained()
    assert bench.effects == [SendMessage(1, UPDATE), UploadUpdate(21, PAYLOAD)]
    bench.hear(UpdateReply(21, Outcome.ADMITTED, ""))
    assert SettlePush(21, Outcome.ADMITTED) in bench.effects


def test_a_lease_whose_push_is_being_made_is_told_again_in_vain_and_can_be_taken_back(bench: Bench) -> None:
    bench.hear(Assign(AHEAD))
    bench.do(LeaseStepped(bench.now, 21))
    bench.hear(Assign(FRESH))
    assert bench.effects == []
    bench.hear(Revoke(21, "the round is closed"))
    assert bench.effects == [AbortLease(21, "the round is closed")]
    bench.trained()
    assert bench.effects == []


def test_a_push_that_cannot_be_made_is_a_failure_of_its_lease(bench: Bench) -> None:
    bench.hear(Assign(AHEAD))
    bench.do(LeaseStepped(bench.now, 21))
    bench.do(LeaseFailed(bench.now, 21, "the disk is full"))
    assert bench.made(AbortLease) == [AbortLease(21, "the disk is full")]
    assert bench.said() == [Failure(11, 21, "the disk is full")]


def test_a_lease_that_comes_while_the_push_before_is_made_begins_at_once(bench: Bench) -> None:
    bench.hear(Assign(AHEAD))
    bench.do(LeaseStepped(bench.now, 21))
    bench.hear(Revoke(22, "the round is closed"))
    bench.hear(Assign(replace(AHEAD, lease_id=23, fresh=True)))
    assert bench.made(StartLease)


def test_a_lease_of_the_same_fragment_waits_for_the_answer(bench: Bench) -> None:
    bench.hear(Assign(replace(AHEAD, fragment=0)))
    assert bench.effects == [], "the trainer is not told that another follows"
    bench.do(LeaseStepped(bench.now, 21))
    assert not bench.made(StartLease)
    bench.trained()
    bench.hear(UpdateReply(21, Outcome.ADMITTED, ""))
    assert bench.made(StartLease)


def test_a_fresh_lease_begins_whatever_becomes_of_the_push_before_it(bench: Bench) -> None:
    bench.hear(Assign(AHEAD))
    bench.do(LeaseStepped(bench.now, 21))
    bench.hear(Revoke(22, "the round is closed"))
    bench.hear(Assign(replace(FRESH, lease_id=23)))
    bench.hear(Revoke(21, "the round is closed"))
    bench.fetched(ANOTHER)
    bench.fetched()
    assert bench.made(StartLease)
