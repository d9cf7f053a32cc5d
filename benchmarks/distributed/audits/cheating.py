"""Workers under audit, honest and not: their training is a chain of digests, so that every step leaves a trace.

An inner state is the SHA-256 of the state before and of what was done to it, beside the fragments whose last push is not
settled. Two workers that do the same come to the same state; whoever leaves out or adds anything comes to another.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pcp.distributed.coordinator.audit.policy import AuditPolicy
from pcp.distributed.messages import (
    AskStates,
    Assign,
    Blob,
    Lease,
    Merged,
    Message,
    Outcome,
    Ready,
    Repeat,
    Repeated,
    Revoke,
    Settlement,
    States,
    Update,
    UpdateReply,
    Welcome,
)

TOKENS = 10  # of a batch
PAYLOAD_BYTES, STATE_BYTES = 40, 160

CHEATS = ("honest", "lazy", "sign flip", "stale", "copied")


def digest(*parts: object) -> bytes:
    """The digest of values, by their written form."""
    return hashlib.sha256(repr(parts).encode()).digest()


@dataclass(frozen=True)
class Inner:
    """The inner state of a worker.

    Arguments:
        chain: digest of all that was done to it.
        unsettled: fragments of which a push was not answered yet.
    """

    chain: bytes = b""
    unsettled: frozenset[int] = frozenset()

    @property
    def blob(self) -> Blob:
        """The state as it is uploaded."""
        return Blob(digest("state", self.chain, sorted(self.unsettled)), STATE_BYTES)

    def after(self, *what: object) -> "Inner":
        """The state after something was done to it."""
        return replace(self, chain=digest(self.chain, *what))


def settled(state: Inner, told: Sequence[Settlement]) -> Inner:
    """The state of a worker that has heard of its pushes."""
    for each in told:
        if each.fragment in state.unsettled:
            state = replace(state, unsettled=state.unsettled - {each.fragment})
            state = state.after("settled", each.fragment, str(each.outcome))
    return state


def opened(before: Inner, lease: Lease) -> Inner:
    """The state in which the first step of a lease begins."""
    state = replace(before, unsettled=frozenset()) if lease.fresh else before
    adopted = tuple((each.fragment, each.version, each.parameters) for each in lease.adopt if each.step == 0)
    return state.after("opened", adopted)


def stepped(state: Inner, lease: Lease, first: int, steps: int) -> Inner:
    """The state after some steps of a lease."""
    for step in range(first, first + steps):
        adopted = tuple(each.parameters for each in lease.adopt if each.step == step > 0)
        state = state.after("step", adopted, lease.data.start + step)
    return state


def pushed(state: Inner, told: Sequence[Settlement], lease: Lease) -> tuple[Blob, Inner]:
    """What a worker pushes, and its state after that."""
    state = settled(state, told)
    payload = Blob(digest("push", state, lease.fragment), PAYLOAD_BYTES)
    return payload, replace(state.after("pushed"), unsettled=state.unsettled | {lease.fragment})


@dataclass
class Worker:
    """A worker process.

    Arguments:
        name, connection, policy: who it is, how it is heard, and into how many pieces leases are cut.
        cheat: one of `CHEATS`.
        others: payloads that went past on the wire, for one that copies.
        states: what every uploaded state holds, by its digest.
    """

    name: str
    connection: int
    policy: AuditPolicy
    cheat: str = "honest"
    others: list[Blob] = field(default_factory=list)
    states: dict[bytes, Inner] = field(default_factory=dict)
    incarnation: int = 0
    generation: int = 0
    unanswered: dict[int, Update] = field(default_factory=dict)
    state: Inner = Inner()
    settled: list[Settlement] = field(default_factory=list)
    fragments: dict[int, int] = field(default_factory=dict)  # of each lease pushed and not answered
    first_update: tuple[tuple[Inner, ...], Blob] | None = None
    lease: Lease | None = None
    merged: dict[tuple[int, int], Blob] = field(default_factory=dict)
    inbox: list[Message] = field(default_factory=list)

    def hear(self) -> list[Message | Blob]:
        """Handle the oldest message; returns what it says and uploads, in order."""
        message = self.inbox.pop(0)
        match message:
            case Welcome():
                if self.generation != message.generation:
                    self.generation, self.lease = message.generation, None
                    self.unanswered.clear()
                return [Ready(self.generation), *self.unanswered.values()]
            case Assign(lease) if lease.lease_id in self.unanswered or lease == self.lease:
                pass  # told again after a lost connection
            case Assign(lease):
                self.lease = lease
                if lease.fresh:
                    self.settled.clear()
            case Merged():
                self.merged[message.fragment, message.version] = message.parameters
            case UpdateReply(lease_id, outcome):
                self.unanswered.pop(lease_id, None)
                if outcome is not Outcome.REFUSED and lease_id in self.fragments:
                    self.settled.append(Settlement(self.fragments[lease_id], outcome))
            case Revoke():
                self.lease = None
                self.unanswered.pop(message.lease_id, None)
                self.settled.clear()
            case AskStates(audit, digests):
                blobs = tuple(
                    Blob(each, STATE_BYTES if each in self.states else PAYLOAD_BYTES) for each in digests
                )
                return [States(audit, blobs), *blobs]
            case Repeat():
                return [self._repeat(message)]
        return self._train_if_able()

    def _train_if_able(self) -> list[Message | Blob]:
        if self.lease is None:
            return []
        arrived = tuple(
            each
            if each.parameters
            else replace(each, parameters=self.merged.get((each.fragment, each.version)))
            for each in self.lease.adopt
        )
        fragment = self.lease.fragment
        answered = {each.fragment for each in self.settled}
        awaits_answer = fragment in self.state.unsettled - answered and not self.lease.fresh
        if awaits_answer or any(each.parameters is None for each in arrived):
            return []
        lease, self.lease = replace(self.lease, adopt=arrived), None
        return self._train(lease)

    def _train(self, lease: Lease) -> list[Message | Blob]:
        borders = self.policy.borders(lease.data.count)
        states = [opened(self.state, lease)]
        for piece, (first, end) in enumerate(pairwise(borders)):
            idle = self.cheat in ("stale", "copied") or (self.cheat == "lazy" and piece % 2)
            states.append(states[-1] if idle else stepped(states[-1], lease, first, end - first))
        payload, states[-1] = pushed(states[-1], self.settled, lease)
        applied, self.settled = tuple(self.settled), []
        if self.cheat == "sign flip":
            payload = Blob(digest("flipped", payload), PAYLOAD_BYTES)
        elif self.cheat == "copied" and self.others:
            payload = self.others[-1]
        elif self.cheat == "stale":
            self.first_update = self.first_update or (tuple(states), payload)
            if len(self.first_update[0]) == len(states):
                states, payload = list(self.first_update[0]), self.first_update[1]
        self.state = states[-1]
        self.states.update({each.blob.digest: each for each in states})
        self.fragments[lease.lease_id] = lease.fragment
        count = lease.data.count
        update = Update(
            lease_id=lease.lease_id,
            generation=self.generation,
            round=lease.round,
            payload=payload,
            steps=count,
            tokens=TOKENS * count,
            losses=(2.0,) * count,
            seconds=1.0,
            commitments=tuple(each.blob.digest for each in states),
            settled=applied,
        )
        self.unanswered[lease.lease_id] = update
        return [payload, update]

    def begin_anew(self) -> None:
        """Be a new process of the same worker."""
        self.incarnation += 1
        self.state, self.lease, self.generation = Inner(), None, 0
        self.settled.clear()
        self.unanswered.clear()

    def _repeat(self, wanted: Repeat) -> Repeated:
        before = self.states[wanted.before.digest] if wanted.before else Inner()
        lease, payload = wanted.lease, None
        after = opened(before, lease) if wanted.opening else before
        after = stepped(after, lease, wanted.first, wanted.steps)
        if wanted.push:
            payload, after = pushed(after, wanted.settled, lease)
        self.states[after.blob.digest] = after
        return Repeated(wanted.audit, after.blob, payload)
