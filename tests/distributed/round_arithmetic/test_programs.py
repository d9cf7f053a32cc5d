"""The programs of a distributed run: which there are, how moments begin, and that nothing is copied that need not be."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.distributed.tiny_run import assert_equal_arrays

from pcp.distributed.algorithms import Algorithm, DataParallel, DiLoCo, SparseLoCo, StreamingDiLoCo
from pcp.distributed.round_arithmetic.fragments import TooManyFragments, partition
from pcp.distributed.round_arithmetic.programs import (
    BeginningNotUniform,
    inner_step,
    outer_programs,
    worker_programs,
)
from pcp.ir.tree import flatten, map_tree
from pcp.optimizers import AdamW
from pcp.planning import plan
from pcp.training.recipes.recipe import Recipe


def programs(recipe: Recipe, algorithm: Algorithm) -> Any:
    return worker_programs(inner_step(recipe, algorithm), recipe.parameters, algorithm)


@pytest.mark.parametrize(
    ("algorithm", "worker", "shepherd"),
    [
        (DiLoCo(4), "start restart step flat.0 put.0 push.0", "parameters decode.0 outer.0"),
        (
            DataParallel(),
            "start restart step clear flat.0 put.0 push.0 gradient.0",
            "parameters decode.0 outer.0",
        ),
        (
            StreamingDiLoCo(4),
            "start restart step flat.0 put.0 push.0 mix.0 flat.1 put.1 push.1 mix.1",
            "parameters decode.0 outer.0 decode.1 outer.1",
        ),
        (
            SparseLoCo(4, download="int8"),
            "start restart step flat.0 put.0 push.0 receive.0",
            "parameters decode.0 outer.0 change.0 receive.0",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)
def test_an_algorithm_has_the_programs_that_it_needs(
    recipe: Recipe, algorithm: Algorithm, worker: str, shepherd: str
) -> None:
    assert list(programs(recipe, algorithm)) == worker.split()
    assert list(outer_programs(recipe, algorithm)) == shepherd.split()


def test_both_sides_take_a_change_by_the_same_program(recipe: Recipe) -> None:
    algorithm = StreamingDiLoCo(4, download="int4")
    worker, shepherd = programs(recipe, algorithm), outer_programs(recipe, algorithm)
    assert [worker[f"receive.{f}"].digest for f in (0, 1)] == [
        shepherd[f"receive.{f}"].digest for f in (0, 1)
    ]


def test_programs_that_change_the_state_take_its_memory(recipe: Recipe) -> None:
    made = programs(recipe, StreamingDiLoCo(4))
    leaves = len(flatten(recipe.step.initial_state(recipe.parameters))[0])
    for name in ("restart", "step", "put.0", "mix.1"):
        assert [entry.alias for entry in made[name].arguments[:leaves]] == list(range(leaves)), name
    for name in ("flat.0", "push.1"):
        assert {entry.alias for entry in made[name].arguments} == {None}, name


def test_a_start_repeats_a_number_that_is_not_zero(recipe: Recipe) -> None:
    class Eager(AdamW):
        def initial_state(self, parameters: Any) -> Any:
            return map_tree(lambda leaf: leaf - 0.25, super().initial_state(parameters))

    optimizer = Eager(**{name: getattr(recipe.optimizer, name) for name in AdamW.__slots__})
    start = worker_programs(replace(recipe.step, optimizer=optimizer), recipe.parameters, DiLoCo(2))["start"]
    vectors = partition(recipe.parameters, 1).vectors(recipe.parameters)
    state = map_tree(np.asarray, plan(start).run(vectors, np.int32(4)))
    assert {float(value) for leaf in flatten(state["optimizer"])[0] for value in leaf.flat} == {-0.25}
    assert_equal_arrays(state["params"], recipe.parameters)
    assert state["step"] == 4


def test_an_optimizer_that_begins_with_different_numbers_is_refused(recipe: Recipe) -> None:
    class Random(AdamW):
        def initial_state(self, parameters: Any) -> Any:
            generator = np.random.default_rng(3)
            state = super().initial_state(parameters)
            return map_tree(lambda leaf: generator.standard_normal(leaf.shape).astype(leaf.dtype), state)

    optimizer = Random(**{name: getattr(recipe.optimizer, name) for name in AdamW.__slots__})
    with pytest.raises(
        BeginningNotUniform, match="a Worker can only begin with arrays that repeat one number"
    ):
        worker_programs(replace(recipe.step, optimizer=optimizer), recipe.parameters, DiLoCo(2))


def test_more_fragments_than_arrays_are_refused_on_both_sides(recipe: Recipe) -> None:
    algorithm = StreamingDiLoCo(100, 50)
    with pytest.raises(TooManyFragments, match="50 fragments were asked for"):
        programs(recipe, algorithm)
    with pytest.raises(TooManyFragments, match="50 fragments were asked for"):
        outer_programs(recipe, algorithm)


@pytest.mark.parametrize("share", [1.0, 0.25])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_an_outer_step_is_nesterov_as_written_in_numpy(recipe: Recipe, momentum: float, share: float) -> None:
    algorithm, rate = StreamingDiLoCo(4, outer_learning_rate=0.7, outer_momentum=momentum), np.float32(0.7)
    outer = plan(outer_programs(recipe, algorithm)["outer.1"])
    master: Any = partition(recipe.parameters, 2).vectors(recipe.parameters)[1]
    expected, velocity = master, np.zeros_like(master)
    state: Any = {"velocity": velocity} if momentum else {}
    for round in range(3):
        mean = np.random.default_rng(round).standard_normal(expected.shape).astype(np.float32)
        master, state = outer.run(master, state, mean, np.int32(round), np.float32(share))
        velocity = np.float32(momentum**share) * velocity + mean
        expected = expected - rate * (mean + np.float32(share * momentum) * velocity)
    np.testing.assert_allclose(np.asarray(master), expected, rtol=1e-5, atol=1e-6)


def test_parts_of_a_round_move_the_parameters_as_far_as_the_whole(recipe: Recipe) -> None:
    outer = plan(outer_programs(recipe, StreamingDiLoCo(4, outer_momentum=0.9))["outer.1"])
    first: Any = partition(recipe.parameters, 2).vectors(recipe.parameters)[1]
    change = np.full_like(first, 0.01)  # of a whole round, the same each time: the velocity is then ten of it

    def moved(parts: int) -> float:
        master, state = first, {"velocity": 10 * change}
        for _ in range(parts):
            master, state = outer.run(master, state, change / parts, np.int32(0), np.float32(1 / parts))
        return float(np.mean(first - np.asarray(master)))

    assert moved(3) == pytest.approx(moved(1), rel=0.01)
