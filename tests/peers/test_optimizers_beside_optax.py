"""Optimizers beside those of optax of the same name: twenty steps of random gradients, and optax's own in a step."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
import pytest
from tests.execution import run

import pcp
from pcp import nn
from pcp.ir.tree import flatten, map_tree
from pcp.optimizers import adafactor, adam, adamw, by_name, from_optax, lion, nesterov, sgd

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


TRANSFORMATIONS: dict[str, Callable[[], Any]] = {
    "a chain": lambda: optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(schedule, weight_decay=0.1)),
    "accumulated": lambda: optax.MultiSteps(optax.rmsprop(0.01), every_k_schedule=2),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=schedule),
    "masked": lambda: optax.chain(
        optax.masked(optax.lion(0.01), {"layer": True, "b": False}), optax.scale(0.5)
    ),
    "with noise": lambda: optax.chain(optax.add_noise(0.1, 0.5, jax.random.key(3)), optax.sgd(0.05)),
    "adafactor": lambda: optax.adafactor(0.05),
}


class Layer(nn.Module):
    w: Any
    scale: Any
    word: str = "w"


class Registered(eqx.Module):
    w: Any
    scale: Any
    word: str = eqx.field(static=True, default="w")


def loss(params: Any, x: Any) -> Any:
    return ((x @ params["layer"].w * params["layer"].scale + params["b"]) ** 2).mean()


@pytest.mark.parametrize("kind", [Layer, Registered])
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_a_step_by_a_transformation(name: str, kind: Any) -> None:
    transformation = TRANSFORMATIONS[name]()
    params = {"layer": kind(random_arrays()["w"], random_arrays()["b"]), "b": random_arrays()["b"]}
    step = pcp.training_step(loss, from_optax(transformation), params, pcp.spec((5, 4), "f32"))
    state = step.initial_state(params)
    theirs = {"layer": Registered(params["layer"].w, params["layer"].scale), "b": params["b"]}
    held = transformation.init(theirs)

    @jax.jit
    def wanted(theirs: Any, held: Any, x: Any) -> Any:
        updates, held = transformation.update(jax.grad(loss)(theirs, x), held, theirs)
        return optax.apply_updates(theirs, updates), held

    for _ in range(4):
        x = RANDOM.normal(size=(5, 4)).astype(np.float32)
        state, metrics = run(step, state, (x,))
        theirs, held = wanted(theirs, held, x)
        assert set(metrics) == {"loss", "gradient_norm"}
    assert type(state["params"]["layer"]) is kind
    assert type(state["optimizer"]) is type(held)
    for found, expected in ((state["params"], theirs), (state["optimizer"], held)):
        arrays = flatten(pcp.jax_arrays(found))[0], flatten(pcp.jax_arrays(expected))[0]
        for a, b in zip(*arrays, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=2e-4, atol=2e-5)


def test_parameters_that_stay_have_no_state_of_optax_either() -> None:
    params = {"w": random_arrays()["w"], "still": random_arrays()["b"]}
    grouped = pcp.optimizers.groups({"still": "frozen"}, from_optax(optax.adam(0.1)))
    step = pcp.training_step(
        lambda p, x: ((x @ p["w"] + p["still"]) ** 2).mean(), grouped, params, pcp.spec((5, 4), "f32")
    )
    assert [e.name for e in step.arguments if "optimizer" in e.name] == [
        "state.optimizer.others.0.count", "state.optimizer.others.0.mu.w", "state.optimizer.others.0.nu.w",
    ]  # fmt: skip


def test_what_is_no_transformation_is_refused() -> None:
    with pytest.raises(
        pcp.optimizers.InvalidOptimizer, match=r"from_optax was given 0.1; expected a transformation of optax"
    ):
        from_optax(0.1)
    needy = from_optax(optax.polyak_sgd())
    with pytest.raises(
        pcp.optimizers.InvalidOptimizer, match=r"needs more \(.*value.*\); expected one that is made of these"
    ):
        pcp.training_step(lambda w: (w**2).sum(), needy, np.ones(3, np.float32))
