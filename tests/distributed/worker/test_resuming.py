"""Where workers exchange in pairs, a lease goes on under the next Shepherd, and so does a push that was not answered."""

from dataclasses import replace

import pytest

from pcp.distributed.messages import Assign, Outcome, Ready, Resume, Revoke, Update, UpdateReply
from pcp.distributed.worker.effects import AbortLease, CancelUpload, SettlePush, UploadUpdate
from pcp.distributed.worker.events import Prepared
from tests.distributed.worker.bench import LEASE, PAYLOAD, UPDATE, WELCOME, Bench

ANEW = replace(WELCOME, generation=12)


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.connect()
    bench.do(Prepared(0.0, "{}", resumes=True))
    bench.hear(Assign(LEASE))
    bench.fetched()
    return bench


def test_training_goes_on_and_is_said_before_anything_else(bench: Bench) -> None:
    bench.lose()
    bench.connect(ANEW)
    lease = replace(LEASE, generation=12)
    assert bench.said() == [Resume(lease), Ready(12)]
    assert not bench.made(AbortLease)
    bench.hear(Assign(replace(lease, adopt=())))
    assert bench.effects == [], "it trains the lease already"
    bench.trained()
    bench.uploaded()
    assert bench.said() == [replace(UPDATE, generation=12)]


def test_a_push_is_uploaded_again_since_another_shepherd_does_not_have_it(bench: Bench) -> None:
    bench.trained()
    bench.uploaded()
    assert [type(each) for each in bench.said()] == [Update]
    bench.lose()
    bench.connect(ANEW)
    assert bench.said() == [Resume(replace(LEASE, generation=12)), Ready(12)]
    assert bench.made(UploadUpdate) == [UploadUpdate(21, PAYLOAD)]
    bench.uploaded()
    assert bench.said() == [replace(UPDATE, generation=12)]
    bench.hear(UpdateReply(21, Outcome.ADMITTED, ""))
    assert bench.effects == [CancelUpload(21), SettlePush(21, Outcome.ADMITTED)]


def test_it_trains_on_however_long_there_is_no_shepherd(bench: Bench) -> None:
    bench.lose()
    for _ in range(100):
        bench.wait(60.0)
        assert not bench.made(AbortLease)


def test_a_lease_that_another_has_is_given_up(bench: Bench) -> None:
    bench.lose()
    bench.connect(ANEW)
    bench.hear(Revoke(21, "its data is merged, or another worker has it"))
    assert bench.made(AbortLease) == [AbortLease(21, "its data is merged, or another worker has it")]


def test_in_another_run_nothing_is_resumed(bench: Bench) -> None:
    bench.lose()
    bench.connect(replace(ANEW, run_id="another"))
    assert bench.made(AbortLease) == [AbortLease(21, "it belongs to an earlier membership")]
    assert bench.said() == [Ready(12)]


def test_the_same_membership_is_not_resumed_but_goes_on(bench: Bench) -> None:
    bench.lose()
    bench.connect()
    assert bench.said() == [Ready(11)]
