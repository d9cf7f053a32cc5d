"""Streaming DiLoCo in lockstep beside the paper's algorithm, written down for NumPy arrays."""

from typing import Any

import numpy as np
import pytest

from pcp.distributed.algorithms import StreamingDiLoCo
from pcp.distributed.round_arithmetic.fragments import partition
from pcp.distributed.round_arithmetic.lockstep import Lockstep
from pcp.ir.tree import map_tree
from pcp.planning import plan
from pcp.training.recipes.recipe import Recipe


class Written:
    """Algorithm 2 of Streaming DiLoCo (2501.18512) without quantisation, with one momentum for each fragment.

    Where less than H steps are behind a fragment, at the beginning and in the last rounds, momentum takes that part of its way.
    """

    def __init__(self, recipe: Recipe, algorithm: StreamingDiLoCo, workers: int) -> None:
        self.recipe, self.algorithm, self.workers = recipe, algorithm, workers
        self.training, self.parts = plan(recipe.step), partition(recipe.parameters, algorithm.fragments)
        self.synced = [vector.astype(np.float64) for vector in self.parts.vectors(recipe.parameters)]
        self.anchors = [list(self.synced) for _ in range(workers)]
        self.velocity = [np.zeros_like(vector) for vector in self.synced]
        self.behind = [0] * algorithm.fragments
        self.states: list[Any] = [recipe.step.initial_state(recipe.parameters) for _ in range(workers)]

    def theta(self, m: int) -> list[Any]:
        return list(self.parts.vectors(map_tree(np.asarray, self.states[m]["params"])))

    def outer(self, f: int) -> None:
        a = self.algorithm
        change = np.mean([self.anchors[m][f] - self.theta(m)[f] for m in range(self.workers)], axis=0)
        share, self.behind[f] = self.behind[f] / a.inner_steps, 0
        self.velocity[f] = a.outer_momentum**share * self.velocity[f] + change
        step = change + share * a.outer_momentum * self.velocity[f]
        self.synced[f] = self.synced[f] - a.outer_learning_rate * step

    def adopt(self, f: int) -> None:
        alpha = self.algorithm.mixing
        for m in range(self.workers):
            theta = self.theta(m)
            theta[f] = (alpha * theta[f] + (1 - alpha) * self.synced[f]).astype(np.float32)
            self.states[m] = self.states[m] | {"params": self.parts.parameters(theta)}
            self.anchors[m][f] = self.synced[f]

    def run(self, rounds: int) -> np.ndarray[Any, Any]:
        p, segment = self.algorithm.fragments, self.algorithm.inner_steps // self.algorithm.fragments
        for r in range(rounds):
            for t in range(segment):
                if r and t == self.algorithm.delay:
                    self.adopt((r - 1) % p)
                for m in range(self.workers):
                    batch = self.recipe.batches.batch((r * self.workers + m) * segment + t)
                    self.states[m], _ = self.training.run(self.states[m], batch)
                self.behind = [count + 1 for count in self.behind]
            self.outer(r % p)
        for r in range(rounds, rounds + p - 1):  # what is trained of the other fragments
            self.adopt((r - 1) % p)
            self.outer(r % p)
        return np.concatenate(self.synced)


@pytest.mark.parametrize(("fragments", "delay", "mixing"), [(2, 2, 0.25), (3, 1, 0.0)])
def test_lockstep_is_the_algorithm_as_written(
    recipe: Recipe, fragments: int, delay: int, mixing: float
) -> None:
    algorithm = StreamingDiLoCo(3 * fragments, fragments, delay, mixing, 0.6, 0.8, upload="f32")
    run = Lockstep(recipe, algorithm, 2)
    for _ in range(5):
        run.round()
    run.flush()
    found = np.concatenate([np.asarray(vector) for vector in run.shadows])
    expected = Written(recipe, algorithm, 2).run(5)
    before = np.concatenate(partition(recipe.parameters, fragments).vectors(recipe.parameters))
    moved = np.abs(expected - before).max()
    assert moved > 3e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-4 * moved)
