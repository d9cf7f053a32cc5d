"""An independent witness of a simulated run: it believes only what was logged and said, and objects to what must not be."""

from collections.abc import Callable, Iterable, Iterator

from pcp.distributed.coordinator import Run, RunConfig, State
from pcp.distributed.coordinator.effects import Append, DeleteBlob, Effect, RunOuterStep, Send
from pcp.distributed.coordinator.records import (
    EpochStarted,
    OuterStepTaken,
    Record,
    RoundClosed,
    RunStarted,
)
from pcp.distributed.coordinator.run import start_run
from pcp.distributed.messages import Assign, DataRange, Lease, UpdateReply, Welcome
from pcp.distributed.simulator.training import reference
from pcp.errors import PCPError


class InvariantViolated(PCPError):
    """Something happened in a simulated run that must never happen."""


class Observer:
    """Watches what a Shepherd does to the outside world."""

    def __init__(self) -> None:
        self.shadow: Run | None = None
        self.rounds: list[tuple[DataRange, ...]] = []
        self.accepted: set[int] = set()
        self.tampered: set[int] = set()
        self._batches: set[int] = set()
        self._logged: list[Record] = []
        self._closed: dict[int, RoundClosed] = {}
        self._leases: dict[int, tuple[Lease, bytes]] = {}
        self._newest_lease = 0
        self._assigned_at: dict[int, float] = {}
        self._heard_at: dict[str, float] = {}
        self._last_tick = 0.0
        self._generations: dict[str, tuple[int, bytes]] = {}
        self._epoch = 0
        self._durable_version = 0

    def heard(self, worker: str, now: float) -> None:
        """Take note that the Shepherd handled a message of a worker, or learned that its connection is gone."""
        self._heard_at[worker] = now

    def punctual(self, state: State, now: float) -> None:
        """Object to workers that are silent, and leases that are out, for longer than a tick past their time."""
        config = state.run.config
        slept, self._last_tick = max(0.0, now - self._last_tick - config.heartbeat_seconds), now
        self._heard_at = {worker: time + slept for worker, time in self._heard_at.items()}
        self._assigned_at = {lease_id: time + slept for lease_id, time in self._assigned_at.items()}
        for member in state.members.values():
            silence = now - self._heard_at[member.worker]
            limit = max(config.silence_seconds, config.reconnect_seconds) + config.heartbeat_seconds
            self._require(
                silence <= limit, f"{member.worker} is silent for {silence:.1f} s and still a member"
            )
        for lease_id, held in state.leases.items():
            age = now - self._assigned_at[lease_id]
            limit = held.lease.deadline_seconds + config.heartbeat_seconds
            self._require(age <= limit, f"lease {lease_id} is out for {age:.1f} s, longer than it says")

    def performed(self, effect: Effect, speaker: Callable[[int], tuple[str, bytes]], now: float) -> None:
        """Take note of an effect that was performed.

        Arguments:
            effect: the effect.
            now: virtual time.
            speaker: name and incarnation of the worker's process that said hello on a connection.
        """
        match effect:
            case Append():
                self._appended(effect)
            case Send(connection, Welcome(generation=generation)):
                self._welcomed(*speaker(connection), generation)
            case Send(connection, Assign(lease)):
                self._assigned(lease, speaker(connection)[1])
                self._assigned_at.setdefault(lease.lease_id, now)
            case Send(_, UpdateReply(lease_id, True)):
                self._require(lease_id not in self.accepted, f"lease {lease_id} was accepted twice")
                self._require(
                    lease_id not in self.tampered, f"a tampered update of lease {lease_id} was accepted"
                )
                self.accepted.add(lease_id)
            case RunOuterStep():
                closed = self._closed.get(effect.round)
                self._require(
                    closed is not None and closed.contributions == effect.contributions,
                    f"the outer step of round {effect.round} is not what the log says",
                )
            case DeleteBlob(blob):
                self._require(
                    self.shadow is None or blob not in self.shadow.blobs(), f"{blob} is deleted though needed"
                )
            case _:
                pass

    def synced(self) -> None:
        """Take note that everything that was logged so far survives a power failure."""
        for record in self._logged:
            if isinstance(record, RoundClosed):
                self._closed[record.round] = record
            elif isinstance(record, OuterStepTaken):
                self._durable_version = record.round + 1
        self._logged.clear()

    def _appended(self, effect: Append) -> None:
        record = effect.record
        self._logged.append(record)
        if isinstance(record, RunStarted):
            self.shadow = start_run(record)
            return
        if self.shadow is None:
            raise InvariantViolated(f"{record} was logged before the run")
        closing = self.shadow.admitted
        self.shadow.apply(record)
        if isinstance(record, EpochStarted):
            self._require(record.epoch > self._epoch, f"epoch {record.epoch} began twice")
            self._epoch = record.epoch
        elif isinstance(record, RoundClosed):
            order = [(each.worker_id, each.lease_id) for each in record.contributions]
            self._require(order == sorted(order), f"round {record.round} is merged in the order {order}")
            self._require(
                abs(sum(record.weights) - 1) < 1e-9, f"the weights {record.weights} do not add up to 1"
            )
        elif isinstance(record, OuterStepTaken):
            self._require(effect.sync, "an outer step was logged without a sync")
            self._merged(tuple(each.data for each in closing))

    def _merged(self, ranges: tuple[DataRange, ...]) -> None:
        for data in ranges:
            for batch in _batches([(data,)]):
                self._require(batch not in self._batches, f"batch {batch} was merged twice")
                self._batches.add(batch)
        self.rounds.append(ranges)

    def _welcomed(self, worker: str, incarnation: bytes, generation: int) -> None:
        before, process = self._generations.get(worker, (0, b""))
        same = generation == before and process == incarnation
        self._require(same or generation > before, f"{worker} got generation {generation} after {before}")
        self._generations[worker] = generation, incarnation

    def _assigned(self, lease: Lease, incarnation: bytes) -> None:
        known = self._leases.get(lease.lease_id)
        if known is None:
            self._require(lease.lease_id > self._newest_lease, f"lease number {lease.lease_id} goes back")
            self._newest_lease = lease.lease_id
            self._leases[lease.lease_id] = lease, incarnation
        else:
            self._require(known == (lease, incarnation), f"lease {lease.lease_id} was given to two processes")

    def restarted(self, run: Run | None, power_lost: bool) -> None:
        """Compare what a restarted Shepherd read in its log with what was logged."""
        if not power_lost:
            self._require(run == self.shadow, "the log does not lead to the state that was logged")
        version = 0 if run is None else run.version
        self._require(
            version >= self._durable_version, f"version {self._durable_version} was safe, now {version}"
        )
        self.shadow = run
        self._logged.clear()
        # An outer step whose sync the power failure forestalled was never taken.
        del self.rounds[version:]
        self._batches = set(_batches(self.rounds))

    def ended(self, parameters: bytes, config: RunConfig) -> None:
        """Compare the result of a finished run with a reference that merges every batch exactly once."""
        self._require(
            self._batches == set(range(config.total_batches)),
            f"{len(self._batches)} of {config.total_batches} batches were merged",
        )
        rounds = self.rounds
        if config.quorum == 1.0:
            size = config.batches_per_round
            rounds = [(DataRange(number * size, size),) for number in range(config.rounds)]
        self._require(parameters == reference(rounds), "the parameters are not those of the reference")

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            raise InvariantViolated(message)


def _batches(rounds: Iterable[Iterable[DataRange]]) -> Iterator[int]:
    for ranges in rounds:
        for data in ranges:
            yield from range(data.start, data.start + data.count)
