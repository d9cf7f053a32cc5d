"""What a Shepherd computes beside its event loop: the run waits for one lane, and only people wait for the other."""

import functools
import logging
import time
from collections.abc import Callable
from typing import Any

from pcp.distributed.algorithms import Algorithm
from pcp.distributed.coordinator.effects import CompareStates, RunOuterStep, WriteCheckpoint
from pcp.distributed.coordinator.events import (
    BlobRefused,
    BlobStored,
    CheckpointDone,
    CheckpointFailed,
    Event,
    OuterStepDone,
    OuterStepFailed,
    StatesCompared,
)
from pcp.distributed.coordinator.run import Run
from pcp.distributed.lane import Lane
from pcp.distributed.messages import Blob
from pcp.distributed.shepherd.disk import Disk, lacks_room
from pcp.distributed.shepherd.evaluation import EvaluationQueue, Evaluator
from pcp.distributed.shepherd.merger import Merger
from pcp.distributed.shepherd.reports import Record, steps_behind
from pcp.distributed.shepherd.state_checks import StateChecks
from pcp.distributed.wire.blobs import BlobStore
from pcp.errors import PCPError
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder, save_state

log = logging.getLogger("pcp.distributed.shepherd")

RESULTS = 4
"""Blobs of about the size of the parameters that an outer step leads to: new ones, a change, two moments."""

GRACE_SECONDS = 5.0
"""How long a computation that is under way may take to end when the Shepherd stops."""


class Calculation:
    """Checks of pushes, outer steps and checkpoints in one lane, validation losses in another.

    Arguments:
        folder: of the run; checkpoints go there.
        recipe: what is trained.
        algorithm: how it is merged.
        store: where blobs are.
        merger: the arithmetic.
        disk: told where it lacks room.
    """

    def __init__(
        self,
        folder: RunFolder,
        recipe: Recipe,
        algorithm: Algorithm,
        store: BlobStore,
        merger: Merger,
        disk: Disk,
    ) -> None:
        self._folder = folder
        self._disk = disk
        self._recipe = recipe
        self._algorithm = algorithm
        self._merger = merger
        self._states = StateChecks(recipe, algorithm, store, merger)
        self._evaluator = Evaluator(recipe, store, merger.partition)
        self._evaluations = EvaluationQueue(self._start_evaluation, lambda blob: store.remove(blob.digest))
        # Traced here, because MLIR is not to be used from two threads at once, and the lanes begin to compile.
        self._program_digest = recipe.step.digest
        self._compiled = False

    def start(
        self,
        post: Callable[[Event], None],
        call: Callable[..., None],
        fail: Callable[[BaseException], None],
        evaluated: Callable[[Record], None],
        compiled: Callable[[], None],
    ) -> None:
        """Begin to compile, while the workers do the same with their programs.

        Arguments:
            post: feeds an event, from any thread.
            call: calls a function in the loop's thread, from any thread.
            fail: receives an exception that nobody foresaw, from any thread.
            evaluated: receives the records of validation losses, in the loop's thread.
            compiled: told, in the loop's thread, that evaluations are possible.
        """
        self._call, self._report, self._on_compiled = call, evaluated, compiled
        self._compute: Lane[Event] = Lane("compute", post, fail)
        self._aside: Lane[Record] = Lane("evaluate", functools.partial(call, self._evaluated), fail)
        self._compute.submit(self._compile)

    @property
    def largest_state(self) -> int:
        """Bytes of the largest inner state that a worker may be asked for."""
        return self._states.largest_bytes

    @property
    def idle(self) -> bool:
        """Whether everything that was to be evaluated is."""
        return self._compiled and self._evaluations.idle

    def close(self) -> None:
        """Give what is under way some time to end."""
        for lane in (self._compute, self._aside):
            lane.close(GRACE_SECONDS)

    def check(self, fragment: int, blob: Blob) -> None:
        """Look at a push; leads to BlobStored or BlobRefused."""
        self._compute.submit(lambda: self._checked(fragment, blob))

    def check_state(self, blob: Blob) -> None:
        """Look at an inner state; leads to BlobStored or BlobRefused."""
        self._compute.submit(lambda: self._looked_at(blob))

    def perform(self, effect: RunOuterStep | CompareStates | WriteCheckpoint) -> None:
        """Begin to compute what the coordinator asks for; each effect says which event it leads to."""
        match effect:
            case RunOuterStep():
                self._compute.submit(lambda: self._stepped(effect))
            case CompareStates():
                self._compute.submit(lambda: self._compared(effect))
            case WriteCheckpoint():
                self._compute.submit(lambda: self._written(effect))

    def remove(self, blob: Blob) -> None:
        """Delete a blob, as soon as no evaluation needs it."""
        self._evaluations.remove(blob)

    def evaluate_if_due(self, run: Run) -> None:
        """Compute the validation loss of the run's parameters, if the settings ask for it after its last round."""
        every, step = self._recipe.config.evaluate_every, steps_behind(run.config, run.tokens)
        before = steps_behind(run.config, run.tokens_before)
        if run.complete or (every > 0 and step // every > before // every):
            self._evaluations.add(step, tuple(each.parameters for each in run.fragments))

    def _now(self) -> float:
        return time.monotonic()

    def _compile(self) -> None:
        self._merger.compile()
        self._evaluator.compile()
        self._call(self._has_compiled)

    def _has_compiled(self) -> None:
        self._compiled = True
        self._on_compiled()

    def _checked(self, fragment: int, blob: Blob) -> Event:
        try:
            self._merger.check(fragment, blob)
        except PCPError as error:
            return BlobRefused(self._now(), blob, str(error))
        return BlobStored(self._now(), blob)

    def _looked_at(self, blob: Blob) -> Event:
        try:
            self._states.check(blob)
        except PCPError as error:
            return BlobRefused(self._now(), blob, str(error))
        return BlobStored(self._now(), blob)

    def _compared(self, effect: CompareStates) -> Event:
        try:
            distance = self._states.distance(effect)
        except PCPError as error:
            # Both were looked at when they came, so this is the disk; nobody is to blame for that.
            log.warning("audit %d ends without a comparison: %s", effect.audit, error)
            distance = 0.0
        return StatesCompared(self._now(), effect.audit, distance)

    def _stepped(self, effect: RunOuterStep) -> Event:
        began = self._now()
        try:
            parameters, change, outer = self._merger.merge(effect)
        except (PCPError, OSError) as error:
            if lacked := lacks_room(error):
                self._disk.lacks(RESULTS * effect.parameters.size, error)
            return OuterStepFailed(self._now(), effect.round, str(error), lacked)
        log.info("the outer step of round %d took %.1f ms", effect.round, 1e3 * (self._now() - began))
        return OuterStepDone(self._now(), effect.round, parameters, change, outer)

    def _written(self, effect: WriteCheckpoint) -> Event:
        try:
            state = self._merger.load(effect.parameters, effect.outer)
            per_step = self._recipe.config.workers * self._recipe.tokens_per_step
            metadata: dict[str, Any] = {"tokens": effect.tokens, "round": effect.version}
            save_state(self._folder, effect.tokens // per_step, state, metadata, self._program_digest)
        except (PCPError, OSError) as error:
            return CheckpointFailed(self._now(), effect.version, str(error))
        return CheckpointDone(self._now(), effect.version)

    def _start_evaluation(self, step: int, parameters: tuple[Blob, ...]) -> None:
        self._aside.submit(lambda: {"step": step, "validation_loss": self._evaluator.loss(parameters)})

    def _evaluated(self, record: Record) -> None:
        self._evaluations.done()
        self._report(record)
