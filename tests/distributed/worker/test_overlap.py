"""The worker's logic with overlap: pushes travel and fragments arrive while the next lease is trained."""

from dataclasses import replace

import pytest

from pcp.distributed.messages import (
    Adoption,
    Assign,
    Blob,
    DataRange,
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
    CancelUpload,
    FetchBlob,
    ForgetBlob,
    SendMessage,
    SettlePush,
    StartLease,
    UploadUpdate,
)
from pcp.distributed.worker.events import LeaseProgress, UploadFailed
from tests.distributed.worker.bench import CHANGE, LEASE, PARAMETERS, PAYLOAD, UPDATE, WELCOME, Bench

ANOTHER = Blob(b"5" * 32, 5)
SECOND = Adoption(1, 0, 0, ANOTHER, None)
FRESH = replace(LEASE, adopt=(*LEASE.adopt, SECOND))
"""Both fragments, to push the first."""
NEXT = replace(
    LEASE,
    lease_id=22,
    round=4,
    data=DataRange(44, 4),
    fragment=1,
    fresh=False,
    adopt=(Adoption(0, 1, 2, None, None),),
)
"""Pushes the second fragment, and adopts the first after two steps, which is not merged yet."""


@pytest.fixture
def bench() -> Bench:
    """A worker that trained FRESH, uploads it, and trains NEXT."""
    bench = Bench(overlap=True)
    bench.join()
    bench.hear(Assign(FRESH))
    assert bench.effects == [FetchBlob(PARAMETERS), FetchBlob(ANOTHER)]
    bench.fetched(ANOTHER)
    assert bench.effects == []
    bench.fetched()
    assert bench.effects == [
        Adopt(21, 0, 0, 0, PARAMETERS, False),
        Adopt(21, 1, 0, 0, ANOTHER, False),
        StartLease(FRESH),
    ]
    bench.trained()
    assert bench.effects == [
        ForgetBlob(PARAMETERS),
        ForgetBlob(ANOTHER),
        SendMessage(1, UPDATE),
        UploadUpdate(21, PAYLOAD),
    ]
    bench.hear(Assign(NEXT))
    assert bench.effects == [StartLease(NEXT)]
    return bench


def test_a_push_is_settled_while_the_next_lease_is_trained(bench: Bench) -> None:
    bench.uploaded()
    assert bench.effects == []
    bench.hear(UpdateReply(21, Outcome.ADMITTED, ""))
    assert bench.effects == [SettlePush(21, Outcome.ADMITTED)]


@pytest.mark.parametrize("change", [CHANGE, None])
def test_what_is_merged_is_fetched_and_adopted_while_the_lease_is_trained(
    bench: Bench, change: Blob | None
) -> None:
    bench.hear(Merged(1, 1, PARAMETERS, None))
    bench.hear(Merged(0, 2, PARAMETERS, None))
    assert bench.effects == [], "the lease asks for neither"
    bench.hear(Merged(0, 1, PARAMETERS, change))
    wanted = change or PARAMETERS
    assert bench.effects == [FetchBlob(wanted)]
    bench.hear(Merged(0, 1, PARAMETERS, change))
    assert bench.effects == []
    bench.fetched(wanted)
    assert bench.effects == [Adopt(22, 0, 1, 2, wanted, change is not None)]
    bench.fetched(wanted)
    assert bench.effects == []


def test_a_lease_told_again_brings_what_was_merged_meanwhile(bench: Bench) -> None:
    bench.lose()
    bench.connect()
    assert UPDATE in bench.said()
    bench.hear(Assign(replace(NEXT, adopt=(Adoption(0, 1, 2, PARAMETERS, CHANGE),))))
    assert bench.effects == [FetchBlob(CHANGE)]
    bench.hear(Assign(FRESH))
    assert bench.effects == [], "it is trained and waits for its answer"


def test_a_change_is_of_use_only_to_who_holds_the_version_before(bench: Bench) -> None:
    bench.hear(Merged(0, 1, PARAMETERS, CHANGE))
    bench.fetched(CHANGE)
    bench.trained(22, ANOTHER)
    bench.hear(UpdateReply(21, Outcome.ADMITTED, ""))
    ahead = replace(NEXT, lease_id=23, fragment=0, adopt=(Adoption(0, 3, 0, PARAMETERS, CHANGE),))
    bench.hear(Assign(ahead))
    assert bench.effects == [FetchBlob(PARAMETERS)]
    bench.hear(Assign(replace(ahead, lease_id=24, adopt=(Adoption(0, 3, 0, None, CHANGE),), fresh=True)))
    assert bench.said() == [Failure(11, 24, "only a change to version 3 of fragment 0 is offered")]


def test_a_fresh_lease_may_adopt_a_fragment_and_later_its_next_version() -> None:
    bench = Bench(overlap=True)
    bench.join()
    bench.hear(Assign(replace(LEASE, adopt=(*LEASE.adopt, Adoption(0, 1, 2, None, None)))))
    bench.fetched()
    assert len(bench.made(StartLease)) == 1
    bench.hear(Merged(0, 1, ANOTHER, CHANGE))
    assert bench.effects == [FetchBlob(CHANGE)]
    bench.fetched(CHANGE)
    assert bench.effects == [Adopt(21, 0, 1, 2, CHANGE, True)]


def test_a_fragment_is_trained_for_again_only_when_its_last_push_is_settled(bench: Bench) -> None:
    bench.hear(Merged(0, 1, PARAMETERS, None))
    bench.fetched()
    bench.trained(22, ANOTHER)
    third = replace(NEXT, lease_id=23, fragment=0, adopt=())
    bench.hear(Assign(third))
    assert bench.effects == []
    bench.hear(UpdateReply(22, Outcome.ADMITTED, ""))
    assert bench.made(StartLease) == []
    bench.hear(UpdateReply(21, Outcome.CARRIED, "the round is closed"))
    assert bench.effects == [CancelUpload(21), SettlePush(21, Outcome.CARRIED), StartLease(third)]


def test_a_refused_push_lets_no_lease_begin_that_goes_on_from_it(bench: Bench) -> None:
    bench.hear(Merged(0, 1, PARAMETERS, None))
    bench.fetched()
    bench.trained(22, ANOTHER)
    bench.hear(Assign(replace(NEXT, lease_id=23, fragment=0, adopt=())))
    bench.hear(UpdateReply(21, Outcome.REFUSED, "stale"))
    lost = "training that this lease goes on from is lost here; a fresh lease is needed"
    assert bench.said() == [Failure(11, 23, lost)]


def test_a_fresh_lease_does_not_wait_for_earlier_pushes(bench: Bench) -> None:
    bench.hear(Revoke(22, "expired"))
    bench.hear(Assign(replace(FRESH, lease_id=23)))
    bench.fetched(ANOTHER)
    bench.fetched()
    assert bench.made(StartLease) == [StartLease(replace(FRESH, lease_id=23))]
    bench.hear(UpdateReply(21, Outcome.REFUSED, "stale"))
    assert bench.made(SettlePush) == [], "the trainer forgot it"
    bench.trained(23, ANOTHER)
    bench.hear(Assign(replace(NEXT, lease_id=24, adopt=())))
    assert len(bench.made(StartLease)) == 1, "what was refused is older than the fresh beginning"


def test_each_upload_is_tried_again_by_itself(bench: Bench) -> None:
    bench.hear(Merged(0, 1, PARAMETERS, None))
    bench.fetched()
    bench.trained(22, ANOTHER)
    bench.do(UploadFailed(bench.now, 21, "reset"))
    bench.wait(0.3)
    assert bench.made(UploadUpdate) == [UploadUpdate(21, PAYLOAD)]
    bench.uploaded(21)
    bench.do(UploadFailed(bench.now, 21, "reset"))
    assert bench.effects == []


def test_heartbeats_go_on_while_a_merged_fragment_is_waited_for(bench: Bench) -> None:
    bench.do(LeaseProgress(bench.now, 22, 2, 0.5))
    assert bench.said() == [Heartbeat(1, 11, 22, 2, 0.5, 4)], "its end is near"
    for beat in range(2, 5):
        bench.wait(1.0)
        assert bench.said() == [Heartbeat(beat, 11, 22, 2, 0.5, 4)]


def test_a_new_membership_gives_everything_up(bench: Bench) -> None:
    bench.lose()
    bench.connect(replace(WELCOME, generation=12))
    reason = "it belongs to an earlier membership"
    assert bench.made(AbortLease) == [AbortLease(22, reason), AbortLease(21, reason)]
    assert UPDATE not in bench.said()
