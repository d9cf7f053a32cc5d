"""The durable state and its records."""

from dataclasses import replace

import pytest

from pcp.distributed.algorithms import Contribution
from pcp.distributed.coordinator import ImpossibleRecord, Run, UnknownRecord, decode, encode, replay
from pcp.distributed.coordinator.events import Tick
from pcp.distributed.coordinator.log.records import (
    CheckpointWritten,
    ContributionsDropped,
    EpochStarted,
    OuterStepTaken,
    Record,
    RoundClosed,
    RoundOpened,
    RunFinished,
    RunStarted,
    UpdateAdmitted,
    WorkerNamed,
)
from pcp.distributed.coordinator.run import start_run
from pcp.distributed.messages import DataRange
from tests.distributed.coordinator.desk import CONFIG, MOMENTUM, PARAMETERS, Desk, blob

CONTRIBUTION = Contribution(1, 5, (DataRange(0, 4),), blob(5), 4, 40, 2.0)


def fresh() -> Run:
    return start_run(RunStarted(CONFIG, (PARAMETERS,), (MOMENTUM,)))


@pytest.mark.parametrize(
    "record",
    [
        EpochStarted(2),
        RoundOpened(1, 0, 4, 0, 2),
        RoundOpened(0, 1, 4, 0, 2),
        RoundOpened(0, 0, 0, 0, 2),
        RoundOpened(0, 0, 25, 0, 2),
        UpdateAdmitted(0, CONTRIBUTION),
        RoundClosed(0, (), ()),
        OuterStepTaken(0, blob(1), None, None),
        CheckpointWritten(1),
        RunFinished(0),
        RunStarted(CONFIG, (PARAMETERS,), (None,)),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_cannot_follow_is_named(record: Record) -> None:
    with pytest.raises(
        ImpossibleRecord,
        match=rf"{type(record).__name__} cannot follow: the run is in epoch 0 and has opened 0 rounds; in flight: none",
    ):
        fresh().apply(record)


def test_a_batch_is_admitted_once_and_below_the_limit() -> None:
    run = fresh()
    run.apply(RoundOpened(0, 0, 4, 0, 2))
    run.apply(UpdateAdmitted(0, CONTRIBUTION))
    with pytest.raises(ImpossibleRecord, match=r"UpdateAdmitted cannot follow: .*; in flight: 0; the record"):
        run.apply(UpdateAdmitted(0, CONTRIBUTION))


def test_rounds_close_in_order_with_all_that_was_admitted_and_merge_once() -> None:
    run = fresh()
    run.apply(RoundOpened(0, 0, 4, 0, 2))
    run.apply(RoundOpened(1, 0, 4, 4, 2))
    run.apply(UpdateAdmitted(0, CONTRIBUTION))
    run.apply(UpdateAdmitted(1, replace(CONTRIBUTION, lease_id=6, ranges=(DataRange(4, 4),))))
    assert [(each.wanted, each.missing) for each in run.in_flight] == [(4, 0), (8, 0)]
    for record in (RoundClosed(1, (6,), (1.0,)), RoundClosed(0, (6,), (1.0,)), RoundClosed(0, (5,), ())):
        with pytest.raises(ImpossibleRecord, match="RoundClosed cannot follow"):
            run.apply(record)
    run.apply(RoundClosed(0, (5,), (1.0,)))
    with pytest.raises(ImpossibleRecord, match=r"in flight: 0 \(closed\), 1; the record"):
        run.apply(UpdateAdmitted(0, CONTRIBUTION))
    run.apply(OuterStepTaken(0, blob(1), blob(2), blob(3)))
    [fragment] = run.fragments
    assert (fragment.version, fragment.round, fragment.merged) == (1, 0, (DataRange(0, 4),))
    assert (fragment.parameters, fragment.change, fragment.outer) == (blob(1), blob(2), blob(3))
    assert (run.version, run.tokens) == (1, 40)


def test_what_is_dropped_from_a_round_is_outstanding_again() -> None:
    run = fresh()
    run.apply(RoundOpened(0, 0, 8, 0, 2))
    before = run.digest()
    run.apply(UpdateAdmitted(0, CONTRIBUTION))
    assert (run.lacks(0), run.outstanding(0)) == (4, (DataRange(4, 4),))
    with pytest.raises(ImpossibleRecord, match="ContributionsDropped cannot follow"):
        run.apply(ContributionsDropped(0, (5, 6)))
    run.apply(ContributionsDropped(0, (5,)))
    assert (run.lacks(0), run.digest()) == (8, before)


def test_a_worker_has_one_number() -> None:
    run = fresh()
    run.apply(WorkerNamed("a", 1))
    for record in (WorkerNamed("a", 2), WorkerNamed("b", 1), WorkerNamed("b", 3)):
        with pytest.raises(ImpossibleRecord, match="WorkerNamed cannot follow"):
            run.apply(record)


def test_a_log_begins_with_a_run() -> None:
    with pytest.raises(
        ImpossibleRecord, match="the event log begins with EpochStarted; expected RunStarted or a snapshot"
    ):
        replay([encode(EpochStarted(1))])


def test_a_snapshot_is_the_state() -> None:
    desk = Desk()
    desk.join(1, "a")
    desk.join(2, "b")
    desk.fulfil(1)
    run = desk.state.run
    again = decode(encode(run))
    assert again == run
    assert again.digest() == run.digest()
    again.apply(WorkerNamed("c", 3))
    assert again.digest() != run.digest()


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (b"not json", "a record of the event log is not JSON"),
        (
            b'{"_":"Invented"}',
            'the event log holds a record "Invented"; this version of PCP does not know it',
        ),
        (
            b'{"_":"EpochStarted","age":3}',
            r'the event log holds a record "EpochStarted" with fields \[\'age\'\]',
        ),
    ],
)
def test_a_record_of_another_version_is_named(stored: bytes, message: str) -> None:
    with pytest.raises(UnknownRecord, match=message):
        decode(stored)


def test_only_registered_classes_are_stored() -> None:
    with pytest.raises(UnknownRecord, match="Tick cannot be stored: it is not registered"):
        encode(Tick(1.0))
