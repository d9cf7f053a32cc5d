"""A run folder that was copied and started does not take the run's Workers along another history without a word."""

from itertools import count

import pytest

from pcp.distributed.algorithms import NoLoCo
from pcp.distributed.coordinator import RunConfig
from pcp.distributed.coordinator.effects import Report, Trouble
from pcp.distributed.messages import Failure, FailureKind, Heartbeat, HeartbeatReply, Welcome
from pcp.distributed.takeovers import TAKEOVERS_KEPT, Seen, Takeover, contradiction
from pcp.distributed.worker.effects import Disconnect, Notice, SendMessage
from tests.distributed.coordinator.desk import CONFIG, Desk
from tests.distributed.worker.bench import Bench

NUMBERS = count(100)
PAIRS = RunConfig(run_id="tested", batches=48, workers=2, algorithm=NoLoCo(4, 12), tokens_per_batch=10)


def rounds(desk: Desk, number: int, first: int = 1) -> Desk:
    """Merge rounds of two workers."""
    for connection, worker in ((first, "a"), (first + 1, "b")):
        if connection not in desk.state.connections:
            desk.join(connection, worker)
    for _ in range(number):
        desk.fulfil(first)
        desk.fulfil(first + 1)
        desk.step()
    return desk


def welcomed(desk: Desk) -> tuple[int, Welcome]:
    """What a Shepherd says to the worker "a", on a new connection, and the number of that."""
    connection = next(NUMBERS)
    desk.hello(connection, "a", b"process")
    return connection, desk.sent(connection, Welcome)[-1]


def with_shepherd(desk: Desk, bench: Bench | None = None) -> Bench:
    """A worker that joined, and heard the answer to a heartbeat."""
    bench = bench or Bench()
    connection, welcome = welcomed(desk)
    bench.connect(welcome)
    desk.say(connection, Heartbeat(1, bench.logic.state.generation, 0, 0, 0.0))
    bench.hear(desk.sent(connection, HeartbeatReply)[-1])
    return bench


def meets(bench: Bench, desk: Desk) -> str:
    """Why a worker does not follow a Shepherd; empty if it does."""
    bench.lose()
    before = bench.logic.state.generation
    connection, welcome = welcomed(desk)
    bench.connect(welcome)
    told = [each.message for each in bench.effects if isinstance(each, SendMessage)]
    failures = [each for each in told if isinstance(each, Failure)]
    assert bool(failures) != bench.logic.state.welcomed
    if not failures:
        return ""
    assert bench.logic.state.generation == before, "what it had with the other goes on"
    assert any(isinstance(each, Disconnect) for each in bench.effects)
    (notice,) = (each.message for each in bench.effects if isinstance(each, Notice))
    assert failures[0].reason[:200] in notice
    assert failures[0].kind is FailureKind.HISTORY
    assert "Serve one of the folders only; if it is to be this one, restart this Worker" in failures[0].reason
    (trouble,) = (
        each.metrics.message
        for each in desk.say(connection, failures[0])
        if isinstance(each, Report) and isinstance(each.metrics, Trouble)
    )
    assert failures[0].reason in trouble, "the Shepherd says it, too"
    return failures[0].reason


@pytest.mark.parametrize("config", [CONFIG, PAIRS], ids=["rounds", "pairs"])
def test_a_shepherd_that_was_killed_goes_on_from_its_own_log_without_a_word(config: RunConfig) -> None:
    desk = Desk(config, mark=b"1")
    bench = with_shepherd(desk)
    for mark in (b"2", b"3"):
        desk = Desk(log=desk.log, mark=mark)
        assert meets(bench, desk) == ""
        assert bench.logic.state.seen == Seen(int(mark), mark, 0)


def test_a_shepherd_that_merged_much_while_a_worker_was_away_is_followed() -> None:
    desk = rounds(Desk(mark=b"1"), 1)
    bench = with_shepherd(desk)
    assert bench.logic.state.seen == Seen(1, b"1", 1)
    later = rounds(Desk(log=rounds(desk, 1, first=1).log, mark=b"2"), 1, first=20)
    assert meets(bench, later) == ""


@pytest.mark.parametrize("config", [CONFIG, PAIRS], ids=["rounds", "pairs"])
def test_both_copies_of_a_folder_were_started(config: RunConfig) -> None:
    log = list(Desk(config, mark=b"1").log)
    one, other = Desk(log=log, mark=b"one"), Desk(log=log, mark=b"other")
    assert "another history than the one that this Worker trained for: start 2" in meets(
        with_shepherd(one), other
    )
    again = Desk(log=other.log, mark=b"again")
    assert "another history" in meets(with_shepherd(one), again)


def test_a_copy_was_made_while_the_run_went_on() -> None:
    desk = rounds(Desk(mark=b"1"), 1)
    copy = Desk(log=list(desk.log), mark=b"copy")
    assert meets(with_shepherd(desk), copy) == "", "nothing was merged since"
    rounds(desk, 1)
    reason = meets(with_shepherd(desk), Desk(log=copy.log, mark=b"again"))
    assert (
        "goes on from round 1 of start 1, and this Worker has seen round 2 of it: it was copied before"
        in reason
    )


def test_a_restored_backup_is_older_than_what_a_worker_has_seen() -> None:
    first = Desk(mark=b"1")
    backup = list(first.log)
    third = Desk(log=Desk(log=first.log, mark=b"2").log, mark=b"3")
    reason = meets(with_shepherd(third), Desk(log=backup, mark=b"4"))
    assert "knows of 2 starts of a Shepherd, and this Worker has been with start 3" in reason
    assert "a restored backup for example" in reason


def test_a_worker_that_was_refused_goes_on_with_its_own_shepherd_and_a_new_process_follows_the_copy() -> None:
    log = list(Desk(mark=b"1").log)
    one, other = Desk(log=log, mark=b"one"), Desk(log=log, mark=b"other")
    bench = with_shepherd(one)
    assert meets(bench, other)
    assert meets(bench, one) == ""
    assert meets(with_shepherd(other, Bench()), other) == ""


def test_another_run_has_another_history() -> None:
    bench = with_shepherd(Desk(mark=b"1"))
    bench.lose()
    bench.connect(Welcome(4, 11, "another", 1.0, "{}", epoch=1, takeovers=(Takeover(b"2", 0),)))
    assert bench.logic.state.seen == Seen(1, b"2", 0)


def test_logs_without_marks_and_long_absences_are_believed() -> None:
    many = tuple(Takeover(b"%d" % each, each) for each in range(TAKEOVERS_KEPT))
    assert contradiction(Seen(3, b"x", 9), 100, many) == ""
    assert contradiction(Seen(), 1, many) == contradiction(Seen(3, b"x"), 1, ()) == ""
    assert contradiction(Seen(1, b"x"), 2, (Takeover(b"", 0), Takeover(b"2", 0))) == ""
    assert contradiction(Seen(99, b"x"), 100, many)
    old = Desk()
    assert len(Desk(log=old.log, mark=b"2").state.run.takeovers) == 2


def test_a_run_keeps_the_last_takeovers_only() -> None:
    log = Desk(mark=b"0").log
    for each in range(TAKEOVERS_KEPT + 3):
        log = Desk(log=log, mark=b"%d" % each).log
    assert len(welcomed(Desk(log=log, mark=b"last"))[1].takeovers) == TAKEOVERS_KEPT
