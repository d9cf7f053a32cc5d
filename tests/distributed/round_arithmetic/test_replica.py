"""The inner state of a worker, against the formulas written in NumPy and against plain training."""

import re
from typing import Any

import numpy as np
import pytest
from tests.distributed.tiny_run import assert_equal_arrays

from pcp.distributed.algorithms import Algorithm, DataParallel, DiLoCo, SparseLoCo, StreamingDiLoCo
from pcp.distributed.messages import Outcome
from pcp.distributed.round_arithmetic.fragments import Partition, partition
from pcp.distributed.round_arithmetic.outer import OuterSteps
from pcp.distributed.round_arithmetic.programs import inner_step, worker_programs
from pcp.distributed.round_arithmetic.replica import Replica, ReplicaMisused
from pcp.ir.tree import TreeMismatch, flatten, map_tree
from pcp.planning import plan
from pcp.training.recipes.recipe import Recipe

_PLANS: dict[tuple[int, Algorithm, str], Any] = {}


def replica_of(recipe: Recipe, algorithm: Algorithm, device: str = "cpu:0") -> tuple[Replica, Partition]:
    key = (id(recipe), algorithm, device)
    if key not in _PLANS:
        programs = worker_programs(inner_step(recipe, algorithm), recipe.parameters, algorithm)
        _PLANS[key] = {name: plan(program, device) for name, program in programs.items()}
    return Replica(_PLANS[key]), partition(recipe.parameters, algorithm.fragments)


def train(replica: Replica, recipe: Recipe, batches: range, fragments: tuple[int, ...] = ()) -> None:
    replica.begin(batches.start, fragments)
    for index in batches:
        replica.step(recipe.batches.batch(index))
    replica.finish()


def own(replica: Replica, parts: Partition, fragment: int = 0) -> Any:
    return parts.vectors(map_tree(np.asarray, replica.state["params"]))[fragment]


def plain(recipe: Recipe, steps: int) -> Any:
    training, state = plan(recipe.step), recipe.step.initial_state(recipe.parameters)
    for index in range(steps):
        state, _ = training.run(state, recipe.batches.batch(index))
    return map_tree(np.asarray, state)


def test_a_lease_is_plain_training_bit_for_bit(recipe: Recipe) -> None:
    replica, parts = replica_of(recipe, DiLoCo(3))
    replica.fresh(parts.vectors(recipe.parameters), 0)
    train(replica, recipe, range(3))
    train(replica, recipe, range(3, 5))
    assert_equal_arrays(map_tree(np.asarray, replica.state), plain(recipe, 5))


def test_a_push_is_how_far_the_worker_moved(recipe: Recipe) -> None:
    replica, parts = replica_of(recipe, DiLoCo(3))
    [first] = parts.vectors(recipe.parameters)
    replica.fresh([first], 0)
    train(replica, recipe, range(3))
    payload = replica.push(0)
    assert np.array_equal(np.asarray(payload["values"]), first - own(replica, parts))
    assert np.abs(np.asarray(payload["values"])).max() > 1e-4


def test_what_was_pushed_is_not_pushed_again(recipe: Recipe) -> None:
    replica, parts = replica_of(recipe, DiLoCo(3))
    replica.fresh(parts.vectors(recipe.parameters), 0)
    train(replica, recipe, range(2))
    replica.push(0)
    replica.settle(0, Outcome.ADMITTED)
    middle = own(replica, parts)
    train(replica, recipe, range(2, 4))
    assert np.array_equal(np.asarray(replica.push(0)["values"]), middle - own(replica, parts))


def test_a_push_that_came_late_is_in_the_next_one(recipe: Recipe) -> None:
    replica, parts = replica_of(recipe, DiLoCo(3))
    [first] = parts.vectors(recipe.parameters)
    replica.fresh([first], 0)
    train(replica, recipe, range(2))
    late = np.asarray(replica.push(0)["values"])
    replica.settle(0, Outcome.CARRIED)
    newer = first + np.float32(0.01)
    replica.adopt(0, newer)
    assert np.array_equal(own(replica, parts), newer)
    train(replica, recipe, range(2, 4))
    expected = late + (newer - own(replica, parts))
    np.testing.assert_allclose(np.asarray(replica.push(0)["values"]), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("upload", ["int4", "int8", "bf16", "top-k:16"])
def test_what_the_codec_loses_is_pushed_later(recipe: Recipe, upload: str) -> None:
    algorithm = DiLoCo(3, upload=upload)
    replica, parts = replica_of(recipe, algorithm)
    steps = OuterSteps(recipe, algorithm, "cpu:0")
    [vector] = parts.vectors(recipe.parameters)
    replica.fresh([vector], 0)
    changes, sent = np.zeros(vector.shape), np.zeros(vector.shape)
    for turn in range(3):
        train(replica, recipe, range(2 * turn, 2 * turn + 2))
        changes += vector.astype(np.float64) - own(replica, parts)
        sent += np.asarray(steps.decoded(0, replica.push(0)))
        replica.settle(0, Outcome.ADMITTED)
        vector = vector + np.float32(1e-3 * turn)
        replica.adopt(0, vector)
    residual = np.asarray(replica._residuals[0])
    assert np.abs(residual).max() > 1e-6
    np.testing.assert_allclose(sent + residual, changes, rtol=0, atol=2e-7)


def test_adoption_mixes_and_counts_from_the_adopted(recipe: Recipe) -> None:
    replica, parts = replica_of(recipe, StreamingDiLoCo(4, 2, 1, 0.25, upload="f32"))
    vectors = parts.vectors(recipe.parameters)
    replica.fresh(vectors, 0)
    train(replica, recipe, range(2))
    replica.push(1)
    replica.settle(1, Outcome.ADMITTED)
    before = own(replica, parts, 1)
    newer = vectors[1] + np.float32(0.5)
    replica.adopt(1, newer)
    mixed = np.float32(0.25) * before + np.float32(0.75) * newer
    np.testing.assert_allclose(own(replica, parts, 1), mixed, rtol=2e-7, atol=1e-8)
    assert np.array_equal(np.asarray(replica.push(1)["values"]), newer - own(replica, parts, 1))


@pytest.mark.parametrize("mixing", [0.0, 0.25])
def test_what_was_never_pushed_goes_into_the_next_push_of_a_fragment(recipe: Recipe, mixing: float) -> None:
    replica, parts = replica_of(recipe, StreamingDiLoCo(4, 2, 1, mixing, upload="f32"))
    vectors = parts.vectors(recipe.parameters)
    replica.fresh(vectors, 0)
    train(replica, recipe, range(2))
    movement = vectors[1] - own(replica, parts, 1)
    assert np.abs(movement).max() > 1e-4
    replica.adopt(1, vectors[1] + np.float32(0.5))  # of a round that closed without this worker
    np.testing.assert_allclose(np.asarray(replica.push(1)["values"]), movement, rtol=0, atol=2e-7)


def test_fragments_that_data_may_not_move_return(recipe: Recipe) -> None:
    replica, parts = replica_of(recipe, StreamingDiLoCo(4, 2, 1, 0.25, upload="f32"))
    replica.fresh(parts.vectors(recipe.parameters), 0)
    train(replica, recipe, range(1))
    kept, moved = own(replica, parts, 0), own(replica, parts, 1)
    train(replica, recipe, range(1, 3), fragments=(1,))
    assert np.array_equal(own(replica, parts, 0), kept)
    assert not np.array_equal(own(replica, parts, 1), moved)


def test_a_fragment_adopted_while_it_may_not_move_returns_to_the_mixture(recipe: Recipe) -> None:
    replica, parts = replica_of(recipe, StreamingDiLoCo(4, 2, 1, 0.25, upload="f32"))
    vectors = parts.vectors(recipe.parameters)
    replica.fresh(vectors, 0)
    train(replica, recipe, range(1))
    kept = own(replica, parts, 0)
    newer = vectors[0] + np.float32(0.5)
    replica.begin(1, fragments=(1,))
    replica.step(recipe.batches.batch(1))
    now = own(replica, parts, 0)
    replica.adopt(0, newer)
    assert not np.array_equal(now, kept)
    expected = np.float32(0.25) * now + np.float32(0.75) * newer
    np.testing.assert_allclose(own(replica, parts, 0), expected, rtol=2e-7, atol=1e-8)
    replica.step(recipe.batches.batch(2))
    replica.finish()
    expected = np.float32(0.25) * kept + np.float32(0.75) * newer
    np.testing.assert_allclose(own(replica, parts, 0), expected, rtol=2e-7, atol=1e-8)


def test_a_fresh_worker_keeps_its_moments_and_nothing_else(recipe: Recipe) -> None:
    replica, parts = replica_of(recipe, DiLoCo(3, upload="int4"))
    vectors = parts.vectors(recipe.parameters)
    replica.fresh(vectors, 0)
    train(replica, recipe, range(2))
    replica.push(0)
    replica.settle(0, Outcome.ADMITTED)
    moments = map_tree(np.asarray, replica.state["optimizer"])
    replica.fresh(vectors, 7)
    state = map_tree(np.asarray, replica.state)
    assert_equal_arrays(state, {"params": recipe.parameters, "optimizer": moments, "step": np.int32(7)})
    assert any(leaf.any() for leaf in flatten(moments)[0])
    assert not np.asarray(replica._residuals[0]).any()


def test_a_data_parallel_worker_pushes_the_mean_gradient_of_its_batches(recipe: Recipe) -> None:
    replica, parts = replica_of(recipe, DataParallel())
    replica.fresh(parts.vectors(recipe.parameters), 0)
    single = []
    for index in range(2):
        train(replica, recipe, range(index, index + 1))
        single.append(np.asarray(replica.push(0)["values"]))
        replica.settle(0, Outcome.ADMITTED)
    train(replica, recipe, range(2))
    np.testing.assert_allclose(
        np.asarray(replica.push(0)["values"]), (single[0] + single[1]) / 2, rtol=1e-5, atol=1e-8
    )
    assert_equal_arrays(map_tree(np.asarray, replica.state["params"]), recipe.parameters)


def test_a_compressed_download_keeps_both_sides_equal_and_loses_nothing(recipe: Recipe) -> None:
    algorithm = SparseLoCo(3, download="int4")
    replica, parts = replica_of(recipe, algorithm)
    steps = OuterSteps(recipe, algorithm, "cpu:0")
    shadow, state = steps.first(0)
    replica.fresh([shadow], 0)
    master = shadow.astype(np.float64)
    for round in range(3):
        mean = np.random.default_rng(round).standard_normal(shadow.shape).astype(np.float32) * np.float32(
            0.01
        )
        stepped = steps.take(0, shadow, state, mean, round, 1.0)
        shadow, state = stepped.shadow, stepped.state
        replica.adopt(0, replica.received(0, stepped.change))
        assert np.array_equal(own(replica, parts), np.asarray(shadow))
        master -= mean
        np.testing.assert_allclose(np.asarray(state["master"]), master, rtol=0, atol=1e-6)
        assert 0 < np.abs(np.asarray(shadow) - master).max() < 0.01


def test_arrays_of_another_backend_lose_nothing_either(recipe: Recipe) -> None:
    """A round closes without a worker twice, and what it was sent of it is a change: every array is the arena's."""
    algorithm = SparseLoCo(3, download="int4")
    pushed = []
    for device in ("cpu:0", "arena:cpu"):
        replica, _ = replica_of(recipe, algorithm, device)
        steps = OuterSteps(recipe, algorithm, "cpu:0")
        shadow, state = steps.first(0)
        replica.fresh([shadow], 0)
        for round in range(3):
            mean = np.random.default_rng(round).standard_normal(shadow.shape).astype(np.float32)
            stepped = steps.take(0, shadow, state, np.float32(0.01) * mean, round, 1.0)
            shadow, state = stepped.shadow, stepped.state
            train(replica, recipe, range(2 * round, 2 * round + 2))
            replica.adopt(0, replica.received(0, stepped.change))
        pushed.append(np.asarray(replica.inner()["residuals"]["0"]))
    assert np.abs(pushed[0]).max() > 1e-4
    np.testing.assert_allclose(pushed[1], pushed[0], rtol=0, atol=1e-6)


def test_out_of_turn_is_refused(recipe: Recipe) -> None:
    replica, parts = replica_of(recipe, StreamingDiLoCo(4, 2, 1, 0.25, upload="f32"))
    begun = re.escape("the worker has no inner state yet, or a program failed in it; call fresh first")
    with pytest.raises(ReplicaMisused, match=begun):
        replica.step(recipe.batches.batch(0))
    replica.fresh(parts.vectors(recipe.parameters), 0)
    with pytest.raises(ReplicaMisused, match="no push of fragment 1 waits to be settled; push it first"):
        replica.settle(1, Outcome.ADMITTED)
    replica.push(1)
    with pytest.raises(ReplicaMisused, match="fragment 1 is to be pushed, but the last one is not settled"):
        replica.push(1)
    replica.begin(0, fragments=(1,))
    with pytest.raises(ReplicaMisused, match="fragment 0 is to be pushed, but the lease is not finished"):
        replica.push(0)


def test_a_step_that_fails_leaves_no_state(recipe: Recipe) -> None:
    replica, parts = replica_of(recipe, DiLoCo(3))
    replica.fresh(parts.vectors(recipe.parameters), 0)
    with pytest.raises(TreeMismatch, match="argument batch is a tuple of 0"):
        replica.step(())
    assert replica.state is None
