"""What a run is trained with: its programs, its batches, and the files of arrays that its workers leave to each other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pcp.distributed.job import Job
from pcp.distributed.round_arithmetic.program_fit import Arrays, check_fit
from pcp.distributed.round_arithmetic.replica import Runs
from pcp.distributed.verification import ProgramRefused
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.training.repetition import Repeater, StoredArrays
from pcp.ir import Program
from pcp.planning import Plan
from pcp.training.data.run_data import BatchSource, open_batches
from pcp.training.data.safetensors_file import map_arrays
from pcp.training.data.shards.batches import Shards
from pcp.training.data.shards.index import ShardIndex


@dataclass(frozen=True, slots=True)
class Means:
    """What a run is trained with.

    Arguments:
        programs: by name; they fit together, and the batches.
        batches: of the run.
        shelf: for what the run's workers store.
        held: what the step takes before its state, nested; None where it takes nothing.
    """

    programs: Mapping[str, Program]
    batches: BatchSource
    shelf: StoredArrays
    held: Any = None

    def bind(self, plans: dict[str, Runs]) -> None:
        """Bind the step to what it holds, if it holds anything; raises ProgramRefused if the step was compiled elsewhere."""
        step = plans["step"]
        if self.held is None:
            return
        if not isinstance(step, Plan):
            raise ProgramRefused(
                "the step of this run takes weights that stay, which no artifact holds; compile it here"
            )
        plans["step"] = step.bind(self.held)

    def repeater(self, plans: Mapping[str, Runs]) -> Repeater:
        """What repeats pieces with the compiled programs."""
        return Repeater(plans, len(self.shelf.fragments), self.batches.batch, self.shelf)


def no_shards(_: ShardIndex) -> Shards:
    """Of who brings no shards; raises ProgramRefused."""
    raise ProgramRefused("the run trains on shards, and nobody brings them here")


def means_of(
    job: Job,
    store: BlobStore,
    shards: Callable[[ShardIndex], Shards],
    admitted: Callable[[Mapping[str, bytes]], Mapping[str, Program]],
) -> Means:
    """What a run is trained with, from the blobs of its job.

    Arguments:
        shards: brings those of an index, where the data of the run are shards.
        admitted: turns artifacts into programs, and refuses forbidden ones.

    Raises:
        ProgramRefused: a program is forbidden, or the programs do not fit together.
        BlobMissing, DigestMismatch: a blob is not in the store, or was changed there.
    """
    artifacts = {name: store.get(blob) for name, blob in job.programs.items()}
    path = store.path(job.data.digest)
    batches = open_batches(job.kind, path, job.batch, job.context, job.seed, job.vocabulary, shards)
    programs = admitted(artifacts)
    arrays = None if job.held is None else map_arrays(store.path(job.held.digest))
    shapes = None if arrays is None else {name: (array.shape, array.dtype) for name, array in arrays.items()}
    fragments = check_fit(programs, batches.shapes, shapes)
    held = None
    if arrays is not None:
        tree = programs["step"].argument_tree.children[0]
        held = tree.unflatten(arrays[name] for name in tree.names())
    shelf = StoredArrays(store, Arrays.returned_by(programs["start"]), fragments)
    return Means(programs, batches, shelf, held)
