"""An independent observer of a simulated Shepherd: it believes what was logged and said, and objects to what must not be."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from pcp.distributed.algorithms import Contribution, Topology, segment_steps
from pcp.distributed.coordinator import Run, State, effects
from pcp.distributed.coordinator.audit.audits import UNPROVEN_IN_A_ROW
from pcp.distributed.coordinator.log.records import (
    EpochStarted,
    OuterStepTaken,
    RoundClosed,
    RoundOpened,
    RunStarted,
    UpdateAdmitted,
    WorkerBarred,
)
from pcp.distributed.coordinator.run import start_run
from pcp.distributed.coordinator.state import HeldLease
from pcp.distributed.messages import Assign, Blob, Lease, Outcome, UpdateReply, Welcome
from pcp.distributed.simulator.witness import InvariantViolated, Witness, require

MOST_TRIES = 16  # of one upload by one process; an audit may ask for a state more than once
Merge = tuple[OuterStepTaken, int, tuple[Contribution, ...]]


class Observer:
    """Watches what a Shepherd does to the outside world.

    Arguments:
        witness: of the numbers.
        value_of: what a stored version of a fragment is.
    """

    def __init__(self, witness: Witness, value_of: Callable[[int, Blob], Any]) -> None:
        self.shadow: Run | None = None
        self.tampered: set[int] = set()
        self.spoilt: set[int] = set()  # these may be carried, unread
        self.hostile: Counter[str] = Counter()
        """What taken-over workers said instead of an update, by kind."""
        self.verdicts: Counter[str] = Counter()
        self.most_in_flight = 0
        self._tries: Counter[tuple[str, int, object]] = Counter()
        self._witness, self._value_of = witness, value_of
        self._unsynced: list[Merge] = []
        self._admitted: set[int] = set()
        self._admitted_unsynced: set[int] = set()
        self._closed: dict[int, tuple[tuple[Contribution, ...], tuple[float, ...]]] = {}
        self._leases: dict[int, tuple[Lease, bytes]] = {}
        self._newest_lease = 0
        self._assigned_at: dict[int, float] = {}
        self._waiting: set[int] = set()  # leases that wait for a merge, and do not age meanwhile
        self._heard_at: dict[str, float] = {}
        self._last_tick = 0.0
        self._beside: dict[int, float] = {}
        self._generations: dict[str, tuple[int, bytes]] = {}
        self._unproven: dict[
            int, set[int]
        ] = {}  # by worker: memberships in which it went away, asked for its states
        self._epoch = 0
        self._durable_version = 0

    @property
    def in_pairs(self) -> bool:
        """Whether workers exchange in pairs."""
        return self.shadow is not None and self.shadow.config.algorithm.topology is Topology.PAIRS

    def tried(self, worker: str, incarnation: int, effect: object) -> None:
        """Take note that a worker's process performs an effect that it repeats where it fails; object if there is no end."""
        key = worker, incarnation, effect
        self._tries[key] += 1
        require(self._tries[key] <= MOST_TRIES, f"{worker} tries {effect} again and again")

    def lease_besides(self, lease_id: int) -> int:
        """The newest lease that was granted besides one; one that never was, where there is none."""
        return max((each for each in self._leases if each != lease_id), default=lease_id + 1)

    def heard(self, worker: str, now: float) -> None:
        """Take note that the Shepherd handled a message of a worker, or learned that its connection is gone."""
        self._heard_at[worker] = now

    def punctual(self, state: State, now: float) -> None:
        """Object to workers that are silent, and leases that are out, for longer than a tick past their time."""
        config = state.run.config
        slept, self._last_tick = max(0.0, now - self._last_tick - config.heartbeat_seconds), now
        if slept:
            self._heard_at = {worker: time + slept for worker, time in self._heard_at.items()}
            self._assigned_at = {lease_id: time + slept for lease_id, time in self._assigned_at.items()}
        for member in state.members.values():
            silence = now - self._heard_at[member.worker]
            limit = max(config.silence_seconds, config.reconnect_seconds) + config.heartbeat_seconds
            require(silence <= limit, f"{member.worker} is silent for {silence:.1f} s and still a member")
        following = {member.following for member in state.members.values()}
        for lease_id, held in state.leases.items():
            if lease_id in following or any(adoption.parameters is None for adoption in held.lease.adopt):
                self._assigned_at[lease_id] = now
            else:
                self._waiting.discard(lease_id)
            age = now - self._assigned_at[lease_id]
            # Once to train it, and once more to upload it after the update was told.
            limit = (2 if held.update else 1) * held.lease.deadline_seconds + 2 * config.heartbeat_seconds
            require(age <= limit, f"lease {lease_id} is out for {age:.1f} s, longer than it says")
            beside = self._beside_peers(state, held)
            # Peers that deliver only since this tick shorten what may pass until the next.
            before, self._beside[lease_id] = self._beside.get(lease_id, beside), beside
            limit = (2 if held.update else 1) * max(before, beside) + 2 * config.heartbeat_seconds
            require(age <= limit, f"lease {lease_id} is out for {age:.1f} s, many times as long as its peers")
            for adoption in held.lease.adopt:
                merged = state.run.fragments[adoption.fragment].version
                require(
                    adoption.parameters is not None or adoption.version > merged,
                    f"lease {lease_id} waits for version {adoption.version} of fragment {adoption.fragment}, which "
                    f"is merged",
                )

    def _beside_peers(self, state: State, held: HeldLease) -> float:
        """How long a lease may be out beside workers that deliver, by what was measured of them."""
        config, paces = state.run.config, [state.paces[worker_id] for worker_id in state.roster.ready]
        steps, overheads = [], []
        for pace in paces:
            if pace.delivers and pace.work_seconds:
                steps.append(median(pace.work_seconds))
                others = (pace.overhead_seconds, pace.fetching_overhead_seconds)
                overheads.append(max(median(each) for each in others if each))
        if not steps:
            return math.inf
        count = max(held.lease.batches, segment_steps(config.algorithm))
        usual = median(overheads) + count * median(steps)
        return max(config.lease.floor_seconds, config.lease.peers * usual)

    def performed(
        self, effect: effects.Effect, speaker: Callable[[int], tuple[str, bytes]], now: float
    ) -> None:
        """Take note of an effect that was performed.

        Arguments:
            speaker: name and incarnation of the worker's process that said hello on a connection.
            now: by the Shepherd's clock.
        """
        match effect:
            case effects.Append():
                self._appended(effect)
                if isinstance(effect.record, OuterStepTaken):
                    self._assigned_at |= dict.fromkeys(self._waiting, now)
            case effects.Send(connection, Welcome(generation=generation)):
                self._welcomed(*speaker(connection), generation)
            case effects.Send(connection, Assign(lease)):
                self._assigned(lease, speaker(connection)[1])
                if self.in_pairs:
                    self._assigned_at[lease.lease_id] = now
                self._assigned_at.setdefault(lease.lease_id, now)
                if any(adoption.parameters is None for adoption in lease.adopt):
                    self._waiting.add(lease.lease_id)
            case effects.Send(_, UpdateReply(lease_id, outcome)):
                require(
                    outcome is Outcome.REFUSED or lease_id not in self.tampered,
                    f"a tampered update of lease {lease_id} was {outcome}",
                )
                require(
                    outcome is not Outcome.ADMITTED or lease_id not in self.spoilt,
                    f"a push of lease {lease_id} that is unusable was admitted",
                )
            case effects.RunOuterStep():
                require(
                    self._closed.get(effect.round) == (effect.contributions, effect.weights),
                    f"the outer step of round {effect.round} is not what the log says",
                )
            case effects.CompareStates(audit):  # which is asked for only where two results differ
                require(False, f"audit {audit}: an honest repetition comes to something else")
            case effects.Report(effects.AuditEnded() as ended):
                self._audited(ended)
            case effects.DeleteBlob(blob):
                require(
                    self.shadow is None or blob not in self.shadow.blobs(), f"{blob} is deleted though needed"
                )
            case _:
                pass

    def _appended(self, effect: effects.Append) -> None:
        record = effect.record
        if isinstance(record, RunStarted):
            self.shadow = start_run(record)
            return
        if self.shadow is None:
            raise InvariantViolated(f"{record} was logged before the run")
        head = self.shadow.in_flight[0] if self.shadow.in_flight else None
        self.shadow.apply(record)
        if isinstance(record, EpochStarted):
            require(record.epoch > self._epoch, f"epoch {record.epoch} began twice")
            self._epoch = record.epoch
        elif isinstance(record, RoundOpened):
            self._witness.opened(record.round, record.fragment)
            self.most_in_flight = max(self.most_in_flight, len(self.shadow.in_flight))
        elif isinstance(record, UpdateAdmitted):
            lease_id = record.contribution.lease_id
            require(lease_id not in self._admitted, f"lease {lease_id} was admitted twice")
            self._admitted.add(lease_id)
            self._admitted_unsynced.add(lease_id)
        elif isinstance(record, RoundClosed):
            self._check_order(record)
        elif isinstance(record, WorkerBarred):
            # All are honest here, but who is asked for its states and goes away, again and again, looks as if it were not.
            memberships = self._unproven.get(self.shadow.worker_ids[record.worker], set())
            is_third = record.reason.endswith("in a row") and len(memberships) >= UNPROVEN_IN_A_ROW - 1
            require(is_third, f"{record.worker} is honest, but {record.reason}")
        elif isinstance(record, OuterStepTaken):
            require(effect.sync, "an outer step was logged without a sync")
            require(
                head is not None and head.number == record.round == self.shadow.version - 1,
                f"round {record.round} is merged out of turn",
            )
            if head is not None:
                self._unsynced.append((record, head.fragment, tuple(head.admitted)))

    def _audited(self, ended: effects.AuditEnded) -> None:
        self.verdicts[ended.verdict] += 1
        if ended.verdict == "unproven":
            lease, _ = self._leases[ended.lease_id]
            self._unproven.setdefault(ended.worker_id, set()).add(lease.generation)

    def _check_order(self, record: RoundClosed) -> None:
        head = self.shadow.in_flight[0] if self.shadow is not None else None
        contributions = tuple(head.admitted) if head is not None else ()
        order = [(each.worker_id, each.lease_id) for each in contributions]
        require(
            order == sorted(order) and tuple(each for _, each in order) == record.order,
            f"round {record.round} is merged in the order {record.order} of {order}",
        )
        require(abs(sum(record.weights) - 1) < 1e-9, f"the weights {record.weights} do not add up to 1")

    def synced(self) -> None:
        """Take note that everything that was logged so far survives a power failure."""
        for merge in self._unsynced:
            self._merged(merge)
        self._unsynced.clear()
        self._admitted_unsynced.clear()
        self._note_closed()

    def _merged(self, merge: Merge) -> None:
        taken, fragment, contributions = merge
        self._witness.merged(taken.round, fragment, contributions, self._value_of(fragment, taken.parameters))
        self._durable_version = taken.round + 1

    def _note_closed(self) -> None:
        head = self.shadow.in_flight[0] if self.shadow is not None and self.shadow.in_flight else None
        if head is not None and head.closed:
            self._closed[head.number] = tuple(head.admitted), head.weights

    def _welcomed(self, worker: str, incarnation: bytes, generation: int) -> None:
        before, process = self._generations.get(worker, (0, b""))
        same = generation == before and process == incarnation
        require(same or generation > before, f"{worker} got generation {generation} after {before}")
        self._generations[worker] = generation, incarnation

    def _assigned(self, lease: Lease, incarnation: bytes) -> None:
        # What was not merged when the lease was granted may be when it is told again, and the lease before it reported.
        plain = replace(
            lease,
            adopt=tuple(replace(each, parameters=None, change=None) for each in lease.adopt),
            after=0,
        )
        known = self._leases.get(lease.lease_id)
        if known is not None and self.in_pairs:
            self._given_back(known, plain, incarnation)
        elif known is None:
            require(lease.lease_id > self._newest_lease, f"lease number {lease.lease_id} goes back")
            self._newest_lease = lease.lease_id
            self._leases[lease.lease_id] = plain, incarnation
        else:
            require(known == (plain, incarnation), f"lease {lease.lease_id} was given to two processes")

    def _given_back(self, known: tuple[Lease, bytes], lease: Lease, incarnation: bytes) -> None:
        """Where workers exchange in pairs, a lease outlives its membership, and may be shortened."""
        before, process = known
        require(process == incarnation, f"lease {lease.lease_id} was given to two processes")
        longest = replace(before, generation=lease.generation)
        require(
            lease.batches <= before.batches and longest.cut(lease.batches).ranges == lease.ranges,
            f"lease {lease.lease_id} was of {before.named}, and is given back as {lease.named}",
        )

    def restarted(self, run: Run | None, power_lost: bool) -> None:
        """Compare what a restarted Shepherd read in its log with what was logged."""
        if not power_lost:
            require(run == self.shadow, "the log does not lead to the state that was logged")
        version = 0 if run is None else run.version
        require(version >= self._durable_version, f"version {self._durable_version} was safe, now {version}")
        for merge in self._unsynced:
            if merge[0].round < version:  # it had reached the disk all the same
                self._merged(merge)
        self._unsynced.clear()
        kept = {each.lease_id for flight in run.in_flight for each in flight.admitted} if run else set()
        self._admitted -= self._admitted_unsynced - kept  # who exchanges in pairs is given such a lease again
        self._admitted_unsynced.clear()
        self.shadow = run
        self._note_closed()
