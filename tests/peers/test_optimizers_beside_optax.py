"""Optimizers beside those of optax of the same name: twenty steps of random gradients, and optax's own in a step."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import pytest
from tests.execution import run

import pcp
from pcp.ir.tree import map_tree
from pcp.optimizers import adafactor, adam, adamw, by_name, lion, nesterov, sgd

STEPS = 20
SHAPES = {"w": (4, 3), "b": (3,), "kernel": (2, 5, 3), "wide": (3, 6), "zero": (4, 4), "empty": ()}
RANDOM = np.random.default_rng()


def everything(_name: str, _shape: tuple[int, ...]) -> bool:
    return True


def schedule(step: Any) -> Any:
    return 0.05 / (step + 1)


PAIRS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "adamw": (
        adamw(schedule, (0.8, 0.95), 1e-6, 0.3, everything),
        lambda: optax.adamw(schedule, 0.8, 0.95, 1e-6, weight_decay=0.3),
    ),
    "adam": (adam(0.05), lambda: optax.adam(0.05)),
    "lion": (
        lion(schedule, (0.8, 0.95), 0.3, everything),
        lambda: optax.lion(schedule, 0.8, 0.95, weight_decay=0.3),
    ),
    "lion as it comes": (by_name("lion")(0.05), lambda: optax.lion(0.05, weight_decay=0.0)),
    "sgd": (sgd(0.05), lambda: optax.sgd(0.05)),
    "sgd with momentum": (sgd(0.05, 0.8), lambda: optax.sgd(0.05, 0.8)),
    "nesterov": (nesterov(0.05, 0.8), lambda: optax.sgd(0.05, 0.8, nesterov=True)),
    "adafactor": (
        adafactor(schedule, min_dim_size_to_factor=3),
        lambda: optax.adafactor(schedule, min_dim_size_to_factor=3),
    ),
    "adafactor, plain": (
        adafactor(
            0.05,
            min_dim_size_to_factor=4,
            decay_rate=0.6,
            multiply_by_parameter_scale=False,
            clipping_threshold=None,
        ),
        lambda: optax.adafactor(
            0.05, 4, decay_rate=0.6, multiply_by_parameter_scale=False, clipping_threshold=None
        ),
    ),
}


def random_arrays() -> dict[str, Any]:
    return {name: np.asarray(RANDOM.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


@pytest.mark.parametrize("name", PAIRS)
def test_twenty_steps(name: str) -> None:
    ours, theirs = PAIRS[name][0], PAIRS[name][1]()
    parameters = random_arrays() | {"zero": np.zeros((4, 4), np.float32)}
    state = ours.initial_state(parameters)
    specs = [pcp.specs_of(tree, "input") for tree in (parameters, state, parameters)]
    program = pcp.trace(ours.update, *specs, pcp.spec((), "i32"))
    expected, held = parameters, theirs.init(parameters)
    step = jax.jit(theirs.update)
    begun = parameters
    for number in range(STEPS):
        gradients = map_tree(lambda g, n=number: g * 10.0 ** (n % 3 - 1), random_arrays())
        gradients = map_tree(lambda g: g.astype(np.float32), gradients)
        parameters, state, _ = run(program, gradients, state, parameters, np.int32(number))
        updates, held = step(gradients, held, expected)
        expected = optax.apply_updates(expected, updates)
    for each, found in parameters.items():
        moved = np.linalg.norm(found - begun[each])
        assert moved > 0, each
        assert np.linalg.norm(found - expected[each]) <= 2e-5 * moved, each
