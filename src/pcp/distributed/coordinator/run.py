"""The durable state of a run, which changes only by applying records: replaying the log therefore gives the same state."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pcp.distributed.algorithms import Contribution
from pcp.distributed.coordinator import data_ranges
from pcp.distributed.coordinator.config import RunConfig
from pcp.distributed.coordinator.data_ranges import Ranges
from pcp.distributed.coordinator.records import (
    CheckpointWritten,
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
from pcp.distributed.coordinator.serialisation import decode, encode, storable
from pcp.distributed.messages import Blob
from pcp.errors import PCPError


class ImpossibleRecord(PCPError):
    """A record cannot follow those before it: the log was mixed up, or the coordinator has a defect."""


class Phase(StrEnum):
    """Where a run stands in the life of a round."""

    BETWEEN = "between"  # the next round may open
    OPEN = "open"  # updates are admitted
    CLOSED = "closed"  # the outer step is due or under way
    FINISHED = "finished"


@storable
@dataclass(slots=True)
class Run:
    """The durable state of a run.

    The batches [0, issued) are at any moment split, without overlap, into `merged`, the data of
    `admitted`, and `outstanding`.

    Arguments:
        config: the plan.
        parameters, optimizer_state: the result of the last outer step.
        epoch: number of Shepherd processes that have held the run.
        worker_ids: number of every worker name ever seen.
        phase: see `Phase`.
        round: the round that is open or closed, or the next one.
        first_step: inner step number at which the leases of the round start.
        issued: batches ever put into a round.
        outstanding: batches put into a round and not admitted; between rounds, what the next round takes
            first.
        admitted: contributions to the round, in order of arrival; once closed, in the order of reduction.
        weights: of `admitted`, once closed.
        merged: batches behind `parameters`.
        version: outer steps behind `parameters`.
        tokens: tokens behind `parameters`.
        checkpoint_version: outer steps behind the last checkpoint; -1 before the first.
    """

    config: RunConfig
    parameters: Blob
    optimizer_state: Blob | None
    epoch: int = 0
    worker_ids: dict[str, int] = field(default_factory=dict)
    phase: str = Phase.BETWEEN.value
    round: int = 0
    first_step: int = 0
    issued: int = 0
    outstanding: Ranges = ()
    admitted: tuple[Contribution, ...] = ()
    weights: tuple[float, ...] = ()
    merged: Ranges = ()
    version: int = 0
    tokens: int = 0
    checkpoint_version: int = -1

    @property
    def complete(self) -> bool:
        """Whether every batch of the plan is merged."""
        return data_ranges.total(self.merged) == self.config.total_batches

    def digest(self) -> bytes:
        """Return the SHA-256 of the canonical form: equal states have equal digests."""
        return hashlib.sha256(encode(self)).digest()

    def blobs(self) -> frozenset[Blob]:
        """Return the blobs that the run still needs; a Shepherd may delete all others when it starts."""
        state = {self.optimizer_state} if self.optimizer_state else set()
        return frozenset(
            {*self.config.blobs, self.parameters, *state, *(each.pseudo_gradient for each in self.admitted)}
        )

    def next_ranges(self) -> Ranges:
        """Return the data of the next round: W * H batches, those carried over first."""
        config = self.config
        room = max(0, config.batches_per_round - data_ranges.total(self.outstanding))
        fresh = min(room, config.total_batches - self.issued)
        return self.outstanding + data_ranges.cut(self.issued, fresh, config.algorithm.inner_steps)

    def apply(self, record: Record) -> None:
        """Change the state by one record.

        Raises:
            ImpossibleRecord: the record does not fit the state.
        """
        match record:
            case EpochStarted(epoch):
                self._require(epoch == self.epoch + 1, record)
                self.epoch = epoch
            case WorkerNamed(worker, worker_id):
                self._require(worker not in self.worker_ids and worker_id == len(self.worker_ids) + 1, record)
                self.worker_ids[worker] = worker_id
            case RoundOpened(round, ranges, first_step):
                self._require(self.phase == Phase.BETWEEN and round == self.round, record)
                self._require(data_ranges.total(ranges) > 0, record)
                self.phase = Phase.OPEN.value
                self.issued += data_ranges.total(ranges) - data_ranges.total(self.outstanding)
                self.outstanding, self.first_step = ranges, first_step
            case UpdateAdmitted(round, contribution):
                self._require(self.phase == Phase.OPEN and round == self.round, record)
                self.outstanding = data_ranges.subtract(self.outstanding, contribution.data)
                self.admitted = (*self.admitted, contribution)
            case RoundClosed(round, contributions, weights):
                self._require(self.phase == Phase.OPEN and round == self.round, record)
                self._require(
                    set(contributions) == set(self.admitted) and len(weights) == len(contributions) > 0,
                    record,
                )
                self.phase = Phase.CLOSED.value
                self.admitted, self.weights = contributions, weights
            case OuterStepTaken(round, parameters, optimizer_state):
                self._require(self.phase == Phase.CLOSED and round == self.round, record)
                self._merge(parameters, optimizer_state)
            case CheckpointWritten(version):
                self._require(self.checkpoint_version < version <= self.version, record)
                self.checkpoint_version = version
            case RunFinished(version):
                self._require(self.complete and version == self.version == self.checkpoint_version, record)
                self.phase = Phase.FINISHED.value
            case RunStarted():
                self._require(False, record)

    def _merge(self, parameters: Blob, optimizer_state: Blob | None) -> None:
        self.merged = data_ranges.coalesce((*self.merged, *(each.data for each in self.admitted)))
        self.tokens += sum(each.tokens for each in self.admitted)
        self.parameters, self.optimizer_state = parameters, optimizer_state
        self.admitted, self.weights = (), ()
        self.phase = Phase.BETWEEN.value
        self.round += 1
        self.version += 1

    def _require(self, condition: bool, record: Record) -> None:
        if not condition:
            raise ImpossibleRecord(
                f"{type(record).__name__} cannot follow: the run is in round {self.round} ({self.phase}), epoch {self.epoch}; "
                f"the record is {record}"
            )


def start_run(record: RunStarted) -> Run:
    """Return the state of a run that has only started."""
    return Run(record.config, record.parameters, record.optimizer_state)


def replay(records: Iterable[bytes]) -> Run | None:
    """Return the state that stored records lead to; None for an empty log.

    Arguments:
        records: the payloads of an event log; the first is a RunStarted or a whole Run (a snapshot).

    Raises:
        ImpossibleRecord: the records do not follow each other.
        UnknownRecord: a record of a newer version, or of another program.
    """
    run: Run | None = None
    for payload in records:
        record: Any = decode(payload)
        if run is None:
            if not isinstance(record, Run | RunStarted):
                raise ImpossibleRecord(
                    f"the event log begins with {type(record).__name__}; expected RunStarted or a snapshot"
                )
            run = record if isinstance(record, Run) else start_run(record)
        else:
            run.apply(record)
    return run
