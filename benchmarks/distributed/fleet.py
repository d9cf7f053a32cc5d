"""Lockstep with all workers' inner steps as one program, for studies on devices where starting a small program takes longest.

The step is the workers' own, batched over them (`pcp.vmap`) and repeated over a segment inside one call. Pushes, merges,
adoptions and outer steps stay those of `Lockstep`.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pcp
from pcp.distributed.algorithms import Algorithm
from pcp.distributed.round_arithmetic.lockstep import Lockstep
from pcp.distributed.round_arithmetic.programs import inner_step
from pcp.training.data.run_data import BatchSource
from pcp.training.recipes.recipe import Recipe


class StackedBatches:
    """Batches that stay on the device, many in one array, since every algorithm is given the same ones.

    Arguments:
        batches: the sequence of batches.
        device: as jax calls it.
    """

    def __init__(self, batches: BatchSource, device: Any) -> None:
        self.tokens_per_batch, self.shapes = batches.tokens_per_batch, batches.shapes
        self._batches, self.device = batches, device
        self._kept: dict[int, Any] = {}
        self._stacked = functools.cache(self._stack)

    def batch(self, index: int) -> Any:
        """The arrays of one batch, on the host."""
        if index not in self._kept:
            self._kept[index] = self._batches.batch(index)
        return self._kept[index]

    def rows(self, rows: Sequence[Sequence[int]]) -> Any:
        """Batches stacked twice: an axis for the rows, and one for the batches of a row."""
        return self._stacked(tuple(tuple(row) for row in rows))

    def _stack(self, rows: tuple[tuple[int, ...], ...]) -> Any:
        parts = [jax.tree.map(lambda *each: np.stack(each), *map(self.batch, row)) for row in rows]
        return jax.device_put(jax.tree.map(lambda *each: np.stack(each), *parts), self.device)


class Fleet(Lockstep):
    """Lockstep of workers that are all there, equally fast.

    Arguments:
        recipe, algorithm, workers, arguments: as of `Lockstep`.
        batches: stacked.
    """

    def __init__(
        self, recipe: Recipe, algorithm: Algorithm, workers: int, batches: StackedBatches, **arguments: Any
    ) -> None:
        super().__init__(recipe, algorithm, workers, batches=batches, **arguments)
        self._rows = batches
        together = pcp.to_jax(pcp.vmap(inner_step(recipe, algorithm), size=workers))

        @functools.partial(jax.jit, donate_argnums=0)
        def advanced(states: tuple[Any, ...], batches: Any) -> tuple[Any, Any]:
            def body(state: Any, batch: Any) -> tuple[Any, Any]:
                after, metrics = together(state, batch)
                return after, metrics["loss"]

            state, losses = jax.lax.scan(body, jax.tree.map(lambda *each: jnp.stack(each), *states), batches)
            parts = [jax.tree.map(lambda leaf, at=at: leaf[at], state) for at in range(workers)]
            return tuple(parts), losses

        self._advanced = advanced

    def _trained(self, steps: Sequence[int], fresh_data: bool = True) -> tuple[Any, ...]:
        if self._pending or not fresh_data:
            return super()._trained(steps, fresh_data)
        leases = [self._lease(count, fresh_data) for count in steps]
        last = self._last_round()
        delay = self._algorithm.delay if last is not None else 0
        for worker, lease in zip(self._workers, leases, strict=True):
            self._prepare(worker, last, lease[0].fragments)
        losses: list[Any] = []
        for first, end in _parts(len(leases[0]), delay):
            if first and last is not None:
                for worker in self._workers:
                    self._adopt(worker, [last])
            rows = self._rows.rows([[lease[at].batch for lease in leases] for at in range(first, end)])
            states, made = self._advanced(tuple(worker.replica.state for worker in self._workers), rows)
            for worker, state in zip(self._workers, states, strict=True):
                worker.replica.resume(state)
            losses.append(made)
        for worker, lease in zip(self._workers, leases, strict=True):
            self._finish(worker, lease)
        return tuple(losses)


def _parts(count: int, delay: int) -> Iterator[tuple[int, int]]:
    """The steps of a segment before and after what is adopted in it."""
    if delay:
        yield 0, delay
    yield delay, count


def trained_alone(
    recipe: Recipe, workers: int, segment: int, batches: StackedBatches
) -> Iterator[tuple[Any, Sequence[Any]]]:
    """Parameters and losses of one process with the batches of all workers as one: at the beginning and after each segment.

    Arguments:
        recipe: its batch is that of all workers together.
        workers: W.
        segment: steps in one call.
        batches: of one worker.
    """
    step = pcp.to_jax(recipe.step)

    @jax.jit  # the state is not donated: its parameters are evaluated
    def advanced(state: Any, batches: Any) -> tuple[Any, Any]:
        def body(state: Any, batch: Any) -> tuple[Any, Any]:
            whole = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tuple(batch))
            after, metrics = step(state, whole)
            return after, metrics["loss"]

        return jax.lax.scan(body, state, batches)

    state = jax.device_put(recipe.step.initial_state(recipe.parameters), batches.device)
    yield state["params"], ()
    for first in range(0, recipe.config.steps, segment):
        rows = batches.rows([range(at * workers, (at + 1) * workers) for at in range(first, first + segment)])
        state, losses = advanced(state, rows)
        yield state["params"], [losses]
