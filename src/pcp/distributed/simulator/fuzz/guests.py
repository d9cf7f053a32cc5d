"""A member that never delivers, in ways of its own: those that behave keep most of the speed that they have without it."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from pcp.distributed.algorithms import DecoupledDiLoCo, DiLoCo, SparseLoCo, StreamingDiLoCo, segment_steps
from pcp.distributed.bounds import SECONDS
from pcp.distributed.coordinator import RunConfig, TimeoutPolicy
from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.coordinator.events import ConnectionLost, MemberJoined, MessageReceived
from pcp.distributed.coordinator.rounds import data_ranges
from pcp.distributed.coordinator.state import Member
from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Failure,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Ready,
    Repeated,
    Update,
)
from pcp.distributed.simulator.fuzz.corpus import Choices, Plan
from pcp.distributed.simulator.fuzz.honest import Honest, blob_named, update_of
from pcp.distributed.simulator.fuzz.shepherd import ShepherdLife
from pcp.distributed.simulator.fuzz.witness import require

SECONDS_OF_A_LIFE = 600
SEGMENT_SECONDS = 4.0
"""Of the usual lease: some turns of the clock, so that it takes no longer than it should, and much less than a life."""
LEAST_PART = 0.4
"""Of the speed without a guest. Rests double until they are sixteen times what was waited, so the first ones weigh most."""
ALGORITHMS: tuple[Any, ...] = (
    DiLoCo(inner_steps=4),
    DiLoCo(inner_steps=40),
    SparseLoCo(inner_steps=4),
    StreamingDiLoCo(inner_steps=8, fragments=2, delay=2),
    DecoupledDiLoCo(inner_steps=8, fragments=2, delay=2),
)


def leave_by_goodbye(guest: "Guest", member: Member) -> None:
    """Say goodbye."""
    del member
    guest.say(Goodbye(False, "later"))


def fail(guest: "Guest", member: Member) -> None:
    """Give the lease up."""
    guest.say(Failure(member.generation, member.training, "no"))


def fail_altogether(guest: "Guest", member: Member) -> None:
    """Give everything up."""
    guest.say(Failure(member.generation, 0, "no"))


def push_nothing_usable(guest: "Guest", member: Member) -> None:
    """Push what must be refused."""
    guest.say(replace(guest.update(member), steps=2**62))


def never_upload(guest: "Guest", member: Member) -> None:
    """Say that a push is on its way, which never comes."""
    guest.say(guest.update(member))


def lose_the_connection(guest: "Guest", member: Member) -> None:
    """Come back over another connection."""
    del member
    guest.life.do(ConnectionLost(guest.life.now, guest.connection))
    guest.connection = 0


def begin_anew(guest: "Guest", member: Member) -> None:
    """Come back as another process, over another connection."""
    del member
    guest.processes += 1
    guest.connection = 0


def do_nothing(guest: "Guest", member: Member) -> None:
    """Go on saying that one is alive."""


WAYS = (
    leave_by_goodbye,
    fail,
    fail_altogether,
    push_nothing_usable,
    never_upload,
    lose_the_connection,
    begin_anew,
    do_nothing,
)


@dataclass(frozen=True, slots=True)
class Manner:
    """How a guest behaves.

    Arguments:
        ways: how its leases end, one after another.
        part: of a lease's time after which it ends.
        steps: that it says it has done of a lease, as a part.
        seconds: that it says a step takes.
        repeats: whether it says anything to what it is to repeat, and then what.
    """

    ways: tuple[Callable[["Guest", Member], None], ...]
    part: float
    steps: float
    seconds: float
    repeats: str


class Guest:
    """A member that holds what it is given, and never delivers it."""

    def __init__(self, life: ShepherdLife, manner: Manner) -> None:
        self.life, self.manner = life, manner
        self.connection = self.processes = self.leases = 0

    def say(self, message: Message) -> None:
        """Say something."""
        self.life.do(MessageReceived(self.life.now, self.connection, message))

    def update(self, member: Member) -> Update:
        """The proper update of its lease."""
        return update_of(self.life.config, self.life.coordinator.state.leases[member.training].lease)

    def second(self) -> None:
        """Let a second pass."""
        life, state = self.life, self.life.coordinator.state
        member = state.members.get(state.connections.get(self.connection, -1)) if self.connection else None
        if member is None:
            self._join()
            return
        held = state.leases.get(member.training)
        steps = int(held.lease.batches * self.manner.steps) if held else 0
        self.say(
            Heartbeat(1, member.generation, member.training, steps, self.manner.seconds if steps else 0.0)
        )
        if member.auditing:
            self._repeat(member)
        elif (
            held
            and held.update is None
            and life.now - held.granted >= self.manner.part * held.lease.deadline_seconds - 1
        ):
            self.leases += 1
            self.manner.ways[self.leases % len(self.manner.ways)](self, member)

    def _join(self) -> None:
        life = self.life
        life.connections += 1
        self.connection = life.connections
        hello = Hello(PROTOCOL_VERSION, "guest", b"%d" % self.processes, ("cpu:0",), 1)
        life.do(MemberJoined(life.now, self.connection, hello))
        if self.connection in life.generations:
            self.say(Ready(life.generations[self.connection]))

    def _repeat(self, member: Member) -> None:
        audit = member.auditing
        if self.manner.repeats == "fails":
            self.say(Failure(member.generation, audit, "no"))
        elif self.manner.repeats == "half":
            self.say(Repeated(audit, blob_named("anything"), None))


def manner_of(random: Random) -> Manner:
    """A manner."""
    return Manner(
        ways=tuple(random.choice(WAYS) for _ in range(random.choice((1, 1, 2, 3)))),
        part=random.choice((0.0, 0.1, 0.5, 0.9, 1.0)),
        steps=random.choice((0.0, 0.0, 0.5, 1.0)),
        seconds=random.choice((0.0, SECONDS.least, 0.1, 1.0, SECONDS.most)),
        repeats=random.choice(("", "fails", "half")),
    )


def config_of(random: Random) -> RunConfig:
    """One of few runs, as each is lived without a guest, too."""
    return RunConfig(
        run_id="shared",
        batches=10**6,
        algorithm=random.choice(ALGORITHMS),
        workers=2,
        tokens_per_batch=10,
        patience_seconds=5.0,
        lease=TimeoutPolicy(initial_seconds=600.0, floor_seconds=30.0),
        audits=random.choice((AuditPolicy(), AuditPolicy(), AuditPolicy(rate=1.0, pieces=2, seed=1))),
        checkpoint_every=10**6,
    )


_ALONE: dict[tuple[Any, ...], int] = {}


class GuestLife:
    """The life of a run with a guest.

    Arguments:
        plan: the seed of all that is random; see `corpus.py`.
    """

    def __init__(self, plan: Plan | int) -> None:
        self.choices, self.events = Choices("guest", plan), 0
        self.happened: dict[Hashable, int] = {}
        random = self.choices.random
        self.config, self.workers = config_of(random), random.choice((2, 3))
        self.manner = manner_of(random)

    def run(self) -> None:
        """Live.

        Raises:
            Broken: those that behave got much less done than without the guest.
        """
        kind = (self.config.algorithm, self.config.audits, self.workers)
        if kind not in _ALONE:
            _ALONE[kind] = self._trained(None)
        beside = self._trained(self.manner)
        require(
            beside > LEAST_PART * _ALONE[kind],
            f"{beside} batches beside a guest, {_ALONE[kind]} without: {self.manner}, {kind}",
        )

    def _trained(self, manner: Manner | None) -> int:
        batches, events = trained(self.config, self.workers, manner)
        self.events += events
        return batches


def trained(config: RunConfig, workers: int, manner: Manner | None) -> tuple[int, int]:
    """How many batches workers that behave get done, beside a guest or without, and how many events that takes."""
    life = ShepherdLife(1, config=config)
    life.is_wild = life.is_checked = False
    step = SEGMENT_SECONDS / segment_steps(config.algorithm)
    life.honest = [Honest(f"{number}", b"%d" % number, config, step) for number in range(workers)]
    guest = Guest(life, manner) if manner else None
    for _ in range(SECONDS_OF_A_LIFE):
        life.second()
        if guest is not None:
            guest.second()
    run = life.coordinator.state.run
    admitted = sum(each.batches for each in run.in_flight)
    return admitted + sum(data_ranges.total(each.merged) for each in run.fragments), life.events
