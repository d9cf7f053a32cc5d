"""The durable state and its records."""

import pytest

from pcp.distributed.coordinator import ImpossibleRecord, Run, UnknownRecord, decode, encode, replay
from pcp.distributed.coordinator.events import Tick
from pcp.distributed.coordinator.records import (
    CheckpointWritten,
    EpochStarted,
    OuterStepTaken,
    Record,
    RoundClosed,
    RoundOpened,
    RunFinished,
    RunStarted,
    WorkerNamed,
)
from pcp.distributed.messages import DataRange
from tests.distributed.coordinator.desk import CONFIG, MOMENTUM, PARAMETERS, Desk, blob


def fresh() -> Run:
    return Run(CONFIG, PARAMETERS, MOMENTUM)


@pytest.mark.parametrize(
    "record",
    [
        EpochStarted(2),
        RoundOpened(1, (DataRange(0, 4),), 0),
        RoundOpened(0, (), 0),
        RoundClosed(0, (), ()),
        OuterStepTaken(0, blob(1), None),
        CheckpointWritten(1),
        RunFinished(0),
        RunStarted(CONFIG, PARAMETERS, None),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_that_cannot_follow_is_named(record: Record) -> None:
    with pytest.raises(
        ImpossibleRecord,
        match=rf"{type(record).__name__} cannot follow: the run is in round 0 \(between\), epoch 0",
    ):
        fresh().apply(record)


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
