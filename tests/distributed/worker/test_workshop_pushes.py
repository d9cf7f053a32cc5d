"""Pushes that are made while the next lease is trained: the workshop tells of them, or removes them where nobody wants them."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from pcp.distributed.messages import Blob, DataRange, Lease
from pcp.distributed.runtime import Runtime, finished
from pcp.distributed.wire.blob_files import StoreFull
from pcp.distributed.worker.effects import AbortLease, StartLease
from pcp.distributed.worker.events import Event, LeaseFailed, LeaseStepped, LeaseTrained
from pcp.distributed.worker.tools import Files, Trainer
from pcp.distributed.worker.training.inbox import Inbox
from pcp.distributed.worker.training.trainer import Later, Trained
from pcp.distributed.worker.workshop import Workshop
from tests.distributed.tiny_run import lease_of

PARAMETERS, PUSH = Blob(b"p" * 32, 1), Blob(b"d" * 32, 7)
MADE = Trained(PUSH, 100, (1.0,), 1.0, 0.1)


class AtOnce:
    """A runtime, and its lanes, that do everything where it is asked for."""

    def __init__(self, deliver: Callable[[Any], None] = lambda _: None) -> None:
        self._deliver = deliver

    def now(self) -> float:
        return 0.0

    def soon(self, action: Callable[..., None], *arguments: Any) -> None:
        action(*arguments)

    def lane(self, _: str, deliver: Callable[[Any], None]) -> "AtOnce":
        return AtOnce(deliver)

    def submit(self, work: Callable[[], Any]) -> None:
        if (result := finished(work())) is not None:
            self._deliver(result)


class LaterTrainer:
    """A trainer whose leases end before their pushes are made, and a store that notes what is removed."""

    def __init__(self) -> None:
        self.inbox, self.removed = Inbox(), list[bytes]()
        self.told: dict[int, Later] = {}

    async def train(self, lease: Lease, _progress: object, _aborted: object, later: Later) -> None:
        self.told[lease.lease_id] = later

    def remove(self, digest: bytes) -> None:
        self.removed.append(digest)


@pytest.fixture
def trainer() -> LaterTrainer:
    return LaterTrainer()


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def workshop(trainer: LaterTrainer, events: list[Event]) -> Workshop:
    """One in which lease 1 is trained, and lease 2 has begun."""
    nothing = cast(Any, None)
    made = Workshop(
        cast(Files, trainer),
        *(nothing,) * 5,
        runtime=cast(Runtime, AtOnce()),
        post=events.append,
    )
    made._trainer = cast(Trainer, trainer)
    for number in (1, 2):
        made.perform(StartLease(lease_of(number, DataRange(0, 1), PARAMETERS)))
    assert events == [LeaseStepped(0.0, 1), LeaseStepped(0.0, 2)]
    events.clear()
    return made


@pytest.mark.usefixtures("workshop")
def test_a_push_is_told_when_it_is_made(trainer: LaterTrainer, events: list[Event]) -> None:
    trainer.told[1](MADE)
    assert events == [LeaseTrained(0.0, 1, PUSH, 100, (1.0,), 1.0)]
    assert trainer.removed == []


def test_a_push_of_a_lease_that_was_given_up_meanwhile_is_removed(
    workshop: Workshop, trainer: LaterTrainer, events: list[Event]
) -> None:
    workshop.perform(AbortLease(1, "the round is closed"))
    trainer.told[1](MADE)
    assert events == []
    assert trainer.removed == [PUSH.digest]


def test_it_stays_where_an_equal_one_is_wanted(workshop: Workshop, trainer: LaterTrainer) -> None:
    workshop.perform(AbortLease(1, "the round is closed"))
    trainer.told[2](MADE)
    trainer.told[1](MADE)
    assert trainer.removed == []


@pytest.mark.parametrize("given_up", [False, True])
def test_what_kept_it_from_being_made_is_told_while_it_is_wanted(
    workshop: Workshop, trainer: LaterTrainer, events: list[Event], given_up: bool
) -> None:
    if given_up:
        workshop.perform(AbortLease(1, "the round is closed"))
    trainer.told[1](StoreFull("no room"))
    assert [type(each) for each in events] == ([] if given_up else [LeaseFailed])


@pytest.mark.usefixtures("workshop")
def test_a_bug_is_not_hidden(trainer: LaterTrainer) -> None:
    with pytest.raises(ZeroDivisionError):
        trainer.told[1](ZeroDivisionError("a bug"))
