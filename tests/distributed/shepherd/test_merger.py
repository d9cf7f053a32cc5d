"""Rounds from stored pushes to stored fragments: order, weights, codecs, and what is refused."""

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.distributed.tiny_run import DILOCO, assert_equal_arrays, tiny_recipe

from pcp.distributed.algorithms import (
    Algorithm,
    Contribution,
    DataParallel,
    DiLoCo,
    SparseLoCo,
    StreamingDiLoCo,
    merge_order,
)
from pcp.distributed.coordinator.effects import RunOuterStep
from pcp.distributed.messages import Blob, DataRange
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused, load_arrays, store_arrays
from pcp.distributed.round_arithmetic.flat_blobs import load_vector, store_vector
from pcp.distributed.round_arithmetic.outer import OuterSteps
from pcp.distributed.shepherd.merger import Merger, RunDiverged
from pcp.distributed.wire import BlobMissing, BlobStore
from pcp.ir import Tree
from pcp.ir.tree import flatten
from pcp.training.recipes.recipe import Recipe

STREAMING = StreamingDiLoCo(4, 2, 1, upload="int4", download="int4")


def merger_of(recipe: Recipe, algorithm: Algorithm, store: BlobStore) -> Merger:
    made = Merger(recipe, algorithm, store)
    made.compile()
    return made


@pytest.fixture
def merger(recipe: Recipe, store: BlobStore) -> Merger:
    return merger_of(recipe, DILOCO, store)


def push_of(merger: Merger, seed: int, fragment: int = 0, scale: float = 1e-2) -> Any:
    size = merger.partition.size(fragment)
    return np.random.default_rng(seed).normal(0, scale, size).astype(np.float32)


def contribution(store: BlobStore, worker: int, push: Any) -> Contribution:
    return Contribution(
        worker, 100 + worker, (DataRange(3 * worker, 3),), store_vector(store, push), 3, 48, 2.0
    )


def step(
    came: Sequence[Contribution],
    weights: tuple[float, ...],
    parameters: Blob,
    outer: Blob | None = None,
    round: int = 0,
    fragment: int = 0,
) -> RunOuterStep:
    return RunOuterStep(round, fragment, tuple(came), weights, parameters, outer, round)


def test_a_round_is_the_weighted_nesterov_step(merger: Merger, store: BlobStore) -> None:
    [parameters] = merger.begin()
    outer: Blob | None = None
    pushes = [push_of(merger, seed) for seed in range(2)]
    came = [contribution(store, worker, push) for worker, push in enumerate(pushes)]
    expected = load_vector(store, parameters, pushes[0].size)
    velocity = np.zeros_like(expected)
    for round in range(2):
        parameters, change, outer = merger.merge(step(came, (0.25, 0.75), parameters, outer, round))
        assert change is None
        mean = np.float32(0.25) * pushes[0] + np.float32(0.75) * pushes[1]
        velocity = np.float32(0.9) * velocity + mean
        expected = expected - np.float32(0.7) * (mean + np.float32(0.9) * velocity)
    state = merger.load((parameters,), (outer,))
    np.testing.assert_allclose(merger.partition.vectors(state["params"])[0], expected, 1e-5, 1e-7)
    np.testing.assert_allclose(state["outer"]["0"]["optimizer"]["velocity"], velocity, 1e-5, 1e-7)


def test_a_round_with_less_than_h_steps_behind_it_takes_a_part_of_the_momentum(
    merger: Merger, store: BlobStore
) -> None:
    [parameters] = merger.begin()
    push = push_of(merger, 0)
    before = load_vector(store, parameters, push.size)
    short = [replace(contribution(store, 0, push), steps=1), replace(contribution(store, 1, push), steps=2)]
    parameters, _, _ = merger.merge(step(short, (0.5, 0.5), parameters))
    share = 1.5 / DILOCO.inner_steps
    moved = before - load_vector(store, parameters, push.size)
    np.testing.assert_allclose(moved, 0.7 * (1 + share * 0.9) * push, 1e-4, 1e-7)


def test_the_order_in_which_updates_came_does_not_matter(merger: Merger, store: BlobStore) -> None:
    [parameters] = merger.begin()
    came = [contribution(store, worker, push_of(merger, worker)) for worker in (2, 0, 1)]
    weights = (1 / 3,) * 3
    orders = (came, came[::-1], [came[1], came[0], came[2]])
    merged = [merger.merge(step(merge_order(order), weights, parameters)) for order in orders]
    assert merged[0] == merged[1] == merged[2]
    # Without that order the last bits would depend on who was first, or this test could not fail.
    assert any(merger.merge(step(order, weights, parameters)) != merged[0] for order in orders)


def test_workers_that_add_the_changes_up_hold_what_the_shepherd_says(
    recipe: Recipe, store: BlobStore
) -> None:
    """Two fragments, four bits both ways: what the download loses stays with the Shepherd and is sent later."""
    merger, steps = merger_of(recipe, STREAMING, store), OuterSteps(recipe, STREAMING, "cpu:0")
    begun = merger.begin()
    for fragment, parameters in enumerate(begun):
        size = merger.partition.size(fragment)
        held = load_vector(store, parameters, size)
        outer: Blob | None = None
        for round in range(3):
            payload = steps._plans[f"change.{fragment}"].run(
                push_of(merger, round, fragment), np.zeros(size, np.float32)
            )
            came = Contribution(1, 7, (DataRange(0, 2),), store_arrays(store, payload), 2, 32, 2.0)
            assert came.payload.size == merger.payload_bytes()[fragment]
            merger.check(fragment, came.payload)
            given = step([came], (1.0,), parameters, outer, round, fragment)
            parameters, change, outer = merger.merge(given)
            assert change is not None
            assert change.size < parameters.size / 5
            tree: Tree = flatten(payload)[1]
            loaded = load_arrays(store, change, tree, flatten(_specs(merger, fragment))[0])
            held = np.asarray(steps._plans[f"receive.{fragment}"].run(held, loaded))
            assert np.array_equal(held, load_vector(store, parameters, size))
        master = merger.load(begun, (outer, None) if fragment == 0 else (None, outer))["outer"]
        lost = np.abs(master[str(fragment)]["master"] - held).max()
        assert 0 < lost < 0.05


def _specs(merger: Merger, fragment: int) -> Any:
    return merger._upload.payload_specs(merger.partition.size(fragment))  # the download has the same codec


@pytest.mark.parametrize(
    ("algorithm", "together"),
    [
        (StreamingDiLoCo(4, 1, 1, upload="f32", outer_momentum=0.0), True),
        (DiLoCo(4, outer_momentum=0.0), False),
    ],
)
def test_pushes_of_a_worker_that_goes_on_are_one_movement(
    recipe: Recipe, store: BlobStore, algorithm: Algorithm, together: bool
) -> None:
    """One that adopts the parameters anew before each lease is another replica every time."""
    merger = merger_of(recipe, algorithm, store)
    [parameters] = merger.begin()
    pushes = [push_of(merger, seed) for seed in range(3)]
    came = [contribution(store, worker, push) for worker, push in zip((0, 0, 1), pushes, strict=True)]
    updated, _, _ = merger.merge(step(came, (0.25, 0.25, 0.5), parameters))
    both = pushes[0] + pushes[1]
    mean = 0.5 * (both if together else 0.5 * both) + 0.5 * pushes[2]
    size = pushes[0].size
    expected = load_vector(store, parameters, size) - algorithm.outer_learning_rate * mean
    np.testing.assert_allclose(load_vector(store, updated, size), expected, 1e-5, 1e-7)


def test_a_push_of_the_fragment_passes_the_check(merger: Merger, store: BlobStore) -> None:
    merger.check(0, store_vector(store, push_of(merger, 1)))


def test_a_push_with_nan_is_refused(merger: Merger, store: BlobStore) -> None:
    push = push_of(merger, 1)
    push[17] = np.nan
    with pytest.raises(ArraysRefused, match=r"array 'values' of blob .* holds infinities or NaN"):
        merger.check(0, store_vector(store, push))


def test_a_push_of_another_fragment_is_refused(merger: Merger, store: BlobStore) -> None:
    expected = re.escape(f"expected f32[{merger.partition.size(0)}]")
    with pytest.raises(ArraysRefused, match="array 'values'.*" + expected):
        merger.check(0, store_vector(store, push_of(merger, 1)[:-1]))


def test_a_run_that_diverges_ends_with_a_reason(merger: Merger, store: BlobStore) -> None:
    push = push_of(merger, 0)
    huge = np.full_like(push, 3e38)
    outer = store_arrays(store, {"optimizer": {"velocity": huge}, "merge": {}})
    with pytest.raises(
        RunDiverged, match=r"makes \S+ infinite or NaN: the run diverges; lower learning_rate"
    ):
        merger.merge(step([contribution(store, 1, push)], (1.0,), store_vector(store, -huge), outer))


def test_without_momentum_there_is_no_outer_state(recipe: Recipe, store: BlobStore) -> None:
    merger = merger_of(recipe, SparseLoCo(3, upload="f32"), store)
    [parameters] = merger.begin()
    push = push_of(merger, 3)
    updated, _, outer = merger.merge(step([contribution(store, 1, push)], (1.0,), parameters))
    assert outer is None
    found = load_vector(store, updated, push.size)
    np.testing.assert_allclose(found, load_vector(store, parameters, push.size) - push, 0, 1e-7)
    state = merger.load((updated,), (outer,))
    assert state["outer"]["0"]["optimizer"] == {}


def test_data_parallel_steps_are_the_run_s_own_optimizer(tmp_path: Path, store: BlobStore) -> None:
    """Adam's first step moves every parameter by about the learning rate, which the schedule gives for the round."""
    recipe = tiny_recipe(tmp_path, weight_decay=0.0, clip_norm=0.0, learning_rate=1e-3, warmup_steps=2)
    merger = merger_of(recipe, DataParallel(), store)
    [parameters] = merger.begin()
    push = push_of(merger, 3)
    updated, _, outer = merger.merge(step([contribution(store, 1, push)], (1.0,), parameters, round=2))
    assert outer is not None
    moved = load_vector(store, parameters, push.size) - load_vector(store, updated, push.size)
    np.testing.assert_allclose(moved, 1e-3 * np.sign(push), rtol=0.2)


def test_a_merge_with_a_memory_keeps_it_in_the_outer_state(
    recipe: Recipe, store: BlobStore, caplog: pytest.LogCaptureFixture
) -> None:
    merger = merger_of(recipe, DiLoCo(3, merge="default"), store)
    [parameters] = merger.begin()
    came = [contribution(store, worker, push_of(merger, worker)) for worker in range(3)]
    weights = (1 / 3,) * 3
    parameters, _, outer = merger.merge(step(came, weights, parameters))
    again = [came[0], *(contribution(store, worker, push_of(merger, 9 + worker)) for worker in (1, 2))]
    with caplog.at_level(logging.WARNING, "pcp.distributed.shepherd.merger"):
        merger.merge(step(again, weights, parameters, outer, 1))
    assert "the push of worker 0 counts for 0.000 only: it was merged in an earlier round" in caplog.text


def test_a_checkpoint_of_a_run_that_has_not_merged_is_its_beginning(merger: Merger, recipe: Recipe) -> None:
    state = merger.load(merger.begin(), (None,))
    assert_equal_arrays(state["params"], recipe.parameters)
    assert not np.asarray(state["outer"]["0"]["optimizer"]["velocity"]).any()


def test_blobs_of_a_run_that_are_gone_are_named(merger: Merger) -> None:
    [parameters] = merger.begin()
    gone = Contribution(1, 1, (DataRange(0, 3),), Blob(b"g" * 32, 9), 3, 48, 2.0)
    with pytest.raises(BlobMissing, match=r"blob 67676767.* is not in"):
        merger.merge(step([gone], (1.0,), parameters))
