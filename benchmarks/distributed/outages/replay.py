"""A run of DiLoCo computed again from its event log, in one process, and compared bit for bit.

The log says which batches each merged push was trained on, and the digest of the push. A Worker's inner optimizer must
have no memory (beta1 = beta2 = 0), because of leases that came to nothing the log says nothing. The push must then follow from
the parameters of its round; or, if its Worker had another lease of that round before, from where that one ended.
"""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcp.distributed.algorithms import Contribution
from pcp.distributed.coordinator import DirectoryStorage, EventLog
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.coordinator.log.records import (
    ContributionsDropped,
    OuterStepTaken,
    RoundClosed,
    RoundOpened,
    RunStarted,
    UpdateAdmitted,
)
from pcp.distributed.coordinator.log.serialisation import decode
from pcp.distributed.messages import Blob, Outcome
from pcp.distributed.round_arithmetic.array_blobs import store_arrays
from pcp.distributed.round_arithmetic.flat_blobs import load_vector
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.distributed.round_arithmetic.replica import Replica
from pcp.distributed.shepherd.merger import Merger
from pcp.distributed.wire import BlobStore
from pcp.planning import plan
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder


class Different(Exception):
    """The run and its replay are not the same."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was computed again.

    Arguments:
        rounds: merged.
        pushes: merged in them.
        batches: behind these.
        first_loss, last_loss: mean training loss of the first and of the last round.
        parameters: that the run and the replay ended with.
    """

    rounds: int
    pushes: int
    batches: int
    first_loss: float
    last_loss: float
    parameters: Blob


def read_log(folder: Path) -> list[Any]:
    """The records of the event log of a run."""
    storage = DirectoryStorage(folder / "coordinator")
    try:
        return [decode(payload) for payload in EventLog(storage).records()]
    finally:
        storage.close()


class Replay:
    """The run's arithmetic.

    Arguments:
        folder: of the run.
        first: the first record of its log.
        store: for what is computed.
    """

    def __init__(self, folder: RunFolder, first: RunStarted, store: BlobStore) -> None:
        recipe, algorithm = prepare(folder), first.config.algorithm
        programs = worker_programs(inner_step(recipe, algorithm), recipe.parameters, algorithm)
        self._plans = {name: plan(program) for name, program in programs.items()}
        self._batches, self._algorithm, self._store = recipe.batches, algorithm, store
        self._merger = Merger(recipe, algorithm, store)
        self._merger.compile()
        [self.parameters] = self._merger.begin()
        _same("the first parameters", self.parameters, first.parameters[0])
        self._outer: Blob | None = first.outer[0]
        self._replicas: dict[int, Replica] = {}
        self._goes_on: set[int] = set()

    def push(self, opened: RoundOpened, contribution: Contribution) -> None:
        """Train a push again.

        Raises:
            Different: it is another.
        """
        worker = contribution.worker_id
        replica = self._replicas.setdefault(worker, Replica(self._plans))
        if worker in self._goes_on and self._trained(replica, opened, contribution) == contribution.payload:
            return
        replica.fresh(
            [load_vector(self._store, self.parameters, self._merger.partition.size(0))], opened.first_step
        )
        found = self._trained(replica, opened, contribution)
        _same(f"round {opened.round}: the push of worker {worker}", found, contribution.payload)
        self._goes_on.add(worker)

    def _trained(self, replica: Replica, opened: RoundOpened, contribution: Contribution) -> Blob:
        replica.begin(opened.first_step)
        for each in contribution.ranges:
            for batch in range(each.start, each.start + each.count):
                replica.step(self._batches.batch(batch))
        replica.finish()
        found = store_arrays(self._store, replica.push(0))
        replica.settle(0, Outcome.ADMITTED)
        return found

    def outer_step(
        self,
        opened: RoundOpened,
        closed: RoundClosed,
        admitted: dict[int, Contribution],
        taken: OuterStepTaken,
    ) -> None:
        """Merge a round again.

        Raises:
            Different: it leads to other parameters.
        """
        merged = tuple(admitted[lease] for lease in closed.order)
        step = RunOuterStep(
            opened.round, 0, merged, closed.weights, self.parameters, self._outer, opened.first_step
        )
        self._goes_on.clear()
        self.parameters, _, self._outer = self._merger.merge(step)
        _same(f"round {opened.round}: the parameters", self.parameters, taken.parameters)
        self._store.keep_only(each.digest for each in (self.parameters, self._outer) if each)


def replay(folder: Path, records: Iterable[Any]) -> Replayed:
    """Compute a run again.

    Arguments:
        folder: of the run, whose Shepherd has ended.
        records: of its log, from its beginning.

    Raises:
        Different: the log does not follow from the run's settings and data.
    """
    first, *others = records
    opened: dict[int, RoundOpened] = {}
    admitted: dict[int, dict[int, Contribution]] = {}
    closed: dict[int, RoundClosed] = {}
    batches: set[int] = set()
    pushes = rounds = 0
    losses = []
    with tempfile.TemporaryDirectory() as own:
        again = Replay(RunFolder.open(folder), first, BlobStore(own))
        for record in others:
            match record:
                case RoundOpened():
                    opened[record.round], admitted[record.round] = record, {}
                case UpdateAdmitted():
                    admitted[record.round][record.contribution.lease_id] = record.contribution
                    again.push(opened[record.round], record.contribution)
                case ContributionsDropped():
                    for lease in record.leases:
                        del admitted[record.round][lease]
                case RoundClosed():
                    closed[record.round] = record
                case OuterStepTaken():
                    merged = admitted.pop(record.round)
                    again.outer_step(opened[record.round], closed.pop(record.round), merged, record)
                    rounds, pushes = rounds + 1, pushes + len(merged)
                    losses.append(float(np.mean([each.loss for each in merged.values()])))
                    _add_batches(batches, merged.values())
        return Replayed(rounds, pushes, len(batches), losses[0], losses[-1], again.parameters)


def _add_batches(batches: set[int], merged: Iterable[Contribution]) -> None:
    for contribution in merged:
        for each in contribution.ranges:
            new = set(range(each.start, each.start + each.count))
            if new & batches:
                raise Different(f"batches {sorted(new & batches)[:5]} are merged twice")
            batches |= new


def _same(what: str, found: Blob, expected: Blob) -> None:
    if found != expected:
        raise Different(
            f"{what}: the replay has {found.digest.hex()[:16]}, the log {expected.digest.hex()[:16]}"
        )
