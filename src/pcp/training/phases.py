"""A run whose batch changes in its course: one recipe for each size, and the batches that each step takes."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.training.data.run_data import DataKind
from pcp.training.recipes.recipe import Recipe
from pcp.training.recipes.schedules import batch_at


@dataclass(frozen=True)
class Phase:
    """Steps of one size of batch.

    Arguments:
        first, end: its steps, from 0; `end` is the first that is not.
        recipe: what these steps train with.
        index: of the batch that its first step takes, among those of this size.
        tokens: that the steps before it trained on.
    """

    first: int
    end: int
    recipe: Recipe
    index: int
    tokens: int

    def batch(self, step: int) -> tuple[np.ndarray[Any, Any], ...]:
        """The batch of a step."""
        return self.recipe.batches.batch(self.index + step - self.first)

    def tokens_behind(self, step: int) -> int:
        """Tokens that the first so many steps of the run trained on; a sample counts as one."""
        return self.tokens + (step - self.first) * self.recipe.tokens_per_step


def phases_of(recipe: Recipe) -> Iterator[Phase]:
    """The phases of a run, at least one.

    Windows of a text are drawn anew for every step. Samples and windows of shards go on where the phase before ended: up to a
    batch of the new size is left out there.
    """
    config = recipe.config
    firsts = [first for first, _ in config.batches if first < config.steps] or [0]
    index = tokens = consumed = 0
    for first, end in zip(firsts, [*firsts[1:], config.steps], strict=True):
        size = batch_at(config, first)
        part = recipe if size == config.batch else _resized(recipe, size)
        index = first if recipe.data.kind is DataKind.tokens else -(-consumed // size)
        phase = Phase(first, end, part, index, tokens)
        yield phase
        tokens, consumed = phase.tokens_behind(end), (index + end - first) * size


def _resized(recipe: Recipe, size: int) -> Recipe:
    """The same recipe with another batch: of a loss that has one size of its own, in more or fewer parts."""
    config = recipe.config
    parts = max(1, size * config.accumulate // config.batch) if recipe.fixed_batch else config.accumulate
    sized = dataclasses.replace(config, batch=size, accumulate=parts, batches=())
    return dataclasses.replace(recipe, config=sized)
