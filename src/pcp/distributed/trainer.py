"""What a Worker computes: the inner steps of its leases."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.distributed.array_blobs import load_arrays, store_arrays
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, Lease
from pcp.distributed.verification import ProgramRefused, admit
from pcp.distributed.wire.blobs import BlobStore
from pcp.ir import Program
from pcp.ir.tree import map_tree
from pcp.planning import plan
from pcp.training.batches import Batches
from pcp.training.token_file import TokenFile

COMPILE_SECONDS = 600.0
MEMORY_BYTES = 16 << 30


class LeaseAborted(Exception):
    """The lease was revoked while it was trained; not an error."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of a lease."""

    pseudo_gradient: Blob
    tokens: int
    losses: tuple[float, ...]
    seconds: float


class InnerTrainer:
    """Runs the inner steps of leases, one lease at a time, and keeps the inner optimizer's state between them.

    Arguments:
        job: what the Shepherd described; its blobs are in the store.
        store: where blobs are.
        device: where to compute.

    Raises:
        ProgramRefused: a program is forbidden, or the programs do not fit together.
    """

    def __init__(self, job: Job, store: BlobStore, device: str) -> None:
        programs = {
            name: admit(store.path(blob.digest), device, MEMORY_BYTES, COMPILE_SECONDS)
            for name, blob in job.programs.items()
        }
        _check_fit(programs)
        self._plans = {name: plan(program, device=device) for name, program in programs.items()}
        self._store = store
        self._parameters = programs["start"].argument_tree.children[0]
        self._specs = [entry.spec for entry in programs["start"].arguments[:-1]]
        tokens = TokenFile.open(store.path(job.tokens.digest))
        self._batches = Batches(tokens.training, job.batch, job.context, job.seed, job.vocabulary)
        self._state: Any = None

    def train(
        self, lease: Lease, progress: Callable[[int, float], None], aborted: Callable[[], bool]
    ) -> Trained:
        """Run the inner steps of a lease.

        Arguments:
            lease: the batches, and the parameters to begin with, which are in the store.
            progress: told the steps done and the seconds that each took.
            aborted: asked before every step whether to stop.

        Raises:
            LeaseAborted: `aborted` said so.
            ArraysRefused: the parameters are not those of the programs.
        """
        began = time.monotonic()
        anchor = load_arrays(self._store, lease.parameters, self._parameters, self._specs, finite=True)
        first = np.int32(lease.first_step)
        if self._state is None:
            state = self._plans["start"].run(anchor, first)
        else:
            # Taken away while it is donated: an exception in between must not leave a dead state behind.
            state, self._state = self._plans["adopt"].run(self._state, anchor, first), None
        losses: list[Any] = []
        for done in range(lease.data.count):
            if aborted():
                self._state = state
                raise LeaseAborted
            state, metrics = self._plans["step"].run(state, self._batches.batch(lease.data.start + done))
            losses.append(metrics["loss"])
            if done % 4 == 3:
                losses[-1].block_until_ready()  # keeps the queue short, so that progress is what happened
                progress(done + 1, (time.monotonic() - began) / (done + 1))
        delta = map_tree(np.asarray, self._plans["delta"].run(anchor, state))
        self._state = state
        values = tuple(float(loss) for loss in losses)
        tokens = lease.data.count * self._batches.batch_size * self._batches.context
        return Trained(store_arrays(self._store, delta), tokens, values, time.monotonic() - began)


def _check_fit(programs: dict[str, Program]) -> None:
    """The programs pass values to each other; make sure that shapes, element types and nesting agree."""
    start, adopt, step, delta = (programs[name] for name in ("start", "adopt", "step", "delta"))
    state = [entry.spec for entry in start.results]
    count = len(state)
    agree = (
        start.result_tree
        == adopt.result_tree
        == adopt.argument_tree.children[0]
        == step.argument_tree.children[0]
        and len(start.argument_tree.children) == 2
        and [entry.spec for entry in adopt.results] == state
        and [entry.spec for entry in adopt.arguments[:count]] == state
        and [entry.spec for entry in step.arguments[:count]] == state
        and [entry.spec for entry in step.results[:count]] == state
        and delta.argument_tree.children == (start.argument_tree.children[0], start.result_tree)
        and delta.result_tree == start.argument_tree.children[0]
    )
    if not agree:
        raise ProgramRefused(
            "the programs of the run do not fit together: the state of one is not that of the others"
        )
