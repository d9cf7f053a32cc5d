"""What a Worker computes: the inner steps of its leases."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.distributed.array_blobs import load_arrays, store_arrays
from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, Lease
from pcp.distributed.verification import ProgramRefused, admit
from pcp.distributed.wire.blobs import BlobStore
from pcp.errors import PCPError
from pcp.ir import Program, TensorSpec, Tree
from pcp.ir.tree import LEAF
from pcp.ir.types import dtype_of
from pcp.planning import plan
from pcp.training.data import Shape, open_batches

COMPILE_SECONDS = 600.0
MEMORY_BYTES = 16 << 30
LAST_STEP = 2**31 - 1


class LeaseRefused(PCPError):
    """A lease that cannot be trained: it holds no batches, or numbers that no program takes."""


class LeaseAborted(Exception):
    """The lease was revoked while it was trained; not an error."""


@dataclass(frozen=True, slots=True)
class Trained:
    """The outcome of a lease.

    Arguments:
        pseudo_gradient: where the lease began, minus where it ended; in the store.
        tokens: tokens trained on.
        losses: of every step.
        seconds: that it took.
        overhead_seconds: what of these was spent before the first and after the last step.
    """

    pseudo_gradient: Blob
    tokens: int
    losses: tuple[float, ...]
    seconds: float
    overhead_seconds: float


class InnerTrainer:
    """Runs the inner steps of leases, one lease at a time, and keeps the inner optimizer's state between them.

    Arguments:
        job: what the Shepherd described; its blobs are in the store.
        store: where blobs are.
        device: where to compute.
        cancelled: asked during verification whether to give up.

    Raises:
        ProgramRefused: a program is forbidden, or the programs do not fit together.
        VerificationCancelled: `cancelled` said so.
        BlobMissing, DigestMismatch: a blob is not in the store, or was changed there.
    """

    def __init__(
        self, job: Job, store: BlobStore, device: str, cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        artifacts = {name: store.get(blob) for name, blob in job.programs.items()}
        path = store.path(job.data.digest)
        self._batches = open_batches(job.kind, path, job.batch, job.context, job.seed, job.vocabulary)
        programs = admit(artifacts, device, MEMORY_BYTES, COMPILE_SECONDS, cancelled)
        check_fit(programs, self._batches.shapes)
        self._plans = {name: plan(program, device=device) for name, program in programs.items()}
        self._store = store
        self._parameters = programs["start"].argument_tree.children[0]
        self._specs = [entry.spec for entry in programs["start"].arguments[:-1]]
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
            LeaseRefused: the lease holds no batches, or steps beyond what a program counts.
            ArraysRefused: the parameters are not those of the programs.
        """
        first, data = lease.first_step, lease.data
        if data.count < 1 or first + data.count > LAST_STEP:
            raise LeaseRefused(
                f"lease {lease.lease_id} asks for {data.count} steps from step {first} on; expected at least one, "
                f"and none beyond {LAST_STEP}"
            )
        began = time.monotonic()
        anchor = load_arrays(self._store, lease.parameters, self._parameters, self._specs, finite=True)
        # The old state is donated: an exception must not leave a dead one behind.
        held, self._state = self._state, None
        state = self._begin(held, anchor, np.int32(first))
        before = time.monotonic() - began
        losses: list[Any] = []
        for done in range(data.count):
            if aborted():
                self._state = state
                raise LeaseAborted
            state, metrics = self._plans["step"].run(state, self._batches.batch(data.start + done))
            losses.append(metrics["loss"])
            if done:
                # One step ahead of the device, no more: progress is then what happened, and an abort is quick.
                losses[-2].block_until_ready()
                progress(done, (time.monotonic() - began) / done)
        values = tuple(float(loss) for loss in losses)
        stepped = time.monotonic() - began
        delta = self._plans["delta"].run(anchor, state)
        self._state = state
        blob = store_arrays(self._store, delta)
        seconds = time.monotonic() - began
        tokens = data.count * self._batches.tokens_per_batch
        return Trained(blob, tokens, values, seconds, seconds - stepped + before)

    def _begin(self, held: Any, anchor: Any, first: np.int32) -> Any:
        if held is None:
            return self._plans["start"].run(anchor, first)
        return self._plans["adopt"].run(held, anchor, first)


@dataclass(frozen=True)
class _Shape:
    """Nested arrays by their nesting, shapes and element types."""

    tree: Tree
    specs: tuple[TensorSpec, ...]

    @staticmethod
    def tuple_of(*parts: "_Shape") -> "_Shape":
        return _Shape(
            Tree("tuple", (), tuple(part.tree for part in parts)),
            tuple(entry for part in parts for entry in part.specs),
        )


def check_fit(programs: Mapping[str, Program], batch: Sequence[Shape]) -> None:
    """Make sure that the programs of a run can hand values to each other; see `programs.py`.

    Arguments:
        programs: `start`, `adopt`, `step` and `delta`.
        batch: shape and element type of each array of a batch.

    Raises:
        ProgramRefused: one of them takes or returns something else than the others expect.
    """
    start = programs["start"]
    if len(start.argument_tree.children) != 2 or start.argument_tree.children[1] != LEAF:
        raise ProgramRefused("the program 'start' does not take parameters and a step number")
    count = _Shape(LEAF, (TensorSpec((), dtype_of("i32")),))
    params = _Shape(start.argument_tree.children[0], tuple(entry.spec for entry in start.arguments[:-1]))
    state = _Shape(start.result_tree, tuple(entry.spec for entry in start.results))
    arrays = [_Shape(LEAF, (TensorSpec(shape, dtype_of(dtype)),)) for shape, dtype in batch]
    pair = _Shape.tuple_of
    takes = {
        "start": pair(params, count),
        "adopt": pair(state, params, count),
        "step": pair(state, pair(*arrays)),
        "delta": pair(params, state),
    }
    returns = {
        "start": state,
        "adopt": state,
        "step": pair(state, _metrics_of(programs["step"])),
        "delta": params,
    }
    for name, program in programs.items():
        taken = _Shape(program.argument_tree, tuple(entry.spec for entry in program.arguments))
        returned = _Shape(program.result_tree, tuple(entry.spec for entry in program.results))
        for verb, found, expected in (("take", taken, takes[name]), ("return", returned, returns[name])):
            if found != expected:
                raise ProgramRefused(
                    f"the programs of the run do not fit together: {name!r} does not {verb} "
                    "what the others hand on or expect"
                )


def _metrics_of(step: Program) -> _Shape:
    """What a training step returns beside its state: a dictionary of arrays, `loss` among them."""
    children = step.result_tree.children
    metrics = children[1] if len(children) == 2 else LEAF
    count = metrics.leaf_count
    specs = [entry.spec for entry in step.results[len(step.results) - count :]]
    losses = [entry for key, entry in zip(metrics.keys, specs, strict=False) if key == "loss"]
    if metrics.kind != "dict" or any(child != LEAF for child in metrics.children) or not losses:
        raise ProgramRefused("the program 'step' does not return a state and metrics with a loss")
    if losses[0].shape != () or not losses[0].dtype.is_float:
        raise ProgramRefused(f"the loss that the program 'step' returns is {losses[0]}; expected a scalar")
    return _Shape(metrics, tuple(specs))
