"""What one member that never delivers leaves of the speed that the others have without it, in virtual time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pcp.distributed.algorithms import DecoupledDiLoCo, DiLoCo, StreamingDiLoCo
from pcp.distributed.bounds import SECONDS as SECONDS_BOUND
from pcp.distributed.coordinator import RunConfig, TimeoutPolicy
from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.coordinator.events import BlobStored, MemberJoined, MessageReceived
from pcp.distributed.coordinator.rounds import data_ranges
from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Failure,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Ready,
    Repeat,
)
from pcp.distributed.simulator.fuzz import guests
from pcp.distributed.simulator.fuzz.honest import Honest, update_of
from pcp.distributed.simulator.fuzz.shepherd import ShepherdLife

SECONDS = 400
CONFIG = RunConfig(
    run_id="shared",
    batches=10**6,
    algorithm=DiLoCo(inner_steps=4),
    workers=2,
    tokens_per_batch=10,
    patience_seconds=5.0,
    lease=TimeoutPolicy(initial_seconds=600.0, floor_seconds=30.0),
    checkpoint_every=10**6,
)


class Guest:
    """A member that heartbeats, holds what it is given, and leaves in its own way just before that expires."""

    def __init__(self, life: ShepherdLife, leave: Callable[["Guest"], None] | None) -> None:
        self.life, self.leave, self.connection, self.joined = life, leave, 0, 0

    def say(self, message: Message) -> None:
        self.life.do(MessageReceived(self.life.now, self.connection, message))

    def second(self) -> None:
        life = self.life
        state = life.coordinator.state
        member = state.members.get(state.connections.get(self.connection, -1))
        if member is None:
            self.joined += 1
            self.connection = 10**6 + self.joined
            hello = Hello(PROTOCOL_VERSION, "guest", f"{self.joined}".encode(), ("cpu:0",), 1)
            life.do(MemberJoined(life.now, self.connection, hello))
            if self.connection in life.generations:
                self.say(Ready(life.generations[self.connection]))
            return
        held = state.leases.get(member.training)
        steps = 1 if held else 0
        self.say(Heartbeat(1, member.generation, member.training, steps, 0.1 * steps))
        if self.leave and held and life.now - held.granted > CONFIG.lease.floor_seconds - 2:
            self.leave(self)


def by_goodbye(guest: Guest) -> None:
    guest.say(Goodbye(False, "later"))


def by_failure(guest: Guest) -> None:
    member = guest.life.coordinator.state.members[guest.life.coordinator.state.connections[guest.connection]]
    guest.say(Failure(member.generation, member.training, "no"))


def by_an_unusable_update(guest: Guest) -> None:
    state = guest.life.coordinator.state
    member = state.members[state.connections[guest.connection]]
    guest.say(replace(update_of(CONFIG, state.leases[member.training].lease), tokens=1))


class ByTurns(Guest):
    """A member that lets every other lease expire, and delivers the others at once, which forgives it."""

    def __init__(self, life: ShepherdLife) -> None:
        super().__init__(life, None)
        self.last = 0
        self.is_silent = False

    def second(self) -> None:
        state = self.life.coordinator.state
        member = state.members.get(state.connections.get(self.connection, -1))
        if member is not None and member.training not in (0, self.last):
            self.last, self.is_silent = member.training, not self.is_silent
            if not self.is_silent:
                update = update_of(CONFIG, state.leases[self.last].lease)
                self.say(update)
                self.life.do(BlobStored(self.life.now, update.payload))
                return
        super().second()


class LateNowAndThen(Guest):
    """A member that delivers every fifth lease just before it would expire, and the others at once."""

    def __init__(self, life: ShepherdLife) -> None:
        super().__init__(life, None)
        self.last = self.count = 0

    def second(self) -> None:
        state = self.life.coordinator.state
        member = state.members.get(state.connections.get(self.connection, -1))
        if member is not None and member.training:
            held = state.leases[member.training]
            if member.training != self.last:
                self.last, self.count = member.training, self.count + 1
            if self.count % 5 or self.life.now - held.granted > CONFIG.lease.floor_seconds - 3:
                update = update_of(CONFIG, held.lease)
                self.say(update)
                self.life.do(BlobStored(self.life.now, update.payload))
                return
        super().second()


def trained(
    guest: Callable[[ShepherdLife], Guest] | None, config: RunConfig = CONFIG, seconds: int = SECONDS
) -> int:
    """Return how many batches two workers that behave train, beside a guest or alone."""
    life = ShepherdLife(1, config=config)
    life.is_wild = life.is_checked = False
    life.honest = life.behaving("quiet", 2)
    other = guest(life) if guest else None
    for _ in range(seconds):
        life.second()
        if other is not None:
            other.second()
    return data_ranges.total(life.coordinator.state.run.fragments[0].merged)


@pytest.fixture(scope="module")
def alone() -> int:
    return trained(None)


@pytest.mark.parametrize(
    "leave",
    [by_goodbye, by_failure, by_an_unusable_update],
    ids=lambda each: each.__name__,
)
def test_who_never_delivers_takes_little_of_the_time(leave: Callable[[Guest], None], alone: int) -> None:
    # Rests double until they are sixteen times what was waited, so the first ones weigh most.
    beside = trained(lambda life: Guest(life, leave))
    assert beside > 0.5 * alone, f"{beside} batches beside it, {alone} without"


def test_who_delivers_now_and_then_takes_no_more_of_the_time_than_who_never_does() -> None:
    by_turns, quiet = (trained(guest, seconds=1200) for guest in (ByTurns, lambda life: Guest(life, None)))
    assert by_turns > 0.9 * quiet, (
        f"{by_turns} batches beside one that delivers by turns, {quiet} beside a quiet one"
    )


def test_who_delivers_late_now_and_then_is_not_waited_for_more_than_it_saves(alone: int) -> None:
    beside = trained(LateNowAndThen, seconds=2 * SECONDS)
    assert beside > 0.6 * 2 * alone, f"{beside} batches beside it, {2 * alone} without"


def quick_one(others: list[float], config: RunConfig, seconds: int = 30) -> int:
    """Return how many batches a worker of 0.01 s a step delivers in the first seconds beside others."""
    life = ShepherdLife(1, config=config)
    life.is_wild = life.is_checked = False
    life.honest = [
        Honest(f"{number}", b"%d" % number, config, each) for number, each in enumerate([0.01, *others])
    ]
    while life.now < seconds:
        life.second(0.1)
    state = life.coordinator.state
    return data_ranges.total(state.run.fragments[0].merged) + sum(
        each.batches for each in state.run.in_flight
    )


@pytest.mark.parametrize("factor", [8, 20, 100])
@pytest.mark.parametrize("steps", [100, 400])
def test_a_slow_newcomer_hardly_holds_up_the_quick_from_the_first_second_on(factor: int, steps: int) -> None:
    config = replace(CONFIG, algorithm=DiLoCo(inner_steps=steps))
    alone = quick_one([], replace(config, workers=1))
    beside = quick_one([0.01 * factor], config)
    assert beside > 0.8 * alone, f"{beside} batches beside it, {alone} without"


class SilentAuditor(Honest):
    """A worker that trains as others do, and repeats nothing."""

    def __init__(self, config: RunConfig) -> None:
        super().__init__("silent", b"silent", config)
        self.asked: list[int] = []

    def hear(self, message: Message, now: float) -> list[Message]:
        if isinstance(message, Repeat):
            self.asked.append(message.audit)
            return []
        return super().hear(message, now)


def audited(
    rate: float,
    workers: int,
    inner_steps: int,
    seed: int = 1,
    silent: bool = False,
    life: int = 1,
    seconds: int = SECONDS,
) -> tuple[int, list[int]]:
    """Return how many batches are merged beside audits, and what a silent worker was asked to repeat."""
    config = replace(
        CONFIG, algorithm=DiLoCo(inner_steps), audits=AuditPolicy(rate=rate, pieces=2, seed=seed)
    )
    lived, auditor = ShepherdLife(life, config=config), SilentAuditor(config)
    lived.is_wild = lived.is_checked = False
    lived.honest = [*lived.behaving("quiet", workers), *[auditor] * silent]
    for _ in range(seconds):
        lived.second()
    return data_ranges.total(lived.coordinator.state.run.fragments[0].merged), auditor.asked


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_a_silent_auditor_is_asked_once_and_takes_little_of_the_time(rate: float) -> None:
    alone, _ = audited(rate, 2, 40)
    beside, asked = audited(rate, 2, 40, silent=True)
    assert len(asked) == len(set(asked)) >= 1, "what it did not repeat goes to another"
    assert len(asked) < 5, "it rests, longer each time"
    assert beside > 0.85 * alone, f"{beside} batches beside it, {alone} without"


def test_who_repeats_a_piece_when_a_round_opens_still_has_its_part_of_it() -> None:
    without = [audited(0.0, 3, 8, life=life, seconds=120)[0] for life in range(2)]
    with_audits = [
        [audited(0.3, 3, 8, seed, life=life, seconds=120)[0] for life in range(2)] for seed in (3, 4)
    ]
    found = sum(map(sum, with_audits)) / (2 * sum(without))
    assert found > 0.9, f"{with_audits} batches with audits, {without} without; 0.77 of them without its part"


@pytest.mark.parametrize("algorithm", [StreamingDiLoCo, DecoupledDiLoCo])
def test_who_fails_each_lease_at_once_is_not_waited_for_where_all_wait_for_a_merge(algorithm: Any) -> None:
    # What the oldest round lacks is for whoever is idle; the others hold leases of the next one, which wait for that merge.
    config = replace(CONFIG, algorithm=algorithm(inner_steps=8, fragments=2, delay=2))
    manner = guests.Manner((guests.fail,), part=0.0, steps=1.0, seconds=1.0, repeats="")
    alone, beside = (guests.trained(config, 2, each)[0] for each in (None, manner))
    assert beside > 0.6 * alone, f"{beside} batches beside it, {alone} without"


@pytest.mark.parametrize("leave", [guests.leave_by_goodbye, guests.begin_anew, guests.fail])
def test_who_gives_each_lease_up_before_it_is_late_is_waited_for_in_vain_from_the_second_on(
    leave: Callable[[guests.Guest, Any], None],
) -> None:
    config = replace(CONFIG, algorithm=DiLoCo(inner_steps=40))
    manner = guests.Manner((leave,), part=0.1, steps=1.0, seconds=SECONDS_BOUND.least, repeats="")
    alone, beside = (guests.trained(config, 2, each)[0] for each in (None, manner))
    assert beside > 0.6 * alone, f"{beside} batches beside it, {alone} without"
