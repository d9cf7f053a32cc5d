"""What a worker's logic does when it is audited, and when it audits."""

from dataclasses import replace

import pytest

from pcp.distributed.messages import (
    AskStates,
    Assign,
    Blob,
    Failure,
    Outcome,
    Repeat,
    Repeated,
    Settlement,
    States,
    Update,
)
from pcp.distributed.worker.effects import (
    FetchBlob,
    FetchState,
    ForgetBlob,
    ForgetState,
    Notice,
    RepeatPiece,
    SendMessage,
    UploadState,
)
from pcp.distributed.worker.events import (
    BlobUnavailable,
    LeaseTrained,
    PieceFailed,
    PieceRepeated,
    StateUploadFailed,
)
from tests.distributed.worker.bench import LEASE, PARAMETERS, PAYLOAD, WELCOME, Bench

BEFORE, AFTER, RESULT, PUSH = (Blob(bytes([number]) * 32, 50) for number in (31, 32, 33, 34))
REPEAT = Repeat(77, replace(LEASE, lease_id=77), BEFORE, (), 0, 2, opening=False, push=True)


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.join()
    return made


def sent(bench: Bench) -> list[object]:
    return [each.message for each in bench.effects if isinstance(each, SendMessage)]


def trained(bench: Bench) -> None:
    bench.hear(Assign(LEASE))
    bench.fetched()
    settled = (Settlement(0, Outcome.CARRIED),)
    bench.do(LeaseTrained(bench.now, 21, PAYLOAD, 400, (2.0, 1.0), 3.0, (BEFORE, AFTER), settled))
    bench.uploaded()


def repeating(bench: Bench) -> None:
    bench.hear(REPEAT)
    bench.fetched(BEFORE)
    bench.fetched(PARAMETERS)


def test_an_update_tells_the_digests_of_the_states_and_what_was_settled(bench: Bench) -> None:
    trained(bench)
    [update] = [each for each in sent(bench) if isinstance(each, Update)]
    assert update.commitments == (BEFORE.digest, AFTER.digest)
    assert update.settled == (Settlement(0, Outcome.CARRIED),)


def test_states_that_are_asked_for_are_uploaded(bench: Bench) -> None:
    trained(bench)
    bench.hear(AskStates(21, (AFTER.digest, BEFORE.digest)))
    assert sent(bench) == [States(21, (AFTER, BEFORE))]
    assert [each for each in bench.effects if isinstance(each, UploadState)] == [
        UploadState(AFTER),
        UploadState(BEFORE),
    ]


def test_states_that_are_not_here_are_not_promised(bench: Bench) -> None:
    bench.hear(AskStates(21, (AFTER.digest,)))
    assert sent(bench) == []
    assert bench.effects == [Notice("audit 21 asks for states that are not here any more")]


def test_an_upload_that_fails_is_repeated_after_a_pause(bench: Bench) -> None:
    trained(bench)
    bench.hear(AskStates(21, (AFTER.digest,)))
    bench.do(StateUploadFailed(bench.now, AFTER, "reset by peer"))
    bench.wait(0.01)
    assert UploadState(AFTER) not in bench.effects
    bench.wait(0.5)
    assert UploadState(AFTER) in bench.effects
    bench.wait(0.5)
    assert UploadState(AFTER) not in bench.effects


def test_an_upload_that_always_fails_ends(bench: Bench) -> None:
    trained(bench)
    bench.hear(AskStates(21, (AFTER.digest,)))
    tries, notices = 1, list[str]()
    while bench.now < 600.0:
        if UploadState(AFTER) in bench.effects:
            bench.do(StateUploadFailed(bench.now, AFTER, "the peer refused it"))
            notices += [each.message for each in bench.made(Notice)]
        bench.wait(0.25)
        tries += UploadState(AFTER) in bench.effects
    assert tries == len(notices) == 8
    assert notices[-1] == "the upload of a state failed 8 times and ends: the peer refused it"
    bench.connect()
    bench.hear(AskStates(22, (AFTER.digest,)))
    assert UploadState(AFTER) in bench.effects, "it begins anew when an audit asks anew"


def test_a_restarted_shepherd_gets_no_states_that_the_one_before_asked_for(bench: Bench) -> None:
    trained(bench)
    bench.hear(AskStates(21, (AFTER.digest,)))
    bench.lose()
    bench.connect(replace(WELCOME, generation=12))
    bench.do(StateUploadFailed(bench.now, AFTER, "the Shepherd did not ask for it"))
    assert bench.effects == []
    bench.wait(60.0)
    assert UploadState(AFTER) not in bench.effects


def test_a_piece_is_repeated_when_everything_that_it_names_is_here(bench: Bench) -> None:
    bench.hear(REPEAT)
    assert bench.effects == [FetchBlob(PARAMETERS), FetchState(BEFORE)]
    bench.fetched(BEFORE)
    assert bench.effects == []
    bench.fetched(PARAMETERS)
    assert bench.effects == [RepeatPiece(REPEAT)]


def test_what_a_piece_comes_to_is_told_and_may_be_asked_for(bench: Bench) -> None:
    repeating(bench)
    bench.do(PieceRepeated(bench.now, 77, RESULT, PUSH))
    assert sent(bench) == [Repeated(77, RESULT, PUSH)]
    assert ForgetState(BEFORE) in bench.effects
    bench.hear(AskStates(77, (RESULT.digest, PUSH.digest)))
    assert sent(bench) == [States(77, (RESULT, PUSH))]


def test_results_go_when_there_are_others(bench: Bench) -> None:
    for result in (RESULT, AFTER):
        repeating(bench)
        bench.do(PieceRepeated(bench.now, 77, result, None))
    assert ForgetBlob(RESULT) in bench.effects
    assert ForgetBlob(AFTER) not in bench.effects


def test_a_piece_that_cannot_be_repeated_is_told(bench: Bench) -> None:
    repeating(bench)
    bench.do(PieceFailed(bench.now, 77, "out of memory"))
    assert sent(bench) == [Failure(11, 77, "out of memory")]


def test_a_piece_whose_blobs_are_not_there_is_told(bench: Bench) -> None:
    bench.hear(REPEAT)
    bench.do(BlobUnavailable(bench.now, BEFORE, "not announced"))
    assert sent(bench) == [Failure(11, 77, "a blob of the piece cannot be fetched: not announced")]


def test_a_busy_worker_repeats_nothing(bench: Bench) -> None:
    bench.hear(Assign(LEASE))
    bench.hear(REPEAT)
    assert sent(bench) == [Failure(11, 77, "busy")]


def test_a_lease_ends_a_repetition(bench: Bench) -> None:
    repeating(bench)
    bench.hear(Assign(LEASE))
    assert ForgetState(BEFORE) in bench.effects
    bench.do(PieceRepeated(bench.now, 77, RESULT, None))
    assert sent(bench) == []
