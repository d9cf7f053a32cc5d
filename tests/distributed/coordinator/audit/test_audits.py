"""Audits, step by step: what is asked of whom, and what follows from each answer."""

from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest
from tests.distributed.coordinator.desk import CONFIG, Desk

from pcp.distributed.coordinator.audit import books as audit_books
from pcp.distributed.coordinator.audit.audits import UNPROVEN_IN_A_ROW
from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.coordinator.effects import Append, AuditEnded, CompareStates, DeleteBlob, Report, Trouble
from pcp.distributed.coordinator.events import BlobRefused, BlobStored, ConnectionLost, StatesCompared
from pcp.distributed.coordinator.log.records import ContributionsDropped
from pcp.distributed.coordinator.rounds.cells import Cells, Pending
from pcp.distributed.messages import (
    AskStates,
    Blob,
    DataRange,
    Failure,
    Goodbye,
    Outcome,
    Repeat,
    Repeated,
    Settlement,
    States,
    UpdateReply,
    Welcome,
)

# One piece, which with an opening that nobody knows is the only thing to audit.
POLICY = AuditPolicy(rate=1.0, pieces=1, tolerance=0.01)
BEFORE, AFTER = Blob(b"\x21" * 32, 90), Blob(b"\x22" * 32, 90)
COMMITMENTS = (BEFORE.digest, AFTER.digest)


class AuditDesk(Desk):
    """A desk of workers, the first of which is audited for the only piece of its first lease."""

    def __init__(self, patch: pytest.MonkeyPatch, workers: int = 3, **settings: Any) -> None:
        self.audit = 0
        super().__init__(replace(CONFIG, workers=workers, audits=POLICY, **settings))
        patch.setattr(AuditPolicy, "is_picked", lambda _, lease_id: lease_id == self.audit)
        for number in range(1, workers + 1):
            self.join(number, f"worker {number}")
        self.audit = self.lease(1).lease_id
        self.state.audits.openings.clear()  # as if the workers had been there before this Shepherd
        self.payload = self.update(self.lease(1)).payload

    def report(self) -> None:
        """The first worker says that its lease is done."""
        self.fulfil(1, commitments=COMMITMENTS)

    def show(self, *blobs: Blob) -> None:
        """The first worker uploads states."""
        self.say(1, States(self.audit, blobs))
        for each in blobs:
            self.do(BlobStored(self.now, each))

    def finish(self, connection: int) -> None:
        """Another worker's lease is done."""
        self.fulfil(connection, commitments=COMMITMENTS)

    def ended(self) -> AuditEnded | None:
        """What the last event told of an audit that is over."""
        found = [
            each.metrics
            for each in self.effects
            if isinstance(each, Report) and isinstance(each.metrics, AuditEnded)
        ]
        return found[0] if found else None

    def contradict(self, connection: int, distance: float) -> None:
        """A worker repeats the piece, comes to something else, and shows it."""
        other = Blob(bytes([connection]) * 32, 90)
        self.say(connection, Repeated(self.audit, other, self.payload))
        assert self.sent(connection, AskStates) == [AskStates(self.audit, (other.digest,))]
        self.say(connection, States(self.audit, (other,)))
        self.do(BlobStored(self.now, other))
        assert CompareStates(self.audit, (AFTER, other), 0, None) in self.effects
        self.do(StatesCompared(self.now, self.audit, distance))


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> AuditDesk:
    return AuditDesk(monkeypatch)


def shown(desk: AuditDesk, auditor: int = 2) -> AuditDesk:
    desk.report()
    desk.show(BEFORE, AFTER)
    desk.finish(auditor)
    return desk


def test_a_worker_is_asked_for_the_states_that_it_committed_to(desk: AuditDesk) -> None:
    desk.report()
    assert desk.sent(1, AskStates) == [AskStates(desk.audit, COMMITMENTS)]


def test_an_idle_worker_repeats_the_piece_without_learning_what_it_should_come_to(desk: AuditDesk) -> None:
    lease = desk.lease(1)
    shown(desk)
    [repeat] = desk.sent(2, Repeat)
    assert repeat == Repeat(desk.audit, lease, BEFORE, (), 0, 4, opening=False, push=True)
    assert desk.state.members[2].auditing == desk.audit


def test_equal_results_need_no_upload(desk: AuditDesk) -> None:
    shown(desk).say(2, Repeated(desk.audit, AFTER, desk.payload))
    assert desk.ended() == AuditEnded(
        desk.audit, 1, 2, "confirmed", f"steps 0 to 4 and the push of lease {desk.audit}"
    )
    assert desk.sent(2, AskStates) == []
    assert {DeleteBlob(BEFORE), DeleteBlob(AFTER)} <= set(desk.effects)
    assert DeleteBlob(desk.payload) not in desk.effects


def test_results_within_the_tolerance_are_equal(desk: AuditDesk) -> None:
    shown(desk).contradict(2, 0.009)
    assert desk.ended() == AuditEnded(
        desk.audit, 1, 2, "confirmed", f"steps 0 to 4 and the push of lease {desk.audit}"
    )


def test_two_that_contradict_keep_a_worker_out(desk: AuditDesk) -> None:
    shown(desk).contradict(2, 0.02)
    assert desk.ended() is None
    desk.finish(3)
    assert len(desk.sent(3, Repeat)) == 1
    desk.contradict(3, 0.02)
    ended = desk.ended()
    assert ended is not None
    assert (ended.worker_id, ended.verdict) == (1, "guilty")
    assert "two workers that repeated steps 0 to 4" in ended.reason
    assert "worker 1" in desk.state.run.barred
    assert 1 not in desk.state.members


def test_who_is_kept_out_cannot_join_again_even_after_a_restart(desk: AuditDesk) -> None:
    desk.report()
    desk.show(BEFORE, Blob(b"\x23" * 32, 90))
    restarted = Desk(log=desk.log)
    restarted.hello(9, "worker 1", b"second")
    [goodbye] = restarted.sent(9, Goodbye)
    assert "worker 1 is kept out of this run: it shows other states than it committed to" in goodbye.reason
    assert restarted.sent(9, Welcome) == []


def test_who_contradicts_what_a_third_confirms_is_kept_out(desk: AuditDesk) -> None:
    shown(desk).contradict(2, 0.02)
    desk.finish(3)
    desk.say(3, Repeated(desk.audit, AFTER, desk.payload))
    ended = desk.ended()
    assert ended is not None
    assert (ended.worker_id, ended.verdict) == (2, "guilty")
    assert list(desk.state.run.barred) == ["worker 2"]


def test_states_that_were_not_committed_to_prove_guilt(desk: AuditDesk) -> None:
    desk.report()
    admitted = desk.state.run.in_flight[0].missing
    desk.show(BEFORE, Blob(b"\x23" * 32, 90))
    assert desk.state.run.barred == {"worker 1": "it shows other states than it committed to"}
    assert desk.state.run.in_flight[0].missing == admitted + 4


def test_an_unusable_state_proves_guilt(desk: AuditDesk) -> None:
    desk.report()
    desk.say(1, States(desk.audit, (BEFORE, AFTER)))
    desk.do(BlobRefused(desk.now, AFTER, "it holds no state"))
    assert desk.state.run.barred == {"worker 1": "the state that it shows is unusable: it holds no state"}


def test_a_push_that_does_not_follow_is_compared(desk: AuditDesk) -> None:
    honest = Blob(b"\x31" * 32, 40)
    shown(desk).say(2, Repeated(desk.audit, AFTER, honest))
    desk.say(2, States(desk.audit, (honest,)))
    desk.do(BlobStored(desk.now, honest))
    assert CompareStates(desk.audit, None, 0, (desk.payload, honest)) in desk.effects


def test_what_is_not_shown_in_time_does_not_count(desk: AuditDesk) -> None:
    desk.report()
    missing = desk.state.run.in_flight[0].missing
    seconds = desk.state.audits.audits[desk.audit].expires - desk.now
    for member in desk.state.members.values():
        member.last_heard = desk.now + seconds
    desk.wait(seconds)
    assert 1 not in desk.state.members
    assert desk.state.run.barred == {}
    assert desk.state.run.in_flight[0].missing == missing + 4
    assert desk.state.audits.unproven == {1: 1}


@pytest.mark.parametrize(
    ("size", "seconds"), [(60_000_000, 60.0), (10**15, audit_books.LONGEST_TRANSFER_SECONDS)]
)
def test_large_states_may_take_their_time_once(size: int, seconds: float, desk: AuditDesk) -> None:
    patience = audit_books.PATIENCE * desk.lease(1).deadline_seconds
    desk.report()
    audit = desk.state.audits.audits[desk.audit]
    assert audit.expires == desk.now + patience
    told = States(desk.audit, (Blob(BEFORE.digest, size), Blob(AFTER.digest, 0)))
    desk.say(1, told)
    expires = audit.expires
    assert expires == desk.now + patience + seconds
    desk.wait(1.0)
    desk.say(1, told)
    assert audit.expires == expires


def test_going_away_three_times_when_asked_is_as_bad(desk: AuditDesk) -> None:
    for attempt in range(3):
        assert desk.state.run.barred == {}
        connection = 1 if not attempt else 10 + attempt
        if attempt:
            desk.join(connection, "worker 1", bytes([attempt]))
            desk.state.audits.openings.clear()
        desk.fulfil(connection, commitments=COMMITMENTS)
        # After the first time it is asked for certain.
        assert len(desk.sent(connection, AskStates)) == 1
        desk.say(connection, Goodbye(False, "bye"))
    assert desk.state.run.barred == {"worker 1": "it went away before it showed its states, 3 times in a row"}


def test_a_contribution_is_dropped_for_good_before_its_blob_goes(desk: AuditDesk) -> None:
    desk.report()
    effects = desk.say(1, Goodbye(False, "bye"))
    (dropped,) = (
        place
        for place, each in enumerate(effects)
        if isinstance(each, Append) and isinstance(each.record, ContributionsDropped)
    )
    deleted = [place for place, each in enumerate(effects) if isinstance(each, DeleteBlob)]
    assert cast(Append, effects[dropped]).sync
    assert deleted
    assert dropped < deleted[0]


def test_all_that_is_asked_when_a_worker_goes_away_counts_once(desk: AuditDesk) -> None:
    desk.report()
    audits = desk.state.audits
    for number in (1, 2, 3):  # as if it had trained on with overlap
        audits.audits[number] = replace(
            audits.audits[desk.audit],
            lease=replace(desk.state.audits.audits[desk.audit].lease, lease_id=number),
        )
    desk.state.references.update(each for _ in range(3) for each in audits.audits[desk.audit].held)
    desk.say(1, Goodbye(False, "bye"))
    assert audits.audits == {}
    assert audits.unproven == {1: 1}
    assert desk.state.run.barred == {}


def test_a_round_that_loses_its_quorum_to_an_audit_gets_leases_again(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = AuditDesk(monkeypatch, quorum=0.5)
    desk.report()
    desk.finish(2)  # two of three: that would do
    assert desk.state.clocks[0].quorum is not None
    desk.show(BEFORE, Blob(b"\x23" * 32, 90))
    assert list(desk.state.run.barred) == ["worker 1"]
    assert desk.state.clocks[0].quorum is None
    assert desk.lease(2).data == DataRange(0, 4)


def test_what_a_process_begins_with_is_known_at_its_first_lease_only() -> None:
    books = audit_books.AuditBooks()
    for number, process in enumerate([b"first", b"second", b"first"]):  # which took turns under one name
        books.granted(1, process, number, epoch=1)
    assert books.openings == {0: b"", 1: b""}
    books.granted(2, b"third", 3, epoch=2)
    assert 3 not in books.openings


def test_a_worker_that_comes_back_is_asked_again(desk: AuditDesk) -> None:
    desk.report()
    desk.do(ConnectionLost(desk.now, 1))
    desk.join(11, "worker 1")
    assert desk.sent(11, AskStates) == [AskStates(desk.audit, COMMITMENTS)]


@pytest.mark.parametrize("what", ["fails", "leaves", "reconnects", "is slow", "says nothing of the push"])
def test_what_an_auditor_does_not_do_goes_to_another(what: str, desk: AuditDesk) -> None:
    shown(desk)
    desk.finish(3)
    if what == "fails":
        desk.say(2, Failure(desk.generations[2], desk.audit, "out of memory"))
    elif what == "leaves":
        desk.say(2, Goodbye(False, "bye"))
    elif what == "reconnects":
        desk.do(ConnectionLost(desk.now, 2))
        desk.join(12, "worker 2")
    elif what == "is slow":
        seconds = desk.state.audits.audits[desk.audit].expires - desk.now
        for member in desk.state.members.values():
            member.last_heard = desk.now + seconds
        for held in desk.state.leases.values():
            held.expires += seconds
        desk.wait(seconds)
    else:
        desk.say(2, Repeated(desk.audit, AFTER, None))
    assert desk.state.audits.audits[desk.audit].auditor in (2, 3)
    auditing = [number for number, member in desk.state.members.items() if member.auditing]
    assert auditing == [desk.state.audits.audits[desk.audit].auditor]


def test_a_contradiction_that_nobody_can_decide_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = shown(AuditDesk(monkeypatch, workers=2))
    desk.contradict(2, 0.02)
    seconds = desk.state.audits.audits[desk.audit].expires - desk.now
    for member in desk.state.members.values():
        member.last_heard = desk.now + seconds
    desk.wait(seconds)
    assert desk.state.run.barred == {}
    told = [each.metrics for each in desk.effects if isinstance(each, Report)]
    assert any(
        isinstance(each, Trouble) and "to decide takes a third worker" in each.message for each in told
    )


@pytest.mark.parametrize("commitments", [(), (BEFORE.digest,), (BEFORE.digest, b"short")])
def test_an_update_without_its_commitments_is_refused(
    commitments: tuple[bytes, ...], desk: AuditDesk
) -> None:
    desk.fulfil(1, commitments=commitments)
    [reply] = desk.sent(1, UpdateReply)
    assert reply.reason == "not a digest of the worker's state for each border of the lease"


@pytest.mark.parametrize("choice", [0, 1], ids=["opening", "push"])
def test_a_lease_begins_where_the_last_one_ended(choice: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AuditPolicy, "is_picked", lambda _, lease_id: lease_id == 10**9 + 3)
    monkeypatch.setattr(AuditPolicy, "choice", lambda *_: choice)
    desk = Desk(replace(CONFIG, audits=POLICY))
    for number in (1, 2):
        desk.join(number, f"worker {number}")
    for number in (1, 2):
        desk.fulfil(number, commitments=COMMITMENTS)
    desk.step()
    assert desk.state.audits.openings[desk.lease(1).lease_id] == AFTER.digest
    first, last = Blob(b"\x24" * 32, 90), Blob(b"\x25" * 32, 90)
    told, invented = Settlement(0, Outcome.ADMITTED), Settlement(0, Outcome.CARRIED)
    desk.fulfil(1, commitments=(first.digest, last.digest), settled=(told, invented))
    [asked] = desk.sent(1, AskStates)
    audit = desk.state.audits.audits[asked.audit]
    if choice:
        assert (audit.piece.push, audit.settled) == (True, (told,))
        assert asked.digests == (first.digest, last.digest)
    else:
        assert (audit.piece.opening, audit.settled) == (True, ())
        assert asked.digests == (AFTER.digest, first.digest)


def test_cells_that_come_back_join_those_of_the_same_batches() -> None:
    pending = Pending([0, 0])
    pending.put(Cells(DataRange(0, 4), frozenset({0})))
    pending.put(Cells(DataRange(2, 4), frozenset({1})))
    assert pending.blocks == [
        Cells(DataRange(0, 2), frozenset({0})),
        Cells(DataRange(2, 2), frozenset({0, 1})),
        Cells(DataRange(4, 2), frozenset({1})),
    ]
    assert pending.counts == [4, 4]


def test_cells_join_as_if_every_batch_were_put_alone() -> None:
    random = Random(3)
    for _ in range(200):
        pending, expected = Pending([0, 0, 0]), set[tuple[int, int]]()
        for _ in range(6):
            start, count = random.randrange(20), random.randrange(1, 8)
            fragment = random.randrange(3)
            cells = {(batch, fragment) for batch in range(start, start + count)}
            if not cells & expected:
                expected |= cells
                pending.put(Cells(DataRange(start, count), frozenset({fragment})))
        starts = [block.data.start for block in pending.blocks]
        assert starts == sorted(set(starts))
        batches = [
            (batch, fragment)
            for block in pending.blocks
            for batch in range(block.data.start, block.data.start + block.data.count)
            for fragment in block.fragments
        ]
        assert sorted(batches) == sorted(expected)
        assert sum(pending.counts) == len(expected)


def test_audits_that_end_with_another_one_at_the_same_tick_are_not_looked_at_again(desk: AuditDesk) -> None:
    desk.report()
    books = desk.state.audits
    [audit] = books.audits.values()
    for number in (desk.audit + 100, desk.audit + 101):
        books.audits[number] = replace(audit, lease=replace(audit.lease, lease_id=number), held=[])
    books.unproven[1] = UNPROVEN_IN_A_ROW - 1
    audit.expires = desk.now
    for each in books.audits.values():
        each.expires = desk.now
    desk.wait(0.0)
    assert desk.state.run.barred["worker 1"].startswith("it did not show its states, 3 times in a row")
    assert not books.audits


def test_a_state_that_is_unusable_ends_the_other_audits_that_wait_for_it(desk: AuditDesk) -> None:
    desk.report()
    books = desk.state.audits
    [audit] = books.audits.values()
    other = books.audits[desk.audit + 100] = replace(
        audit, lease=replace(audit.lease, lease_id=desk.audit + 100), held=[]
    )
    audit.missing = other.missing = {BEFORE}
    desk.do(BlobRefused(desk.now, BEFORE, "it is none"))
    assert desk.state.run.barred["worker 1"] == "the state that it shows is unusable: it is none"
    assert not books.audits


def test_who_repeats_a_piece_without_its_push_is_not_asked_again(desk: AuditDesk) -> None:
    shown(desk).say(2, Repeated(desk.audit, AFTER, None))
    assert not desk.sent(2, Repeat), "it would be asked without end"
    desk.finish(3)
    assert [each.audit for each in desk.sent(3, Repeat)] == [desk.audit]
