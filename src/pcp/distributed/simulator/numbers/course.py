"""A run on numbers: what its Shepherd computes, and what its Workers train with."""

from collections.abc import Callable
from typing import Any

from pcp.distributed.algorithms import Algorithm
from pcp.distributed.coordinator import RunConfig
from pcp.distributed.coordinator.effects import CompareStates, RunOuterStep
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob
from pcp.distributed.simulator import training
from pcp.distributed.simulator.course import Means
from pcp.distributed.simulator.machines.blob_disk import BlobDisk
from pcp.distributed.simulator.machines.disk import Disk
from pcp.distributed.simulator.numbers.states import NumberShelf, StateTable
from pcp.distributed.simulator.training import DATA, PROGRAM
from pcp.distributed.simulator.witness import Witness
from pcp.distributed.wire.bulk.transfer import TransferSettings


class NumberCourse:
    """See `Course`: a fragment is one number, and so is an inner state.

    Arguments:
        algorithm: of the run.
    """

    settings = TransferSettings(chunk_bytes=3, window_bytes=8)
    contents = PROGRAM, DATA

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm, self._states = algorithm, StateTable()

    def store(self, disk: Disk, power_fails: Callable[[], None]) -> BlobDisk:
        """See `Course`."""
        return BlobDisk(disk, power_fails)

    def merger(self, store: BlobDisk) -> "NumberMerger":
        """See `Course`."""
        return NumberMerger(self._algorithm, store)

    def states(self, store: BlobDisk) -> "NumberStates":
        """See `Course`."""
        return NumberStates(store)

    def evaluator(self, store: BlobDisk) -> "NumberEvaluator":
        """See `Course`."""
        return NumberEvaluator(store)

    def first_outer(self, first: tuple[Blob, ...]) -> tuple[Blob, ...]:
        """See `Course`: the master is the first version."""
        return first

    def means(self, job: Job, store: BlobDisk) -> Means:  # noqa: ARG002 - one job like another
        """See `Course`."""
        plans = training.plans(self._algorithm)
        return Means(plans, training.Batches(), NumberShelf(store, self._states))

    def witness(self, config: RunConfig) -> Witness:
        """See `Course`."""
        return Witness(config)

    def value(self, store: BlobDisk, fragment: int, blob: Blob) -> int:  # noqa: ARG002 - one number like another
        """See `Course`."""
        return training.decode(store.get(blob))


class NumberMerger:
    """Merges and outer steps.

    Arguments:
        algorithm: how is merged.
        store: where numbers are.
    """

    def __init__(self, algorithm: Algorithm, store: BlobDisk) -> None:
        self._algorithm, self._store = algorithm, store

    def compile(self) -> None:
        """Nothing is compiled."""

    def begin(self) -> tuple[Blob, ...]:
        """Store the first version of every fragment."""
        fragments = range(self._algorithm.fragments)
        return tuple(self._store.put(training.encode(training.initial(each))) for each in fragments)

    def check(self, fragment: int, blob: Blob) -> None:  # noqa: ARG002 - one number like another
        """See `Merger.check`."""
        training.decode(self._store.get(blob))

    def merge(self, step: RunOuterStep) -> tuple[Blob, Blob | None, Blob | None]:
        """See `Merger.merge`."""
        algorithm = self._algorithm
        assert step.outer is not None, "every outer step leaves a master"
        held, master = (training.decode(self._store.get(blob)) for blob in (step.parameters, step.outer))
        pushes = [training.decode(self._store.get(each.payload)) for each in step.contributions]
        stepped = training.outer_step(algorithm, master, pushes)
        change = training.rounded(stepped - held, algorithm.download)
        outer = self._store.put(training.encode(stepped))
        parameters = self._store.put(training.encode(held + change))
        changed = self._store.put(training.encode(change)) if algorithm.download != "f32" else None
        return parameters, changed, outer

    def load(self, parameters: tuple[Blob, ...], outer: tuple[Blob | None, ...] = ()) -> dict[str, Any]:
        """See `Merger.load`."""
        return {
            blob.digest.hex(): self._store.get(blob) for blob in (*parameters, *outer) if blob is not None
        }


class NumberStates:
    """Looks at inner states."""

    def __init__(self, store: BlobDisk) -> None:
        self._store = store

    def check(self, blob: Blob) -> None:
        """See `StateChecks.check`."""
        training.decode(self._store.get(blob))

    def distance(self, effect: CompareStates) -> float:
        """See `StateChecks.distance`."""
        raise training.Unusable(f"audit {effect.audit} compares states that must be the same")


class NumberEvaluator:
    """Reads what an evaluation would read."""

    def __init__(self, store: BlobDisk) -> None:
        self._store = store

    def compile(self) -> None:
        """Nothing is compiled."""

    def loss(self, parameters: tuple[Blob, ...]) -> float:
        """See `Evaluator.loss`."""
        return float(sum(training.decode(self._store.get(blob)) for blob in parameters))
