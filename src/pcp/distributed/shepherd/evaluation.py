"""Validation losses on the side: the run never waits for one, and at most one waits for its turn."""

import logging
from collections.abc import Callable

from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.flat_blobs import load_vector
from pcp.distributed.round_arithmetic.fragments import Partition
from pcp.distributed.wire.blobs import BlobStore
from pcp.planning import Plan, plan
from pcp.training.recipes.recipe import Recipe

log = logging.getLogger("pcp.distributed.shepherd.evaluation")


class Evaluator:
    """Computes the validation loss of stored parameters.

    Arguments:
        recipe: what is trained.
        store: where blobs are.
        partition: how the parameters are cut.
    """

    def __init__(self, recipe: Recipe, store: BlobStore, partition: Partition) -> None:
        self._recipe = recipe
        self._store = store
        self._partition = partition
        self._program = recipe.evaluation
        self._plan: Plan | None = None

    def compile(self) -> None:
        """Make ready to evaluate."""
        planned = plan(self._program, device=self._recipe.config.device)
        self._plan = planned.bind(*self._recipe.held) if self._recipe.held else planned

    def loss(self, parameters: tuple[Blob, ...]) -> float:
        """The mean loss over the whole validation part, in nats.

        Arguments:
            parameters: every fragment.

        Raises:
            ArraysRefused, BlobMissing: the blob is not what it should be, or is not there.
        """
        vectors = [
            load_vector(self._store, blob, self._partition.size(fragment))
            for fragment, blob in enumerate(parameters)
        ]
        arrays = self._partition.parameters(vectors)
        assert self._plan is not None, "compile comes first"
        return self._recipe.validation_loss(self._plan.bind(arrays).run)


class EvaluationQueue:
    """Which parameters are evaluated now and next, and which blobs must stay for that.

    Arguments:
        start: begins an evaluation of the parameters (every fragment) of a step, and leads to `done`.
        remove: deletes a blob.
    """

    def __init__(
        self, start: Callable[[int, tuple[Blob, ...]], None], remove: Callable[[Blob], None]
    ) -> None:
        self._start = start
        self._remove = remove
        self._running: tuple[int, tuple[Blob, ...]] | None = None
        self._waiting: tuple[int, tuple[Blob, ...]] | None = None
        self._unneeded: set[Blob] = set()
        self.skipped = 0

    @property
    def idle(self) -> bool:
        """Whether nothing is evaluated."""
        return self._running is None

    def add(self, step: int, parameters: tuple[Blob, ...]) -> None:
        """Evaluate these parameters, now or next; others that still wait are skipped."""
        if self._running is None:
            self._running = (step, parameters)
            self._start(step, parameters)
            return
        if self._waiting is not None:
            self.skipped += 1
            log.info(
                "the evaluation of step %d is skipped: that of step %d still runs; evaluate_every is too small for this "
                "machine",
                self._waiting[0],
                self._running[0],
            )
        self._waiting = (step, parameters)
        self._remove_unneeded()

    def done(self) -> None:
        """Note that the evaluation that ran has ended."""
        self._running, self._waiting = self._waiting, None
        self._remove_unneeded()
        if self._running is not None:
            self._start(*self._running)

    def remove(self, blob: Blob) -> None:
        """Delete a blob now, or as soon as no evaluation needs it."""
        self._unneeded.add(blob)
        self._remove_unneeded()

    def _remove_unneeded(self) -> None:
        entries = (self._running, self._waiting)
        needed = {blob for entry in entries if entry is not None for blob in entry[1]}
        for blob in self._unneeded - needed:
            self._remove(blob)
        self._unneeded &= needed
