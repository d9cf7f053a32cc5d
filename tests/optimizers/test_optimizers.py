"""Optimizers against loops in NumPy: six updates in float64, with one tree of matrices, vectors and scalars."""

import math
from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir.tree import flatten, map_tree
from pcp.optimizers import (
    InvalidOptimizer,
    InvalidSchedule,
    Optimizer,
    WarmupCosine,
    adamw,
    clip_by_global_norm,
    global_norm,
    nesterov,
    sgd,
)

STEPS = 6


def random_tree(seed: int, dtype: Any = np.float64) -> Any:
    rng = np.random.default_rng(seed)
    return {
        "w": rng.normal(size=(3, 4)).astype(dtype),
        "b": rng.normal(size=4).astype(dtype),
        "deep": [rng.normal(size=(2, 2, 3)).astype(dtype), np.asarray(rng.normal(), dtype)],
    }


def updated(optimizer: Optimizer, parameters: Any, gradients: list[Any]) -> tuple[Any, Any, list[float]]:
    """Parameters, state and learning rates after one update for each gradient."""
    state = optimizer.initial_state(parameters)
    specs = [pcp.specs_of(tree) for tree in (gradients[0], state, parameters)]
    program = pcp.trace(optimizer.update, *specs, pcp.spec((), "i32"))
    rates = []
    for step, gradient in enumerate(gradients):
        parameters, state, metrics = run(program, gradient, state, parameters, np.int32(step))
        rates.append(float(metrics["learning_rate"]))
    return parameters, state, rates


def assert_close(ours: Any, theirs: Any, tolerance: float = 1e-12) -> None:
    for name, a, b in zip(flatten(ours)[1].names(), flatten(ours)[0], flatten(theirs)[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=name)


GRADIENTS = [random_tree(100 + step) for step in range(STEPS)]


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("scheduled", [False, True])
def test_adamw(decay: float, scheduled: bool) -> None:
    schedule = WarmupCosine(0.02, 2, 5, 0.004)
    optimizer = adamw(schedule if scheduled else 0.01, (0.8, 0.95), epsilon=1e-6, weight_decay=decay)
    ours, state, rates = updated(optimizer, random_tree(1), GRADIENTS)

    expected = [0.02 / 3, 0.04 / 3, 0.02]
    expected += [0.004 + 0.016 * 0.5 * (1 + math.cos(math.pi * x)) for x in (1 / 3, 2 / 3, 1)]
    expected = expected if scheduled else [0.01] * STEPS
    np.testing.assert_allclose(rates, expected, rtol=1e-12)
    theirs = random_tree(1)
    first, second = map_tree(np.zeros_like, theirs), map_tree(np.zeros_like, theirs)
    for t, (g, rate) in enumerate(zip(GRADIENTS, expected, strict=True), start=1):
        first = map_tree(lambda m, g: 0.8 * m + 0.2 * g, first, g)
        second = map_tree(lambda v, g: 0.95 * v + 0.05 * g**2, second, g)

        def moved(p: Any, m: Any, v: Any, t: int = t, rate: float = rate) -> Any:
            p = p * (1 - rate * decay) if np.ndim(p) >= 2 else p
            return p - rate * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-6)

        theirs = map_tree(moved, theirs, first, second)
    assert_close(ours, theirs)
    assert_close(state["first"], first)
    assert_close(state["second"], second)
    assert int(state["count"]) == STEPS


def test_the_decay_mask_sees_names_and_shapes() -> None:
    seen = []

    def decays(name: str, shape: tuple[int, ...]) -> bool:
        seen.append((name, shape))
        return name == "b"

    parameters, zeros = random_tree(1), map_tree(np.zeros_like, random_tree(1))
    ours, _, _ = updated(adamw(0.5, weight_decay=0.1, decays=decays), parameters, [zeros])
    assert sorted(seen) == [("b", (4,)), ("deep.0", (2, 2, 3)), ("deep.1", ()), ("w", (3, 4))]
    assert_close(ours, parameters | {"b": parameters["b"] * 0.95})


@pytest.mark.parametrize("form", ["plain", "momentum", "nesterov"])
def test_gradient_descent(form: str) -> None:
    optimizer = {"plain": sgd(0.1), "momentum": sgd(0.1, 0.8), "nesterov": nesterov(0.1, 0.8)}[form]
    ours, state, rates = updated(optimizer, random_tree(2), GRADIENTS)
    assert rates == [0.1] * STEPS
    theirs, velocity = random_tree(2), map_tree(np.zeros_like, random_tree(2))
    for gradient in GRADIENTS:
        velocity = map_tree(lambda b, g: (0 if form == "plain" else 0.8) * b + g, velocity, gradient)
        direction = map_tree(lambda b, g: g + 0.8 * b, velocity, gradient) if form == "nesterov" else velocity
        theirs = map_tree(lambda p, d: p - 0.1 * d, theirs, direction)
    assert_close(ours, theirs)
    if form == "plain":
        assert state == {}
    else:
        assert_close(state["velocity"], velocity)


def test_parameters_keep_their_element_types() -> None:
    parameters = {"half": np.ones((2, 2), np.float16), "single": np.ones(3, np.float32)}
    gradients = map_tree(lambda p: (p / 3).astype(p.dtype), parameters)
    for optimizer in (adamw(0.1), sgd(0.1), nesterov(0.1)):
        new, state, _ = updated(optimizer, parameters, [gradients])
        assert [new[name].dtype for name in ("half", "single")] == [np.float16, np.float32]
        kept = [leaf.dtype for leaf in flatten(state)[0] if np.ndim(leaf)]
        assert set(kept) <= {np.dtype(np.float16), np.dtype(np.float32)}


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_clipping_scales_the_whole_gradient(limit: float) -> None:
    gradients = random_tree(3)
    program = pcp.trace(lambda g: clip_by_global_norm(g, limit), pcp.specs_of(gradients))
    clipped, norm = run(program, gradients)
    expected = math.sqrt(sum(float((g**2).sum()) for g in flatten(gradients)[0]))
    assert float(norm) == pytest.approx(expected, rel=1e-13)
    factor = min(1.0, limit / (expected + 1e-6))
    assert (factor < 1) == (limit < 1)
    assert_close(clipped, map_tree(lambda g: g * factor, gradients))


def test_the_norm_of_half_precision_is_taken_in_single() -> None:
    gradients = {"g": np.full((40, 40), 200, np.float16)}  # the sum of the squares is no float16
    norm = run(pcp.trace(global_norm, pcp.specs_of(gradients)), gradients)
    assert norm.dtype == np.float32
    assert float(norm) == pytest.approx(8000)


def test_the_schedule_rises_falls_and_stays() -> None:
    schedule = WarmupCosine(peak=2.0, warmup_steps=3, total_steps=11, final=0.5)
    steps = np.array([0, 1, 2, 3, 7, 11, 50])
    expected = [0.5, 1.0, 1.5, 2.0, 1.25, 0.5, 0.5]
    for dtype, tolerance in (("f64", 1e-14), ("i32", 1e-6)):
        program = pcp.trace(schedule, pcp.spec((), dtype))
        found = [float(run(program, step)) for step in steps]
        np.testing.assert_allclose(found, expected, rtol=tolerance)


@pytest.mark.parametrize(
    "settings",
    [(1.0, 5, 5), (1.0, -1, 5), (-1.0, 1, 5), (1.0, 1, 5, -0.1)],
    ids=["no steps to fall", "negative warm-up", "negative peak", "negative end"],
)
def test_a_schedule_that_makes_no_sense_is_refused(settings: tuple[Any, ...]) -> None:
    with pytest.raises(
        InvalidSchedule, match="expected 0 <= warmup_steps < total_steps and rates that are not"
    ):
        WarmupCosine(*settings)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: adamw(-0.1), r"AdamW\(learning_rate=-0\.1.*expected a learning rate of at least 0"),
        (lambda: adamw(float("nan")), "expected a learning rate of at least 0, or a schedule"),
        (lambda: adamw(0.1, betas=(0.9, 1.0)), "expected betas of at least 0 and below 1"),
        (lambda: adamw(0.1, epsilon=0.0), "expected an epsilon above 0"),
        (lambda: adamw(0.1, weight_decay=-1.0), "expected a weight decay of at least 0"),
        (lambda: sgd(float("inf")), r"SGD\(learning_rate=inf.*expected a learning rate of at least 0"),
        (lambda: nesterov(0.1, 1.0), "expected a momentum of at least 0 and below 1"),
        (lambda: clip_by_global_norm({}, 0.0), r"clipping the norm of the gradient to 0\.0: expected a limit above 0"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidOptimizer, match=message):
        make()
