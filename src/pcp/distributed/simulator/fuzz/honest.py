"""A worker that behaves, seen from the coordinator: it trains its leases in virtual time, and answers what it is asked."""

import hashlib
from dataclasses import replace

from pcp.distributed.algorithms import Topology
from pcp.distributed.coordinator import RunConfig
from pcp.distributed.losses import told
from pcp.distributed.messages import (
    AskStates,
    Assign,
    Blob,
    Heartbeat,
    HeartbeatReply,
    Lease,
    Merged,
    Message,
    Ready,
    Repeat,
    Repeated,
    Resume,
    Revoke,
    States,
    Update,
    UpdateReply,
    Welcome,
)

STEP_SECONDS = 0.25
BYTES = 40


def blob_named(*name: object) -> Blob:
    """A blob that something is called by."""
    return Blob(hashlib.sha256(repr(name).encode()).digest(), BYTES)


def update_of(config: RunConfig, lease: Lease, step_seconds: float = STEP_SECONDS) -> Update:
    """The proper update of a lease."""
    steps = lease.batches
    cuts = config.audits.borders(steps) if config.audits.rate else ()
    return Update(
        lease_id=lease.lease_id,
        generation=lease.generation,
        round=lease.round,
        payload=blob_named("push", lease.lease_id),
        steps=steps,
        tokens=steps * config.tokens_per_batch,
        losses=told((2.0,) * steps),
        seconds=steps * step_seconds,
        commitments=tuple(_state(lease, place, len(cuts)).digest for place in range(len(cuts))),
    )


def _state(lease: Lease, place: int, count: int) -> Blob:
    return blob_named("state", lease.lease_id, place, place == count - 1)


class Honest:
    """A worker.

    Arguments:
        name, incarnation: who it is.
        config: of the run.
        step_seconds: that it takes for a step.
    """

    def __init__(
        self, name: str, incarnation: bytes, config: RunConfig, step_seconds: float = STEP_SECONDS
    ) -> None:
        self.name, self.incarnation, self._config = name, incarnation, config
        self._step_seconds = step_seconds
        self.connection = self.generation = self._beats = 0
        self.leases: dict[int, Lease] = {}
        self.begun: dict[int, float] = {}
        self.updates: dict[int, Update] = {}
        self.asleep_until = 0.0
        self._pushed: dict[int, Lease] = {}
        self._in_pairs = config.algorithm.topology is Topology.PAIRS
        self._merged: set[tuple[int, int]] = set()
        self._known: dict[bytes, Blob] = {}

    @property
    def current(self) -> Lease | None:
        """The lease that it trains."""
        return next(iter(self.leases.values()), None)

    def hear(self, message: Message, now: float) -> list[Message]:
        """Take a message; returns what it says to it."""
        match message:
            case Welcome():
                return self._welcomed(message.generation)
            case Assign(lease):
                if lease.lease_id not in self.updates:
                    self.leases[lease.lease_id] = lease
            case HeartbeatReply(_, lease_id, batches) if lease_id and lease_id in self.leases:
                self._stop_after(self.leases[lease_id], batches, now)
            case Merged():
                self._merged.add((message.fragment, message.version))
            case Revoke(lease_id):
                self._drop(lease_id)
            case UpdateReply():
                self._drop(message.lease_id)
            case AskStates():
                blobs = tuple(self._known.get(each, Blob(each, BYTES)) for each in message.digests)
                return [States(message.audit, blobs)]
            case Repeat():
                return [self._repeated(message)]
        if (current := self.current) is not None:
            self.begun.setdefault(current.lease_id, now)
        return []

    def _welcomed(self, generation: int) -> list[Message]:
        """Who exchanges in pairs goes on with what it has in a new membership; others begin anew."""
        anew, self.generation = generation != self.generation, generation
        if anew and not self._in_pairs:
            self.leases.clear()
            self.updates.clear()
        if not anew or not self._in_pairs:
            return [*self.updates.values(), Ready(generation)]
        self.leases, self._pushed = (
            {number: replace(each, generation=generation) for number, each in held.items()}
            for held in (self.leases, self._pushed)
        )
        self.updates = {number: replace(each, generation=generation) for number, each in self.updates.items()}
        resumed = [*(self._pushed[number] for number in self.updates), *self.leases.values()]
        return [*(Resume(lease) for lease in resumed), Ready(generation), *self.updates.values()]

    def _stop_after(self, lease: Lease, batches: int, now: float) -> None:
        """Stop at an exchange, there or later, as the Shepherd wants."""
        every = self._config.algorithm.inner_steps
        stop = max(batches, (self._steps(lease, now) // every + 1) * every)
        if stop < lease.batches:
            self.leases[lease.lease_id] = lease.cut(stop)

    def _steps(self, lease: Lease, now: float) -> int:
        steps = int((now - self.begun.get(lease.lease_id, now)) / self._step_seconds)
        return min(max(0, steps), lease.batches)

    def _drop(self, lease_id: int) -> None:
        self.leases.pop(lease_id, None)
        self.updates.pop(lease_id, None)
        self._pushed.pop(lease_id, None)

    def _repeated(self, wanted: Repeat) -> Repeated:
        cuts = self._config.audits.borders(wanted.lease.batches)
        place = 0 if wanted.opening else cuts.index(wanted.first + wanted.steps)
        after = _state(wanted.lease, max(place, 1) if wanted.push else place, len(cuts))
        return Repeated(
            wanted.audit, after, blob_named("push", wanted.lease.lease_id) if wanted.push else None
        )

    def done(self, now: float) -> Update | None:
        """The update of its lease, once that is trained."""
        lease = self.current
        if lease is None or lease.generation != self.generation:
            return None
        waits = any(
            each.parameters is None and (each.fragment, each.version) not in self._merged
            for each in lease.adopt
        )
        begun = self.begun.setdefault(lease.lease_id, now)
        if waits or now < begun + lease.batches * self._step_seconds:
            return None
        self._pushed[lease.lease_id] = lease
        update = self.updates[lease.lease_id] = update_of(self._config, lease, self._step_seconds)
        self._known |= {each: Blob(each, BYTES) for each in update.commitments}
        del self.leases[lease.lease_id]
        if (following := self.current) is not None:
            self.begun[following.lease_id] = now
        return update

    def heartbeat(self, now: float) -> Heartbeat:
        """Its next heartbeat."""
        self._beats += 1
        lease = self.current
        if lease is None:
            return Heartbeat(self._beats, self.generation, 0, 0, 0.0)
        done = self._steps(lease, now)
        return Heartbeat(
            self._beats,
            self.generation,
            lease.lease_id,
            done,
            self._step_seconds if done else 0.0,
            lease.batches,
        )
