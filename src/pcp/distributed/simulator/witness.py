"""What was truly trained: every number is followed from its batch to the parameters; none may be lost or counted twice."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.distributed.algorithms import Contribution
from pcp.distributed.coordinator import Round, RunConfig
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.coordinator.log.records import OuterStepTaken
from pcp.distributed.messages import Blob, DataRange, Lease
from pcp.distributed.round_arithmetic.array_blobs import store_arrays
from pcp.distributed.round_arithmetic.flat_blobs import load_vector
from pcp.distributed.simulator import training
from pcp.distributed.simulator.arithmetic import small_merger
from pcp.distributed.simulator.machines.blob_disk import BlobDisk
from pcp.distributed.simulator.machines.disk import Disk

Moved = npt.NDArray[np.int64]


class InvariantViolated(Exception):
    """Something happened in a simulated run that must never happen. No PCPError, for hosts handle those."""


def require(condition: bool, message: str) -> None:
    """Object if a condition does not hold.

    Raises:
        InvariantViolated: it does not.
    """
    if not condition:
        raise InvariantViolated(message)


@dataclass(frozen=True, slots=True)
class Push:
    """What a worker pushed at the end of a lease."""

    chain: int
    lease: Lease
    value: training.Vector


class Witness:
    """Follows the numbers of one run.

    Arguments:
        config: its plan.
        stored: the content of a blob that the Shepherd has.
        merges: whether every outer step is taken again here, which must come to the same.
    """

    def __init__(self, config: RunConfig, stored: Callable[[Blob], bytes], merges: bool) -> None:
        self._config = config
        self._algorithm = config.algorithm
        self._depends = training.depends_on_parameters(config.algorithm)
        # Of what a worker trained since a fresh lease: what each cell, a batch and a fragment, moved.
        self._chains: list[dict[tuple[int, int], Moved]] = []
        self._pushes: dict[int, Push] = {}
        self._booked: dict[int, Moved] = {}  # what the merged cells of a lease moved its fragment by
        self._merged_cells: set[tuple[int, int]] = set()
        self._fragment_of: list[int] = []
        self._store = BlobDisk(Disk(Random(0)), power_fails=lambda: None)
        self._merger = small_merger(config.algorithm, self._store)
        self._merger.compile()
        self._stored, self._merges = stored, merges
        training.coding(config.algorithm.upload).forget()
        self._parameters = list(self._merger.begin())
        self._outer: list[Blob | None] = [None] * config.algorithm.fragments
        self._versions = [[self._vector(blob)] for blob in self._parameters]
        self.masked_leases = self.merged_contributions = self.trained_batches = 0

    def new_chain(self) -> int:
        """Return the number of a new chain: a worker begins afresh."""
        self._chains.append({})
        return len(self._chains) - 1

    def opened(self, round: int, fragment: int) -> None:
        """Take note of what a round merges; one that was lost with the power may open once more."""
        del self._fragment_of[round:]
        self._fragment_of.append(fragment)

    def adopted(self, worker: str, fragment: int, version: int, value: Any) -> None:
        """Take note of what a worker adopts."""
        known = self._versions[fragment]
        if version >= len(known) or not np.array_equal(known[version], value):
            raise InvariantViolated(
                f"{worker} adopts {value} as version {version} of fragment {fragment}; the versions are {known}"
            )

    def trained(
        self,
        chain: int,
        lease: Lease,
        payload: dict[str, Any],
        held: dict[int, int],
        anchors: Sequence[training.Vector],
    ) -> None:
        """Take note of a lease that is trained, and of what is pushed at its end."""
        moved = lease.fragments or range(self._algorithm.fragments)
        self.masked_leases += bool(lease.fragments)
        self.trained_batches += lease.data.count
        cells = self._chains[chain]
        for batch in _batches([lease.data]):
            for fragment in moved:
                anchor = anchors[fragment].tobytes() if self._depends else None
                cells[batch, fragment] = training.movement(batch, fragment, anchor)
        if self._merges:
            store_arrays(self._store, payload)
        value = training.coding(self._algorithm.upload).decode(payload)
        self._pushes[lease.lease_id] = Push(chain, lease, value)
        before = self._fragment_of[: lease.round]
        delay = self._algorithm.delay
        for fragment, version in held.items():
            require(
                np.array_equal(anchors[fragment], self._versions[fragment][version]),
                f"lease {lease.lease_id} was trained with fragment {fragment} not at version {version}",
            )
            newest = before.count(fragment)
            # What the round just before made is adopted late, and not at all in a lease that ends sooner.
            late = delay > 0 and lease.data.count <= delay and before[-1:] == [fragment]
            require(
                version == newest or (late and version < newest),
                f"lease {lease.lease_id} of round {lease.round} was trained with version {version} of fragment "
                f"{fragment}, of which {newest} rounds were before",
            )

    def merged(self, taken: OuterStepTaken, round: Round) -> None:
        """Check an outer step: it merges what was pushed for it, and every cell once, and comes to what it should."""
        fragment = round.fragment
        for each in round.admitted:
            self._contributed(round.number, fragment, each)
        step = RunOuterStep(
            round.number,
            fragment,
            tuple(round.admitted),
            round.weights,
            self._parameters[fragment],
            self._outer[fragment],
            round.first_step,
        )
        if self._merges:
            expected = self._merger.merge(step)
            require(
                (taken.parameters, taken.change, taken.outer) == expected,
                f"round {round.number} makes fragment {fragment} {taken.parameters}, expected {expected}",
            )
        else:
            self._store.put(self._stored(taken.parameters))
        self._parameters[fragment], self._outer[fragment] = taken.parameters, taken.outer
        self._versions[fragment].append(self._vector(taken.parameters))

    def _vector(self, blob: Blob) -> training.Vector:
        return load_vector(self._store, blob, training.SIZE).astype(np.float64)

    def _contributed(self, round: int, fragment: int, contribution: Contribution) -> None:
        lease_id = contribution.lease_id
        push = self._pushes.get(lease_id)
        if push is None:
            raise InvariantViolated(f"round {round} merges lease {lease_id}, which nobody trained")
        require(
            (push.lease.round, push.lease.fragment) == (round, fragment),
            f"the push of lease {lease_id}, for round {push.lease.round}, is merged by round {round} of fragment {fragment}",
        )
        cells, moved = self._chains[push.chain], np.zeros(training.SIZE, np.int64)
        for batch in _batches(contribution.ranges):
            cell = batch, fragment
            require(cell not in self._merged_cells, f"batch {batch} is merged twice into fragment {fragment}")
            require(cell in cells, f"lease {lease_id} is booked for batch {batch}, which it has not trained")
            self._merged_cells.add(cell)
            moved = moved + cells[cell]
        self._booked[lease_id] = moved
        self.merged_contributions += 1

    def _check_pushes(self) -> None:
        """Check that every merged push is what its cells moved, and the residual of the one that its worker made before.

        A worker makes its pushes of a fragment in one order; where rounds overlap, they may be merged in another.
        """
        upload = training.coding(self._algorithm.upload)
        left: dict[tuple[int, int], training.Vector] = {}
        for lease_id, push in self._pushes.items():
            if lease_id not in self._booked:
                continue
            whose = push.chain, push.lease.fragment
            error = left.get(whose, np.zeros(training.SIZE)) + self._booked[lease_id]
            lost = np.abs(error - upload.decode(upload.encode(error)))
            # Between two numbers that a codec may choose, rounding decides; more than it loses may not be missing.
            if not (np.abs(error - push.value) <= lost + 1e-3).all():
                raise InvariantViolated(
                    f"the push of lease {lease_id} is {push.value}; what is booked for it has moved fragment "
                    f"{push.lease.fragment} by {error}"
                )
            left[whose] = error - push.value

    def ended(self, parameters: tuple[Blob, ...]) -> None:
        """Check a finished run: every cell is merged once, and every push is accounted for."""
        total = self._config.batches * self._algorithm.fragments
        require(len(self._merged_cells) == total, f"{len(self._merged_cells)} of {total} cells were merged")
        require(parameters == tuple(self._parameters), "the parameters are not those that were merged last")
        self._check_pushes()


def _batches(ranges: Iterable[DataRange]) -> Iterable[int]:
    for data in ranges:
        yield from range(data.start, data.start + data.count)
