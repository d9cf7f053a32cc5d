"""Code that runs in the process of programs where its trainer is made, as if a program had used a hole of the compiler.

`training_process` starts this module instead of its own. The run's data is the attack; see `planted`.
"""

from pcp.distributed.job import Job
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.programs import training_child
from tests.distributed.sandbox.planted import taken_over


class Trainer:
    """Stands for `InnerTrainer`."""

    def __init__(self, job: Job, store: BlobStore, *_: object) -> None:
        taken_over(store.get(job.data))


if __name__ == "__main__":
    training_child.make_trainer = Trainer  # type: ignore[misc, assignment]  # it stands for it
    training_child.TrainingChild().run()
