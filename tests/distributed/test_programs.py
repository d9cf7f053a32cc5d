"""The programs of a distributed run, against NumPy and against plain training."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pcp.distributed.programs import (
    BeginningNotUniform,
    WorkerPrograms,
    shepherd_programs,
    worker_programs,
)
from pcp.ir.tree import flatten, map_tree
from pcp.optimizers import AdamW, nesterov
from pcp.planning import plan
from pcp.training.recipe import Recipe
from tests.distributed.tiny_run import assert_equal_arrays

Plans = dict[str, Callable[..., Any]]


@pytest.fixture(scope="module")
def programs(recipe: Recipe) -> WorkerPrograms:
    return worker_programs(recipe.step, recipe.parameters)


@pytest.fixture(scope="module")
def plans(programs: WorkerPrograms) -> Plans:
    return {name: plan(getattr(programs, name)).run for name in ("start", "adopt", "step", "delta")}


def random_like(tree: Any, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    return map_tree(lambda leaf: generator.standard_normal(leaf.shape).astype(leaf.dtype), tree)


def numpy_of(tree: Any) -> Any:
    return map_tree(np.asarray, tree)


def inner_steps(plans: Plans, recipe: Recipe, state: Any, batches: range) -> Any:
    for index in batches:
        state, _ = plans["step"](state, recipe.batches.batch(index))
    return state


def test_start_is_the_first_state_of_the_training_step(plans: Plans, recipe: Recipe) -> None:
    params = random_like(recipe.parameters, 1)
    state = plans["start"](params, np.int32(40))
    expected = recipe.step.initial_state(params) | {"step": np.int32(40)}
    assert_equal_arrays(numpy_of(state), expected)


def test_start_repeats_a_number_that_is_not_zero(recipe: Recipe) -> None:
    class Eager(AdamW):
        def initial_state(self, parameters: Any) -> Any:
            return map_tree(lambda leaf: leaf - 0.25, super().initial_state(parameters))

    optimizer = Eager(**{name: getattr(recipe.optimizer, name) for name in AdamW.__slots__})
    made = worker_programs(replace(recipe.step, optimizer=optimizer), recipe.parameters)
    state = numpy_of(plan(made.start).run(recipe.parameters, np.int32(0)))
    assert {float(value) for leaf in flatten(state["optimizer"])[0] for value in leaf.flat} == {-0.25}


def test_an_optimizer_that_begins_with_different_numbers_is_refused(recipe: Recipe) -> None:
    class Random(AdamW):
        def initial_state(self, parameters: Any) -> Any:
            return random_like(super().initial_state(parameters), 3)

    optimizer = Random(**{name: getattr(recipe.optimizer, name) for name in AdamW.__slots__})
    with pytest.raises(
        BeginningNotUniform, match="a Worker can only begin with arrays that repeat one number"
    ):
        worker_programs(replace(recipe.step, optimizer=optimizer), recipe.parameters)


def test_adopt_takes_new_parameters_and_keeps_the_moments(plans: Plans, recipe: Recipe) -> None:
    state = inner_steps(plans, recipe, plans["start"](recipe.parameters, np.int32(0)), range(2))
    moments = numpy_of(state["optimizer"])
    assert any(leaf.any() for leaf in flatten(moments)[0])
    params = random_like(recipe.parameters, 2)
    adopted = plans["adopt"](state, params, np.int32(77))
    assert_equal_arrays(numpy_of(adopted), {"params": params, "optimizer": moments, "step": np.int32(77)})


def test_delta_is_where_it_began_minus_where_it_ended(plans: Plans, recipe: Recipe) -> None:
    anchor = random_like(recipe.parameters, 4)
    state = numpy_of(inner_steps(plans, recipe, plans["start"](anchor, np.int32(0)), range(1)))
    found = numpy_of(plans["delta"](anchor, state))
    assert_equal_arrays(found, map_tree(lambda a, b: a - b, anchor, state["params"]))


def test_accumulate_adds_by_weight_in_place(recipe: Recipe) -> None:
    made = shepherd_programs(recipe.parameters, nesterov(0.7, 0.9))
    total, delta = random_like(recipe.parameters, 5), random_like(recipe.parameters, 6)
    found = numpy_of(plan(made.accumulate).run(total, delta, np.float32(0.25)))
    assert_equal_arrays(found, map_tree(lambda a, b: a + np.float32(0.25) * b, total, delta), 1e-6, 1e-7)
    leaves = len(flatten(total)[0])
    assert [entry.alias for entry in made.accumulate.arguments[:leaves]] == list(range(leaves))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_outer_is_nesterov_as_written_in_numpy(recipe: Recipe, momentum: float) -> None:
    optimizer, rate = nesterov(0.7, momentum), np.float32(0.7)
    outer = plan(shepherd_programs(recipe.parameters, optimizer).outer)
    params, state = recipe.parameters, optimizer.initial_state(recipe.parameters)
    expected = params
    velocity = map_tree(np.zeros_like, params)
    for round in range(3):
        delta = random_like(params, 10 + round)
        params, state = outer.run(params, state, delta, np.int32(round))
        velocity = map_tree(lambda b, d: np.float32(momentum) * b + d, velocity, delta)
        expected = map_tree(
            lambda p, d, b: p - rate * (d + np.float32(momentum) * b), expected, delta, velocity
        )
    assert_equal_arrays(numpy_of(params), expected, 1e-5, 1e-6)


def test_one_worker_with_a_plain_outer_step_is_plain_training(plans: Plans, recipe: Recipe) -> None:
    optimizer = nesterov(1.0, 0.0)
    outer = plan(shepherd_programs(recipe.parameters, optimizer).outer).run
    params: Any = recipe.parameters
    outer_state, inner = optimizer.initial_state(params), None
    for round, first in enumerate(range(0, 9, 3)):
        anchor = numpy_of(params)
        count = np.int32(first)
        inner = plans["start"](anchor, count) if inner is None else plans["adopt"](inner, anchor, count)
        inner = inner_steps(plans, recipe, inner, range(first, first + 3))
        params, outer_state = outer(anchor, outer_state, plans["delta"](anchor, inner), np.int32(round))
    training = plan(recipe.step)
    state = recipe.step.initial_state(recipe.parameters)
    for index in range(9):
        state, _ = training.run(state, recipe.batches.batch(index))
    moved = max(
        float(np.abs(np.asarray(a) - b).max())
        for a, b in zip(flatten(params)[0], flatten(recipe.parameters)[0], strict=True)
    )
    assert moved > 1e-3
    assert_equal_arrays(numpy_of(params), numpy_of(state["params"]), 0, 2e-6)


def test_workers_with_equal_batches_are_one_worker(plans: Plans, recipe: Recipe) -> None:
    optimizer = nesterov(0.7, 0.9)
    made = shepherd_programs(recipe.parameters, optimizer)
    accumulate, outer = plan(made.accumulate).run, plan(made.outer).run
    state = inner_steps(plans, recipe, plans["start"](recipe.parameters, np.int32(0)), range(3))
    delta = numpy_of(plans["delta"](recipe.parameters, state))
    results = []
    for workers in (1, 2, 4):
        mean: Any = map_tree(np.zeros_like, delta)
        for _ in range(workers):
            mean = accumulate(mean, delta, np.float32(1 / workers))
        start = optimizer.initial_state(recipe.parameters)
        results.append(numpy_of(outer(recipe.parameters, start, mean, np.int32(0))[0]))
    assert_equal_arrays(results[1], results[0])
    assert_equal_arrays(results[2], results[0])
