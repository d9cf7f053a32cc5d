"""Outer steps on stored pseudo-gradients: order, weights, and what is refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.distributed.algorithms import Contribution, merge_order
from pcp.distributed.array_blobs import ArraysRefused, load_arrays, store_arrays
from pcp.distributed.merger import Merger, RunDiverged, layout
from pcp.distributed.messages import Blob, DataRange
from pcp.distributed.wire import BlobMissing, BlobStore
from pcp.ir.tree import map_tree
from pcp.training.recipe import Recipe
from tests.distributed.tiny_run import assert_equal_arrays, tiny_recipe


@pytest.fixture
def merger(recipe: Recipe, store: BlobStore) -> Merger:
    made = Merger(recipe, store)
    made.compile()
    return made


def delta_like(parameters: Any, seed: int, scale: float = 1e-2) -> Any:
    generator = np.random.default_rng(seed)
    return map_tree(
        lambda leaf: (generator.standard_normal(leaf.shape) * scale).astype(leaf.dtype), parameters
    )


def contribution(store: BlobStore, worker: int, delta: Any) -> Contribution:
    return Contribution(
        worker, 100 + worker, DataRange(3 * worker, 3), store_arrays(store, delta), 3, 48, 2.0
    )


def test_a_merge_is_the_weighted_nesterov_step(merger: Merger, recipe: Recipe, store: BlobStore) -> None:
    parameters, momentum = merger.begin()
    deltas = [delta_like(recipe.parameters, seed) for seed in range(2)]
    contributions = [contribution(store, worker, delta) for worker, delta in enumerate(deltas)]
    weights = (0.25, 0.75)
    expected, velocity = recipe.parameters, map_tree(np.zeros_like, recipe.parameters)
    for round in range(2):
        parameters, momentum = merger.merge(contributions, weights, parameters, momentum, round)
        mean = map_tree(lambda a, b: a * np.float32(0.25) + b * np.float32(0.75), *deltas)
        velocity = map_tree(lambda v, d: np.float32(0.9) * v + d, velocity, mean)
        expected = map_tree(
            lambda p, d, v: p - np.float32(0.7) * (d + np.float32(0.9) * v), expected, mean, velocity
        )
    state = merger.load(parameters, momentum)
    assert_equal_arrays(state["params"], expected, 1e-5, 1e-7)
    assert_equal_arrays(state["outer"]["velocity"], velocity, 1e-5, 1e-7)


def test_the_order_in_which_updates_came_does_not_matter(
    merger: Merger, recipe: Recipe, store: BlobStore
) -> None:
    parameters, momentum = merger.begin()
    came = [contribution(store, worker, delta_like(recipe.parameters, worker)) for worker in (2, 0, 1)]
    weights = (1 / 3,) * 3
    merged = [
        merger.merge(merge_order(order), weights, parameters, momentum, 0)
        for order in (came, came[::-1], [came[1], came[0], came[2]])
    ]
    assert merged[0] == merged[1] == merged[2]
    # Without that order the last bits would depend on who was first, or this test could not fail.
    assert any(
        merger.merge(order, weights, parameters, momentum, 0) != merged[0] for order in (came, came[::-1])
    )


def test_a_pseudo_gradient_of_the_model_passes_the_check(
    merger: Merger, recipe: Recipe, store: BlobStore
) -> None:
    merger.check(store_arrays(store, delta_like(recipe.parameters, 1)))


def test_a_pseudo_gradient_with_nan_is_refused(merger: Merger, recipe: Recipe, store: BlobStore) -> None:
    delta = delta_like(recipe.parameters, 1)
    delta["wpe"][3, 2] = np.nan
    with pytest.raises(ArraysRefused, match=r"array 'wpe' of blob .* holds infinities or NaN"):
        merger.check(store_arrays(store, delta))


def test_a_pseudo_gradient_of_another_model_is_refused(
    merger: Merger, recipe: Recipe, store: BlobStore
) -> None:
    delta = delta_like(recipe.parameters, 1)
    delta["wpe"] = delta["wpe"][:, :-1]
    with pytest.raises(
        ArraysRefused, match=re.escape("array 'wpe'") + ".*" + re.escape("expected f32[8,16]")
    ):
        merger.check(store_arrays(store, delta))


def test_a_run_that_diverges_ends_with_a_reason(merger: Merger, recipe: Recipe, store: BlobStore) -> None:
    parameters, momentum = merger.begin()
    huge = map_tree(lambda leaf: np.full_like(leaf, 3e38), recipe.parameters)
    with pytest.raises(
        RunDiverged, match=r"the run diverges; lower learning_rate or outer_learning_rate, which is 0.7"
    ):
        merger.merge([contribution(store, 1, huge)], (1.0,), parameters, momentum, 0)


def test_without_momentum_there_is_no_outer_state(tmp_path: Path, store: BlobStore) -> None:
    recipe = tiny_recipe(tmp_path, outer_momentum=0.0, outer_learning_rate=1.0)
    merger = Merger(recipe, store)
    merger.compile()
    parameters, state = merger.begin()
    delta = delta_like(recipe.parameters, 3)
    updated, state = merger.merge([contribution(store, 1, delta)], (1.0,), parameters, state, 0)
    found = load_arrays(store, updated, *layout(recipe.parameters))
    assert_equal_arrays(found, map_tree(lambda p, d: p - d, recipe.parameters, delta), 0, 1e-7)
    assert merger.load(updated, state)["outer"] == {}


def test_blobs_of_a_run_that_are_gone_are_named(merger: Merger) -> None:
    parameters, momentum = merger.begin()
    gone = Contribution(1, 1, DataRange(0, 3), Blob(b"g" * 32, 9), 3, 48, 2.0)
    with pytest.raises(BlobMissing, match=r"blob 67676767.* is not in"):
        merger.merge([gone], (1.0,), parameters, momentum, 0)
