"""How a simulated run trains: on numbers that a reference follows exactly, or on arrays with production's own arithmetic."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pcp.distributed.coordinator import RunConfig
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.replica import Runs
from pcp.distributed.shepherd.calculation import ChecksStates, Evaluates, Merges
from pcp.distributed.simulator.machines.disk import Disk
from pcp.distributed.simulator.witness import Witness
from pcp.distributed.wire.bulk.transfer import TransferSettings
from pcp.distributed.worker.training.repetition import Shelf
from pcp.distributed.worker.training.trainer import Batches


@dataclass(frozen=True, slots=True)
class Means:
    """What a Worker trains with.

    Arguments:
        plans: compiled programs, by name.
        batches: where batches come from.
        shelf: where blobs are.
    """

    plans: Mapping[str, Runs]
    batches: Batches
    shelf: Shelf


class Course(Protocol):
    """How a run trains. Stores are those that `store` makes."""

    @property
    def settings(self) -> TransferSettings:
        """Of the bulk protocol."""

    @property
    def contents(self) -> tuple[bytes, ...]:
        """What the Shepherd of a new run stores for its Workers."""

    def store(self, disk: Disk, power_fails: Callable[[], None]) -> Any:
        """The blobs of a machine."""

    def merger(self, store: Any) -> Merges:
        """The arithmetic of rounds."""

    def states(self, store: Any) -> ChecksStates:
        """The arithmetic of audits."""

    def evaluator(self, store: Any) -> Evaluates:
        """What people wait for."""

    def first_outer(self, first: tuple[Blob, ...]) -> tuple[Blob | None, ...]:
        """What the first outer step of each fragment begins with, beside its first version."""

    def means(self, job: Job, store: Any) -> Means:
        """What a Worker trains with."""

    def witness(self, config: RunConfig) -> Witness:
        """Who follows what was trained."""

    def value(self, store: Any, fragment: int, blob: Blob) -> Any:
        """What a stored version of a fragment is."""
