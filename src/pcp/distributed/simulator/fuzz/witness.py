"""What must be true of all that a coordinator writes down and asks for, whoever said what: followed from outside."""

import math
from collections.abc import Iterable

from pcp.distributed.algorithms import Contribution, Topology
from pcp.distributed.coordinator import Run, encode, replay
from pcp.distributed.coordinator.effects import Append, Compact, DeleteBlob, Effect, RunOuterStep, Send
from pcp.distributed.coordinator.events import BlobStored, Event, OuterStepDone
from pcp.distributed.coordinator.log.records import Record, UpdateAdmitted
from pcp.distributed.coordinator.rounds import adoptions
from pcp.distributed.coordinator.state import State
from pcp.distributed.coordinator.timing import Pace
from pcp.distributed.messages import Blob, Repeat

LARGEST_COUNT = 2.0**62


class Broken(Exception):
    """Something that must hold did not."""


def require(condition: bool, otherwise: str) -> None:
    """Check what must hold.

    Raises:
        Broken: it does not.
    """
    if not condition:
        raise Broken(otherwise)


class Witness:
    """The log of a run and the blobs beside it, as a disk has them, and a state that follows the log."""

    def __init__(self) -> None:
        self.log: list[Record | bytes] = []
        self.copy: Run | None = None
        self._synced = 0
        self._needed: frozenset[Blob] = frozenset()  # by the states that a cut of power may lead to
        self._disk: set[Blob] = set()
        self._fresh: dict[int, bool] = {}  # whether a lease began afresh
        self._chains: dict[
            tuple[int, int], int
        ] = {}  # of a worker's admitted lease, the fresh one that its weights go back to
        self._asked: set[tuple[int, int]] = set()

    def put(self, *blobs: Blob | None) -> None:
        """Note that blobs are on the disk."""
        self._disk.update(blob for blob in blobs if blob is not None)

    def restarted(self, lost: int = 0) -> list[bytes]:
        """What the log holds when a Shepherd begins again.

        Arguments:
            lost: records at its end that a cut of power takes, as far as they were not synced.

        Raises:
            Broken: they do not lead to what was, or a blob that the run needs is not there.
        """
        kept = max(self._synced, len(self.log) - lost)
        is_whole = kept == len(self.log)
        del self.log[kept:]
        records = [each if isinstance(each, bytes) else encode(each) for each in self.log]
        copy = replay(records)
        require(
            not is_whole or copy == self.copy, "what is written leads to another state than what was meant"
        )
        self.copy, self._synced = copy, kept
        self._asked.clear()
        self._needed = copy.blobs() if copy else frozenset()
        missing = len(self._needed - self._disk)
        require(not missing, f"the run needs {missing} blobs that are not there")
        return records

    def follow(self, state: State, event: Event, effects: Iterable[Effect]) -> None:
        """Check what an event led to.

        Raises:
            Broken: it must not have.
        """
        if isinstance(event, BlobStored):
            self.put(event.blob)
        elif isinstance(event, OuterStepDone):
            self.put(event.parameters, event.change, event.outer)
        is_logged = False
        for effect in effects:
            match effect:
                case Append(record, sync):
                    is_logged = True
                    self._append(record, sync)
                case Compact(snapshot):
                    self.log, self._synced, self.copy = [snapshot], 1, replay([snapshot])
                    is_logged, self._needed = True, state.run.blobs()
                case DeleteBlob(blob):
                    self._delete(state, blob)
                case RunOuterStep():
                    used = (*(each.payload for each in effect.contributions), effect.parameters, effect.outer)
                    require(
                        self._disk.issuperset(each for each in used if each), "an outer step lacks a blob"
                    )
                    total = math.fsum(effect.weights)
                    require(0 < total < math.inf, f"the weights of an outer step are {effect.weights}")
                case Send(connection, Repeat(audit)):
                    self._ask(state.connections.get(connection, 0), audit)
        require(not is_logged or self.copy == state.run, "the log leads to another state")
        if state.run.config.algorithm.topology is Topology.PAIRS:
            self._fresh.update((number, held.lease.fresh) for number, held in state.leases.items())
            admitted = {each.lease_id for round in state.run.in_flight for each in round.admitted}
            again = admitted.intersection(state.leases)
            require(not again, f"leases {sorted(again)} are admitted, and out once more")

    def _append(self, record: Record, sync: bool) -> None:
        self.log.append(record)
        copy = self.copy
        if copy is None:
            copy = self.copy = replay([encode(record)])
            assert copy is not None
        elif isinstance(record, UpdateAdmitted):
            before = self._contributions(record)
            copy.apply(record)
            self._admit(record, before, self._contributions(record))
        else:
            copy.apply(record)
        self._needed = copy.blobs() if sync else self._needed | copy.blobs()
        self._synced = len(self.log) if sync else self._synced

    def _contributions(self, record: UpdateAdmitted) -> list[Contribution]:
        round = self.copy.round(record.round) if self.copy else None
        return round.admitted.copy() if round else []

    def _admit(self, record: UpdateAdmitted, before: list[Contribution], after: list[Contribution]) -> None:
        new = record.contribution
        require(new.payload in self._disk, f"the push of lease {new.lease_id} is not there")
        require(math.isfinite(new.loss), f"the loss of lease {new.lease_id} is {new.loss}")
        numbers = [each.lease_id for each in after]
        require(len(numbers) == len(set(numbers)), f"a lease is admitted twice, of {sorted(numbers)}")
        own = [each.lease_id for each in before if each.worker_id == new.worker_id]
        went_on = bool(own) and not self._fresh.get(new.lease_id, True)
        chain = self._chains.get((new.worker_id, max(own)), 0) if went_on else new.lease_id
        self._chains[new.worker_id, new.lease_id] = chain
        beside = [
            each.lease_id
            for each in after
            if each.worker_id == new.worker_id
            and each.lease_id != new.lease_id
            and self._chains.get((each.worker_id, each.lease_id)) == chain
        ]
        require(
            not beside,
            f"lease {new.lease_id} went on from the weights of {beside}, which are merged beside its own",
        )

    def _delete(self, state: State, blob: Blob) -> None:
        require(blob not in self._needed, "a blob is deleted that the run needs after a cut of power")
        named = any(blob in adoptions.blobs(held.lease) for held in state.leases.values())
        require(not named, "a blob is deleted that a lease names")
        self._disk.discard(blob)

    def _ask(self, worker_id: int, audit: int) -> None:
        asked = worker_id, audit
        require(
            not worker_id or asked not in self._asked,
            f"worker {worker_id} is asked twice to repeat a piece of {audit}",
        )
        self._asked.add(asked)


def check_pace(pace: Pace) -> None:
    """Check that sums and quotients of what is known of a worker stay numbers.

    Raises:
        Broken: they do not.
    """
    for seconds in (pace.told_seconds, *pace.work_seconds[-1:]):
        usable = seconds == 0 or (
            seconds > 0 and max(LARGEST_COUNT / seconds, LARGEST_COUNT * seconds) < math.inf
        )
        require(usable, f"a step takes {seconds} s, with which nothing can be planned")
    overheads = (*pace.overhead_seconds[-1:], *pace.fetching_overhead_seconds[-1:])
    require(math.isfinite(sum(overheads)), f"a lease takes {overheads} s besides its steps")
