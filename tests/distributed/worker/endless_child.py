"""The process that runs programs, whose leases are of three kinds: 1 never ends, 2 takes all memory, others are
done at once.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from pcp.distributed.messages import Lease
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.programs import training_child
from pcp.distributed.worker.training.inbox import Inbox
from pcp.distributed.worker.training.trainer import Trained


class Trainer:
    """Stands for `InnerTrainer`."""

    def __init__(self, _job: object, store: BlobStore, *_: object) -> None:
        self._store = store
        self.inbox = Inbox()
        self.profile = None

    async def train(self, lease: Lease, progress: Callable[[int, float], None], *_: object) -> Trained:
        progress(1, 0.5)
        if lease.lease_id == 1:  # a compiled loop that runs for ever
            endless: Any = jax.jit(lambda n: jax.lax.while_loop(lambda m: m >= 0, lambda m: (m + 1) % 7, n))
            endless(0).block_until_ready()
        if lease.lease_id == 2:
            held = [np.ones(1 << 24) for _ in range(100)]
            progress(len(held), 0.5)
        return Trained(self._store.put(f"delta {lease.lease_id}".encode()), 48, (2.0,) * 3, 0.1, 0.01)


if __name__ == "__main__":
    training_child.make_trainer = Trainer  # type: ignore[misc]  # it stands for it
    training_child.TrainingChild().run()
