"""What a simulated Shepherd computes, on stored numbers."""

from typing import Any

from pcp.distributed.algorithms import Algorithm
from pcp.distributed.coordinator.effects import CompareStates, RunOuterStep
from pcp.distributed.messages import Blob
from pcp.distributed.simulator import training
from pcp.distributed.simulator.machines.blob_disk import BlobDisk


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
