"""What a simulated Shepherd computes, on small vectors and numbers."""

from dataclasses import is_dataclass, replace
from typing import Any

from pcp.distributed.algorithms import Algorithm, DecoupledDiLoCo, StreamingDiLoCo
from pcp.distributed.coordinator.effects import CompareStates
from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.flat_blobs import load_vector
from pcp.distributed.shepherd.merger import Merger
from pcp.distributed.simulator import training
from pcp.distributed.simulator.machines.blob_disk import BlobDisk


def small_merger(algorithm: Algorithm, store: BlobDisk) -> Merger:
    """The Shepherd's merger of a simulated run; its programs are compiled once in a process."""
    return Merger(
        training.recipe_of(algorithm.fragments), algorithm, store, lambda: training.compiled(plain(algorithm))
    )


def plain(algorithm: Algorithm) -> Any:
    """An algorithm with the same programs, whose workers push after each step."""
    if isinstance(algorithm, StreamingDiLoCo | DecoupledDiLoCo):
        return replace(algorithm, inner_steps=algorithm.fragments, delay=0)
    assert is_dataclass(algorithm)
    return replace(algorithm, inner_steps=1)


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
        return float(sum(load_vector(self._store, blob, training.SIZE)[0] for blob in parameters))
