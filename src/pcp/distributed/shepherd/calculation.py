"""What a Shepherd computes beside its event loop: the run waits for one lane, and only people wait for the other."""

import functools
import logging
from collections.abc import Callable
from typing import Any, Protocol

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
from pcp.distributed.messages import Blob
from pcp.distributed.runtime import Runtime
from pcp.distributed.shepherd.disk import Disk, lacks_room
from pcp.distributed.shepherd.evaluation import EvaluationQueue
from pcp.distributed.shepherd.reports import Record, steps_behind
from pcp.distributed.wire import BlobMissing
from pcp.errors import PCPError

log = logging.getLogger("pcp.distributed.shepherd")

RESULTS = 4
"""Blobs of about the size of the parameters that an outer step leads to: new ones, a change, two moments."""

GRACE_SECONDS = 5.0
"""How long a computation that is under way may take to end when the Shepherd stops."""


class Merges(Protocol):
    """The arithmetic of rounds: a `Merger`."""

    def compile(self) -> None:
        """Make ready to merge."""

    def begin(self) -> tuple[Blob, ...]:
        """Store the first version of every fragment."""

    def check(self, fragment: int, blob: Blob) -> None:
        """Make sure that a blob is a push of a fragment."""

    def merge(self, step: RunOuterStep) -> tuple[Blob, Blob | None, Blob | None]:
        """Merge a round; the fragment's new version, the change that leads to it, and what the next begins with; stored."""

    def load(self, parameters: tuple[Blob, ...], outer: tuple[Blob | None, ...] = ()) -> dict[str, Any]:
        """What a checkpoint holds."""


class ChecksStates(Protocol):
    """The arithmetic of audits: a `StateChecks`."""

    def check(self, blob: Blob) -> None:
        """Make sure that a blob is an inner state."""

    def distance(self, effect: CompareStates) -> float:
        """How far the results of an audit lie apart."""


class Evaluates(Protocol):
    """What people wait for: an `Evaluator`."""

    def compile(self) -> None:
        """Make ready to evaluate."""

    def loss(self, parameters: tuple[Blob, ...]) -> float:
        """The validation loss of parameters."""


class Calculation:
    """Checks of pushes, outer steps and checkpoints in one lane, validation losses in another.

    Arguments:
        merger: the arithmetic of rounds.
        states: the arithmetic of audits.
        evaluator: computes validation losses.
        remove: deletes a blob.
        save: keeps a checkpoint: the step, the state, and facts about it.
        disk: told where it lacks room.
        tokens_per_step: of all workers together.
        evaluate_every: steps between two evaluations; 0 for one at the end only.
    """

    def __init__(
        self,
        merger: Merges,
        states: ChecksStates,
        evaluator: Evaluates,
        remove: Callable[[Blob], None],
        save: Callable[[int, Any, dict[str, Any]], object],
        disk: Disk,
        tokens_per_step: int,
        evaluate_every: int,
    ) -> None:
        self._merger, self._states, self._evaluator = merger, states, evaluator
        self._save, self._disk = save, disk
        self._tokens_per_step, self._evaluate_every = tokens_per_step, evaluate_every
        self._evaluations = EvaluationQueue(self._start_evaluation, remove)
        self._compiled = False

    def start(
        self,
        runtime: Runtime,
        post: Callable[[Event], None],
        evaluated: Callable[[Record], None],
        compiled: Callable[[], None],
    ) -> None:
        """Begin to compile, while the workers do the same with their programs.

        Arguments:
            runtime: what the process lives on.
            post: feeds an event.
            evaluated: receives the records of validation losses.
            compiled: told that evaluations are possible.
        """
        self._now, self._report, self._on_compiled = runtime.now, evaluated, compiled
        self._compute = runtime.lane("compute", post)
        self._aside = runtime.lane("evaluate", self._evaluated)
        self._compute.submit(functools.partial(self._compile, runtime))

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
        self._compute.submit(lambda: self._checked(self._merger.check, fragment, blob))

    def check_state(self, blob: Blob) -> None:
        """Look at an inner state; leads to BlobStored or BlobRefused."""
        self._compute.submit(lambda: self._checked(self._states.check, blob))

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
        every, step = self._evaluate_every, steps_behind(run.config, run.tokens)
        before = steps_behind(run.config, run.tokens_before)
        if run.complete or (every > 0 and step // every > before // every):
            self._evaluations.add(step, tuple(each.parameters for each in run.fragments))

    async def _compile(self, runtime: Runtime) -> None:
        self._merger.compile()
        self._evaluator.compile()
        runtime.soon(self._has_compiled)

    def _has_compiled(self) -> None:
        self._compiled = True
        self._on_compiled()

    async def _checked(self, check: Callable[..., None], *what: Any) -> Event | None:
        """Make sure that a blob, the last of what is given, is what it should be."""
        try:
            check(*what)
        except BlobMissing:
            return None  # it was deleted meanwhile, so nobody waits for it, and its sender is not to blame
        except PCPError as error:
            return BlobRefused(self._now(), what[-1], str(error))
        return BlobStored(self._now(), what[-1])

    async def _compared(self, effect: CompareStates) -> Event:
        try:
            distance = self._states.distance(effect)
        except PCPError as error:
            # Both were looked at when they came, so this is the disk; nobody is to blame for that.
            log.warning("audit %d ends without a comparison: %s", effect.audit, error)
            distance = 0.0
        return StatesCompared(self._now(), effect.audit, distance)

    async def _stepped(self, effect: RunOuterStep) -> Event:
        began = self._now()
        try:
            parameters, change, outer = self._merger.merge(effect)
        except (PCPError, OSError) as error:
            if lacked := lacks_room(error):
                self._disk.lacks(RESULTS * effect.parameters.size, error)
            return OuterStepFailed(self._now(), effect.round, str(error), lacked)
        log.info("the outer step of round %d took %.1f ms", effect.round, 1e3 * (self._now() - began))
        return OuterStepDone(self._now(), effect.round, parameters, change, outer)

    async def _written(self, effect: WriteCheckpoint) -> Event:
        try:
            state = self._merger.load(effect.parameters, effect.outer)
            metadata: dict[str, Any] = {"tokens": effect.tokens, "round": effect.version}
            self._save(effect.tokens // self._tokens_per_step, state, metadata)
        except (PCPError, OSError) as error:
            return CheckpointFailed(self._now(), effect.version, str(error))
        return CheckpointDone(self._now(), effect.version)

    def _start_evaluation(self, step: int, parameters: tuple[Blob, ...]) -> None:
        self._aside.submit(functools.partial(self._evaluate, step, parameters))

    async def _evaluate(self, step: int, parameters: tuple[Blob, ...]) -> Record:
        return {"step": step, "validation_loss": self._evaluator.loss(parameters)}

    def _evaluated(self, record: Record) -> None:
        self._evaluations.done()
        self._report(record)
