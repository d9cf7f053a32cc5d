"""A distributed run in one process: W workers and the Shepherd's arithmetic, in a fixed order, with no wire and no clock.

It computes with what a real run computes with (`Replica`, the merges, `OuterSteps`), so what it shows of a training algorithm,
its losses and what hostile or slow workers do to it, holds for the real run.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, takewhile
from typing import Any, Protocol

from pcp.distributed.algorithms import Algorithm, segment_steps, share_of_steps
from pcp.distributed.merging import Merge, Verdict, merge
from pcp.distributed.messages import Outcome
from pcp.distributed.round_arithmetic.outer import OuterSteps, Stepped
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.distributed.round_arithmetic.replica import Replica, Vector
from pcp.planning import Plan, plan
from pcp.training.data.run_data import BatchSource
from pcp.training.planned_step import planned_step
from pcp.training.recipes.recipe import Recipe

Tamper = Callable[[int, int, Mapping[int, Vector]], Mapping[int, Vector]]
"""What hostile workers do: from round, fragment and what each worker pushed, decoded, to what the Shepherd gets of each."""


class Attendance(Protocol):
    """Who is there, how fast, and who comes late."""

    def steps(self, round: int, worker: int) -> int:
        """Inner steps of a worker in a round; 0 where it is away."""

    def is_late(self, round: int, worker: int) -> bool:
        """Whether its push comes after the round closed."""


@dataclass(frozen=True, slots=True)
class Punctual:
    """Every worker is there, equally fast.

    Arguments:
        segment: inner steps of a round.
    """

    segment: int

    def steps(self, round: int, worker: int) -> int:  # noqa: ARG002
        """All of them."""
        return self.segment

    def is_late(self, round: int, worker: int) -> bool:  # noqa: ARG002
        """Never."""
        return False


@dataclass(frozen=True, slots=True)
class Report:
    """One round.

    Arguments:
        round: its number.
        fragment: what it merged.
        workers: whose pushes were merged, in the order of reduction.
        verdicts: what the merge made of each.
        losses: of every inner step, on the device, in the order of workers.
    """

    round: int
    fragment: int
    workers: tuple[int, ...]
    verdicts: tuple[Verdict, ...]
    losses: tuple[Any, ...]


@dataclass(slots=True)
class _Cell:
    """A batch and the fragments for which it is not merged yet."""

    batch: int
    fragments: set[int]


@dataclass(slots=True)
class _Worker:
    replica: Replica
    versions: list[int]
    fresh: bool = True
    inner_steps: int = 0
    carried: list[_Cell] = field(default_factory=list)  # trained, not merged


@dataclass(frozen=True, slots=True)
class _Behind:
    steps: int
    tokens: int


class Lockstep:
    """W workers and a Shepherd in one process.

    Arguments:
        algorithm: how it is merged.
        workers: W.
        device: where everything is computed.
        tamper: what hostile workers do.
        attendance: who is there; all, always, if None.
        batches: the training batches; the recipe's if None.
        tolerance: of the planned training step; see `TrainingConfig`.
    """

    def __init__(
        self,
        recipe: Recipe,
        algorithm: Algorithm,
        workers: int,
        *,
        device: str = "cpu:0",
        tamper: Tamper | None = None,
        attendance: Attendance | None = None,
        batches: BatchSource | None = None,
        tolerance: float = 0.0,
    ) -> None:
        self._recipe = recipe
        self._algorithm = algorithm
        self._tamper = tamper
        self._batches = recipe.batches if batches is None else batches
        self._attendance = Punctual(segment_steps(algorithm)) if attendance is None else attendance
        programs = worker_programs(inner_step(recipe, algorithm), recipe.parameters, algorithm)
        plans = {name: plan(program, device=device) for name, program in programs.items() if name != "step"}
        plans["step"] = planned_step(programs["step"], device, tolerance, recipe.config.plan_seconds)
        self._outer = OuterSteps(recipe, algorithm, device)
        fragments = range(algorithm.fragments)
        self._merges: list[Merge] = [
            merge(algorithm.merge, self._outer.segments(fragment), device) for fragment in fragments
        ]
        self._merge_states: list[Any] = [None] * algorithm.fragments
        self._steps = [Stepped(*self._outer.first(fragment), None) for fragment in fragments]
        self._versions = [0] * algorithm.fragments
        self._workers = [_Worker(Replica(plans), [0] * algorithm.fragments) for _ in range(workers)]
        self._evaluate: Plan = plan(recipe.evaluation, device=device)
        self._pending: deque[_Cell] = deque()
        self._issued = 0
        self._round = 0

    @property
    def rounds(self) -> int:
        """Rounds done."""
        return self._round

    @property
    def shadows(self) -> tuple[Vector, ...]:
        """What the workers hold of each fragment, as far as they have adopted it."""
        return tuple(each.shadow for each in self._steps)

    def parameters(self) -> Any:
        """The global parameters, nested, on the device."""
        return self._outer.parameters(self.shadows)

    def validation_loss(self) -> float:
        """The loss of the global parameters over the whole validation part, in nats."""
        parameters = self.parameters()
        return self._recipe.validation_loss(lambda *batch: self._evaluate.run(parameters, *batch))

    def round(self) -> Report:
        """Train a segment on every worker and merge its fragment."""
        steps = [self._attendance.steps(self._round, worker) for worker in range(len(self._workers))]
        return self._merged(self._trained(steps))

    def flush(self) -> None:
        """Merge what is trained and not merged yet: afterwards every batch is in every fragment. Nobody is late any more."""
        segment = segment_steps(self._algorithm)
        self._attendance = Punctual(segment)
        while self._pending or any(worker.carried for worker in self._workers):
            self._merged(
                self._trained([segment if self._pending else 0 for _ in self._workers], fresh_data=False)
            )

    def _trained(self, steps: Sequence[int], fresh_data: bool = True) -> tuple[Any, ...]:
        losses: list[Any] = []
        for number, count in enumerate(steps):
            worker = self._workers[number]
            cells = self._lease(count, fresh_data)
            if not cells and not worker.carried:
                continue
            losses += self._train(worker, cells)
        return tuple(losses)

    def _train(self, worker: _Worker, cells: list[_Cell]) -> list[Any]:
        replica, losses = worker.replica, []
        last = self._last_round() if cells else None
        self._prepare(worker, last, cells[0].fragments if cells else ())
        for done, cell in enumerate(cells):
            if done == self._algorithm.delay and last is not None:
                self._adopt(worker, [last])
            losses.append(replica.step(self._batches.batch(cell.batch))["loss"])
        if last is not None:  # a segment shorter than the delay
            self._adopt(worker, [last])
        self._finish(worker, cells)
        return losses

    def _last_round(self) -> int | None:
        """The fragment that is adopted within a segment, if one is: that of the round before."""
        return (self._round - 1) % self._algorithm.fragments if self._algorithm.delay else None

    def _prepare(self, worker: _Worker, last: int | None, fragments: Collection[int]) -> None:
        """Bring a worker to where its segment begins, with all but what it adopts within it."""
        if worker.fresh:
            worker.replica.fresh(self.shadows, worker.inner_steps)
            worker.versions, worker.fresh = list(self._versions), False
        self._adopt(worker, [fragment for fragment in range(len(self._versions)) if fragment != last])
        worker.replica.begin(worker.inner_steps, sorted(fragments))

    def _finish(self, worker: _Worker, cells: list[_Cell]) -> None:
        worker.replica.finish()
        worker.inner_steps += len(cells)
        worker.carried += cells

    def _adopt(self, worker: _Worker, fragments: Sequence[int]) -> None:
        for fragment in fragments:
            behind = self._versions[fragment] - worker.versions[fragment]
            if not behind:
                continue
            stepped = self._steps[fragment]
            if behind == 1 and stepped.change is not None:
                worker.replica.adopt(fragment, worker.replica.received(fragment, stepped.change))
            else:
                worker.replica.adopt(fragment, stepped.shadow)
            worker.versions[fragment] = self._versions[fragment]

    def _lease(self, count: int, fresh_data: bool) -> list[_Cell]:
        """Batches that all move the same fragments: those to be trained again first."""
        if self._pending:
            mask = self._pending[0].fragments
            cells = list(islice(takewhile(lambda cell: cell.fragments == mask, self._pending), count))
            for _ in cells:
                self._pending.popleft()
            return cells
        if not fresh_data:
            return []
        first, self._issued = self._issued, self._issued + count
        return [_Cell(batch, set(range(self._algorithm.fragments))) for batch in range(first, self._issued)]

    def _merged(self, losses: tuple[Any, ...]) -> Report:
        fragment = self._round % self._algorithm.fragments
        pushed: dict[int, Vector] = {}
        behind: dict[int, _Behind] = {}
        tokens = self._batches.tokens_per_batch
        for number, worker in enumerate(self._workers):
            steps = sum(fragment in cell.fragments for cell in worker.carried)
            if steps:
                payload = worker.replica.push(fragment)
                outcome = self._outcome(number)
                worker.replica.settle(fragment, outcome)
                if outcome is Outcome.ADMITTED:
                    pushed[number] = self._outer.decoded(fragment, payload)
                    behind[number] = _Behind(steps, steps * tokens)
                self._account(worker, fragment, outcome)
        verdicts = self._step(fragment, pushed, behind) if pushed else ()
        report = Report(self._round, fragment, tuple(pushed), verdicts, losses)
        self._round += 1
        return report

    def _outcome(self, worker: int) -> Outcome:
        if not self._attendance.is_late(self._round, worker):
            return Outcome.ADMITTED
        return Outcome.CARRIED if self._algorithm.late == "carry" else Outcome.REFUSED

    def _account(self, worker: _Worker, fragment: int, outcome: Outcome) -> None:
        if outcome is Outcome.ADMITTED:
            for cell in worker.carried:
                cell.fragments.discard(fragment)
            worker.carried = [cell for cell in worker.carried if cell.fragments]
        elif outcome is Outcome.REFUSED:
            self._pending.extend(worker.carried)
            worker.carried, worker.fresh = [], True

    def _step(
        self, fragment: int, pushed: dict[int, Vector], behind: dict[int, _Behind]
    ) -> tuple[Verdict, ...]:
        received = pushed if self._tamper is None else self._tamper(self._round, fragment, pushed)
        order = sorted(received)
        weights = self._algorithm.weights([behind[worker] for worker in order])
        merged = self._merges[fragment](
            [partial(received.__getitem__, worker) for worker in order], weights, self._merge_states[fragment]
        )
        self._merge_states[fragment] = merged.state
        last = self._steps[fragment]
        share = share_of_steps(self._algorithm, (behind[worker].steps for worker in order), weights)
        self._steps[fragment] = self._outer.take(
            fragment, last.shadow, last.state, merged.mean, self._round, share
        )
        self._versions[fragment] += 1
        return merged.verdicts
