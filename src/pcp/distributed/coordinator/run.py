"""The durable state of a run, which changes only by applying records: replaying the log therefore gives the same state."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pcp.distributed.algorithms import Contribution, Topology
from pcp.distributed.coordinator.config import RunConfig
from pcp.distributed.coordinator.log.records import (
    CheckpointWritten,
    ContributionsDropped,
    EpochStarted,
    MeasuredPace,
    OuterStepTaken,
    PacesMeasured,
    Record,
    RoundClosed,
    RoundOpened,
    RoundShared,
    RunFinished,
    RunStarted,
    UpdateAdmitted,
    WorkerBarred,
    WorkerNamed,
)
from pcp.distributed.coordinator.log.serialisation import decode, encode, register, storable
from pcp.distributed.coordinator.rounds import data_ranges
from pcp.distributed.coordinator.rounds.data_ranges import Ranges
from pcp.distributed.coordinator.rounds.fragments import Fragment, Round
from pcp.distributed.messages import Blob, DataRange
from pcp.distributed.takeovers import TAKEOVERS_KEPT, Takeover
from pcp.errors import PCPError

register(Takeover)


class ImpossibleRecord(PCPError):
    """A record cannot follow those before it: the log was mixed up, or the coordinator has a defect."""


@storable
@dataclass(slots=True)
class Run:
    """The durable state of a run.

    Arguments:
        config: the plan.
        fragments: of the parameters.
        in_flight: rounds that are opened and not merged, oldest first; they close and merge in this order.
        epoch: number of Shepherd processes that have held the run.
        worker_ids: number of every worker name ever seen.
        opened: rounds ever opened.
        issued: batches ever put into a round.
        workers: that the last round was cut for, or is shared by.
        merged_tokens: tokens behind the parameters, counted once for each fragment.
        latest_tokens: of these, behind the last outer step.
        checkpoint_version: rounds behind the last checkpoint; -1 before the first.
        finished: whether all is merged and the last checkpoint is written.
        barred: why a name is kept out, by name.
        paces: of the workers that trained, by number.
        takeovers: the last ones, of this epoch last.
    """

    config: RunConfig
    fragments: tuple[Fragment, ...]
    in_flight: tuple[Round, ...] = ()
    epoch: int = 0
    worker_ids: dict[str, int] = field(default_factory=dict)
    opened: int = 0
    issued: int = 0
    workers: int = 0
    merged_tokens: int = 0
    latest_tokens: int = 0
    checkpoint_version: int = -1
    finished: bool = False
    barred: dict[str, str] = field(default_factory=dict)
    paces: dict[int, MeasuredPace] = field(default_factory=dict)
    takeovers: tuple[Takeover, ...] = ()

    @property
    def version(self) -> int:
        """Rounds behind the parameters."""
        return self.opened - len(self.in_flight)

    @property
    def tokens(self) -> int:
        """Tokens behind the parameters."""
        return self.merged_tokens // len(self.fragments)

    @property
    def tokens_before(self) -> int:
        """Tokens behind the parameters before the last outer step."""
        return (self.merged_tokens - self.latest_tokens) // len(self.fragments)

    @property
    def unissued(self) -> int:
        """Batches that no round had yet."""
        return self.config.batches - self.issued

    @property
    def complete(self) -> bool:
        """Whether every batch of the plan is merged into every fragment."""
        everything = (DataRange(0, self.config.batches),)
        return not self.in_flight and all(each.merged == everything for each in self.fragments)

    def digest(self) -> bytes:
        """Return the SHA-256 of the canonical form: equal states have equal digests."""
        return hashlib.sha256(encode(self)).digest()

    def state_blobs(self) -> frozenset[Blob]:
        """Return the blobs of all fragments."""
        return frozenset(blob for each in self.fragments for blob in each.blobs)

    def blobs(self) -> frozenset[Blob]:
        """Return the blobs that the run still needs; a Shepherd may delete all others when it starts."""
        payloads = (each.payload for round in self.in_flight for each in round.admitted)
        return self.state_blobs().union(self.config.blobs, payloads)

    def outstanding(self, fragment: int) -> Ranges:
        """Return the batches ever issued that are neither merged into a fragment nor admitted to a round of it."""
        admitted = (piece for round in self.in_flight if round.fragment == fragment for piece in round.ranges)
        settled = data_ranges.coalesce((*self.fragments[fragment].merged, *admitted))
        return data_ranges.gaps(settled, self.issued)

    def lacks(self, fragment: int) -> int:
        """Return how many batches are outstanding for a fragment, without looking for them."""
        admitted = sum(round.batches for round in self.in_flight if round.fragment == fragment)
        return self.issued - data_ranges.total(self.fragments[fragment].merged) - admitted

    def round(self, number: int) -> Round | None:
        """Return a round in flight."""
        return next((each for each in self.in_flight if each.number == number), None)

    def apply(self, record: Record) -> None:
        """Change the state by one record.

        Raises:
            ImpossibleRecord: the record does not fit the state.
            RangesOverlap: an outer step merges batches twice.
        """
        match record:
            case EpochStarted(epoch, mark):
                self._require(epoch == self.epoch + 1, record)
                self.epoch = epoch
                self.takeovers = (*self.takeovers, Takeover(mark, self.version))[-TAKEOVERS_KEPT:]
            case WorkerNamed() | WorkerBarred() | PacesMeasured():
                self._know(record)
            case RoundOpened():
                self._open(record)
            case RoundShared(round, workers):
                self._require(self.round(round) is not None and workers > self.workers, record)
                self.workers = workers
            case UpdateAdmitted():
                self._admit(record)
            case ContributionsDropped():
                self._drop(record)
            case RoundClosed():
                self._close(record)
            case OuterStepTaken():
                self._merge(record)
            case CheckpointWritten(version):
                self._require(self.checkpoint_version < version <= self.version, record)
                self.checkpoint_version = version
            case RunFinished(version):
                self._require(self.complete and version == self.version == self.checkpoint_version, record)
                self.finished = True
            case RunStarted():
                self._require(False, record)

    def _know(self, record: WorkerNamed | WorkerBarred | PacesMeasured) -> None:
        match record:
            case WorkerNamed(worker, worker_id):
                self._require(worker not in self.worker_ids and worker_id == len(self.worker_ids) + 1, record)
                self.worker_ids[worker] = worker_id
            case WorkerBarred(worker, reason):
                self._require(worker in self.worker_ids, record)
                self.barred[worker] = reason
            case PacesMeasured(paces):
                self.paces.update((each.worker_id, each) for each in paces)

    def _open(self, record: RoundOpened) -> None:
        self._require(
            record.round == self.opened
            and 0 <= record.fragment < len(self.fragments)
            and 0 <= record.fresh <= self.unissued,
            record,
        )
        self.issued += record.fresh
        self.workers = record.workers
        wanted = self.lacks(record.fragment)
        self._require(wanted > 0, record)
        opened = Round(record.round, record.fragment, self.issued, record.first_step, wanted, wanted, [])
        self.in_flight = (*self.in_flight, opened)
        self.opened += 1

    def _admit(self, record: UpdateAdmitted) -> None:
        round, ranges = self._in_flight(record, closed=False), record.contribution.ranges
        self._require(data_ranges.total(ranges) > 0, record)
        # Only there a worker says more than once what it has.
        if self.config.algorithm.topology is Topology.PAIRS:
            replaced = [each for each in round.admitted if data_ranges.within(each.ranges, ranges)]
            self._require(all(each.worker_id == record.contribution.worker_id for each in replaced), record)
            self._take_out(round, replaced)
        round.admitted.append(record.contribution)
        round.batches += data_ranges.total(ranges)
        for each in self.in_flight:
            if each.fragment == round.fragment:
                each.missing -= data_ranges.total_below(ranges, each.limit)
                self._require(each.missing >= 0, record)

    def _drop(self, record: ContributionsDropped) -> None:
        round = self._in_flight(record, closed=False)
        dropped = [each for each in round.admitted if each.lease_id in record.leases]
        self._require(0 < len(dropped) == len(record.leases), record)
        self._take_out(round, dropped)

    def _take_out(self, round: Round, dropped: list[Contribution]) -> None:
        round.admitted = [each for each in round.admitted if each not in dropped]
        ranges = [piece for each in dropped for piece in each.ranges]
        round.batches -= data_ranges.total(ranges)
        for each in self.in_flight:
            if each.fragment == round.fragment:
                each.missing += data_ranges.total_below(ranges, each.limit)

    def _close(self, record: RoundClosed) -> None:
        head = self._in_flight(record, closed=False)
        self._require(
            head is self.in_flight[0]
            and sorted(record.order) == sorted(each.lease_id for each in head.admitted)
            and len(record.weights) == len(record.order) > 0,
            record,
        )
        # An event log of an earlier version may hold a lease number twice, of two workers; they are reduced by worker.
        left = sorted(head.admitted, key=lambda each: each.worker_id, reverse=True)
        by_lease: dict[int, list[Contribution]] = {}
        for each in left:
            by_lease.setdefault(each.lease_id, []).append(each)
        head.admitted = [by_lease[lease_id].pop() for lease_id in record.order]
        head.weights = record.weights

    def _merge(self, record: OuterStepTaken) -> None:
        head = self._in_flight(record, closed=True)  # as only the oldest can be
        fragment = self.fragments[head.fragment]
        fragment.merged = data_ranges.coalesce((*fragment.merged, *head.ranges))
        fragment.parameters, fragment.change, fragment.outer = record.parameters, record.change, record.outer
        fragment.version += 1
        fragment.round = head.number
        self.latest_tokens = sum(each.tokens for each in head.admitted)
        self.merged_tokens += self.latest_tokens
        self.in_flight = self.in_flight[1:]

    def _in_flight(
        self, record: UpdateAdmitted | ContributionsDropped | RoundClosed | OuterStepTaken, closed: bool
    ) -> Round:
        round = self.round(record.round)
        if round is None or round.closed != closed:
            raise self._impossible(record)
        return round

    def _require(self, condition: bool, record: Record) -> None:
        if not condition:
            raise self._impossible(record)

    def _impossible(self, record: Record) -> ImpossibleRecord:
        flight = ", ".join(f"{each.number}{' (closed)' if each.closed else ''}" for each in self.in_flight)
        return ImpossibleRecord(
            f"{type(record).__name__} cannot follow: the run is in epoch {self.epoch} and has opened {self.opened} rounds; "
            f"in flight: {flight or 'none'}; the record is {record}"
        )


def start_run(record: RunStarted) -> Run:
    """Return the state of a run that has only started."""
    pairs = zip(record.parameters, record.outer, strict=True)
    return Run(record.config, tuple(Fragment(parameters, outer) for parameters, outer in pairs))


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
