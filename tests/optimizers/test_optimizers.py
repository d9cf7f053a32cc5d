"""Every optimizer beside a plain loop in NumPy's float64, over several steps of changing gradients."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir import DType
from pcp.ir.tree import flatten, map_tree
from pcp.optimizers import (
    AdamW,
    InvalidOptimizer,
    Optimizer,
    WarmupCosine,
    adafactor,
    adamw,
    by_name,
    lion,
    matrices,
    nesterov,
    sgd,
)

Array = np.ndarray[Any, Any]
Tree = dict[str, Any]
STEPS = 6
SCHEDULE = WarmupCosine(peak=0.05, warmup_steps=2, total_steps=5, final=0.01)

WRONG: Any = "1e-3"

# How far STEPS updates may be from float64's, relative to the norm.
NEAR = {"f64": 1e-14, "f32": 2e-6, "bf16": 2e-2}


def random_trees(seed: int, count: int = 1) -> list[Tree]:
    """Nested arrays: a matrix, a vector, and a table deeper inside."""
    generator = np.random.default_rng(seed)
    shapes = {"weight": (3, 4), "bias": (4,), "inner": [(2, 3, 2)]}
    return [
        {
            key: [generator.normal(size=s) for s in shape]
            if isinstance(shape, list)
            else generator.normal(size=shape)
            for key, shape in shapes.items()
        }
        for _ in range(count)
    ]


def rates() -> list[float]:
    """The learning rates of SCHEDULE, as its definition says them."""
    rise = [0.05 * (step + 1) / 3 for step in range(STEPS)]
    fall = [
        0.01 + 0.04 * 0.5 * (1 + math.cos(math.pi * min(max((step - 2) / 3, 0), 1))) for step in range(STEPS)
    ]
    return [min(pair) for pair in zip(rise, fall, strict=True)]


def updated(
    optimizer: Optimizer, parameters: Tree, gradients: Sequence[Tree], dtype: str
) -> tuple[Tree, Any, list[float]]:
    """Parameters, state and learning rates after one update with each of the gradients."""
    numpy_type = DType(dtype).numpy
    parameters = map_tree(lambda p: p.astype(numpy_type), parameters)
    state = optimizer.initial_state(parameters)
    program = pcp.trace(
        optimizer.update,
        pcp.specs_of(parameters, "input"),
        pcp.specs_of(state, "input"),
        pcp.specs_of(parameters, "input"),
        pcp.spec((), "i32"),
    )
    reported = []
    for step, gradient in enumerate(gradients):
        typed = map_tree(lambda g: g.astype(numpy_type), gradient)
        parameters, state, metrics = run(program, typed, state, parameters, step)
        reported.append(float(metrics["learning_rate"]))
    return parameters, state, reported


def assert_near(found: Any, expected: Any, dtype: str) -> None:
    """Every array has the element type, and is as near as that allows."""
    leaves, tree = flatten(found)
    for name, a, b in zip(tree.names(), leaves, flatten(expected)[0], strict=True):
        assert a.dtype == DType(dtype).numpy, name
        assert np.linalg.norm(a.astype(np.float64) - b) <= NEAR[dtype] * np.linalg.norm(b), name


def loop_of_adamw(
    parameters: Tree,
    gradients: Sequence[Tree],
    rates: Sequence[float],
    decayed: Callable[[Array], bool],
    betas: tuple[float, float] = (0.8, 0.95),
    epsilon: float = 1e-3,
    decay: float = 0.1,
) -> tuple[Tree, Tree, Tree]:
    """Algorithm 2 of the paper, line by line."""
    m, v = (map_tree(np.zeros_like, parameters) for _ in range(2))
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = map_tree(lambda m, g: betas[0] * m + (1 - betas[0]) * g, m, gradient)
        v = map_tree(lambda v, g: betas[1] * v + (1 - betas[1]) * g**2, v, gradient)

        def moved(p: Array, m: Array, v: Array, t: int = t, rate: float = rate) -> Array:
            m_hat, v_hat = m / (1 - betas[0] ** t), v / (1 - betas[1] ** t)
            return p - rate * (m_hat / (np.sqrt(v_hat) + epsilon) + (decay * p if decayed(p) else 0))

        parameters = map_tree(moved, parameters, m, v)
    return parameters, m, v


@pytest.mark.parametrize("dtype", NEAR)
def test_adamw_with_a_schedule(dtype: str) -> None:
    (parameters,), gradients = random_trees(1), random_trees(2, STEPS)
    optimizer = adamw(SCHEDULE, betas=(0.8, 0.95), epsilon=1e-3, weight_decay=0.1)
    found, state, reported = updated(optimizer, parameters, gradients, dtype)
    expected = loop_of_adamw(parameters, gradients, rates(), lambda p: p.ndim >= 2)
    assert_near((found, state["first"], state["second"]), expected, dtype)
    assert int(state["count"]) == STEPS
    assert reported == pytest.approx(rates(), rel=1e-14 if dtype == "f64" else 1e-6)


def test_adamw_decays_what_the_mask_names() -> None:
    asked: dict[str, tuple[int, ...]] = {}

    def only_vectors(name: str, shape: tuple[int, ...]) -> bool:
        asked[name] = shape
        return len(shape) == 1

    (parameters,), gradients = random_trees(3), random_trees(4, 2)
    optimizer = AdamW(0.02, (0.8, 0.95), 1e-3, 0.1, only_vectors)
    found, _, _ = updated(optimizer, parameters, gradients, "f64")
    assert_near(found, loop_of_adamw(parameters, gradients, [0.02] * 2, lambda p: p.ndim == 1)[0], "f64")
    assert asked == {"weight": (3, 4), "bias": (4,), "inner.0": (2, 3, 2)}
    assert [matrices("any", shape) for shape in ((), (4,), (3, 4), (2, 3, 2))] == [False, False, True, True]


def test_adamw_without_decay_and_with_the_usual_settings() -> None:
    (parameters,), gradients = random_trees(5), random_trees(6, STEPS)
    found, _, _ = updated(adamw(1e-3, weight_decay=0), parameters, gradients, "f64")
    expected = loop_of_adamw(
        parameters, gradients, [1e-3] * STEPS, lambda _: True, (0.9, 0.999), 1e-8, decay=0
    )
    assert_near(found, expected[0], "f64")


def test_the_first_step_of_adamw_has_the_size_of_the_rate() -> None:
    (parameters,), gradients = random_trees(7), random_trees(8, 1)
    found, _, _ = updated(adamw(0.01, weight_decay=0), parameters, gradients, "f64")
    moves = map_tree(lambda a, b: a - b, found, parameters)
    expected = map_tree(lambda g: -0.01 * np.sign(g), gradients[0])
    for move, wanted in zip(flatten(moves)[0], flatten(expected)[0], strict=True):
        np.testing.assert_allclose(move, wanted, rtol=1e-5)


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("kind", ["plain", "momentum", "nesterov"])
def test_gradient_descent(kind: str, dtype: str) -> None:
    (parameters,), gradients = random_trees(9), random_trees(10, STEPS)
    momentum = 0.0 if kind == "plain" else 0.9
    optimizer = nesterov(SCHEDULE, 0.9) if kind == "nesterov" else sgd(SCHEDULE, momentum)
    found, state, reported = updated(optimizer, parameters, gradients, dtype)
    expected, velocity = parameters, map_tree(np.zeros_like, parameters)
    for rate, gradient in zip(rates(), gradients, strict=True):
        velocity = map_tree(lambda b, g: momentum * b + g, velocity, gradient)
        direction = velocity
        if kind == "nesterov":
            direction = map_tree(lambda b, g: g + momentum * b, velocity, gradient)
        expected = map_tree(lambda p, d, rate=rate: p - rate * d, expected, direction)
    assert_near(found, expected, dtype)
    assert reported == pytest.approx(rates(), rel=1e-14 if dtype == "f64" else 1e-6)
    if kind == "plain":
        assert state == {}
    else:
        assert_near(state["velocity"], velocity, dtype)


@pytest.mark.parametrize("dtype", NEAR)
def test_lion_with_a_schedule(dtype: str) -> None:
    (parameters,), gradients = random_trees(13), random_trees(14, STEPS)
    found, state, _ = updated(lion(SCHEDULE, (0.7, 0.9), 0.2), parameters, gradients, dtype)
    m = map_tree(np.zeros_like, parameters)
    expected = parameters
    for rate, gradient in zip(rates(), gradients, strict=True):
        direction = map_tree(lambda m, g: np.sign(0.7 * m + 0.3 * g), m, gradient)
        decay = map_tree(lambda p: 0.2 * p * (p.ndim >= 2), expected)
        expected = map_tree(lambda p, d, w, r=rate: p - r * (d + w), expected, direction, decay)
        m = map_tree(lambda m, g: 0.9 * m + 0.1 * g, m, gradient)
    assert_near((found, state["momentum"]), (expected, m), dtype)


@pytest.mark.parametrize("dtype", NEAR)
def test_adafactor_with_a_schedule_and_decay(dtype: str) -> None:
    (parameters,), gradients = random_trees(11), random_trees(12, STEPS)
    optimizer = adafactor(SCHEDULE, min_dim_size_to_factor=2, weight_decay=0.2)
    found, state, _ = updated(optimizer, parameters, gradients, dtype)
    assert {k: v.shape for k, v in state["rows"].items()} == {"weight": (3,), "inner.0": (2, 2)}
    assert {k: v.shape for k, v in state["columns"].items()} == {"weight": (4,), "inner.0": (2, 3)}
    assert set(state["second"]) == {"bias"}
    leaves, tree = flatten(parameters)
    squares = [np.zeros_like(leaf) for leaf in leaves]
    for t, (rate, gradient) in enumerate(zip(rates(), gradients, strict=True), start=1):
        share = 1 - t**-0.8
        for place, g in enumerate(flatten(gradient)[0]):
            squares[place] = share * squares[place] + (1 - share) * (g * g + 1e-30)
            v, p = squares[place], leaves[place]
            if p.ndim > 1:  # matrices of rank 1 that have its means
                one, other = (0, 1) if p.ndim == 2 else (1, 2)
                v = (
                    v.mean(one, keepdims=True)
                    * v.mean(other, keepdims=True)
                    / v.mean((one, other), keepdims=True)
                )
            direction = g / np.sqrt(v)
            direction = direction / max(1, np.sqrt((direction**2).mean()))
            scale = max(np.sqrt((p**2).mean()), 1e-3)
            leaves[place] = p - rate * (scale * direction + 0.2 * p * (p.ndim >= 2))
    assert_near(found, tree.unflatten(leaves), dtype)


def test_gradient_descent_decays_matrices() -> None:
    (parameters,), gradients = random_trees(15), random_trees(16, 1)
    found, _, _ = updated(sgd(0.1, weight_decay=0.2), parameters, gradients, "f64")
    expected = map_tree(lambda p, g: p - 0.1 * (g + 0.2 * p * (p.ndim >= 2)), parameters, gradients[0])
    assert_near(found, expected, "f64")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: adamw(-0.1), r"AdamW\(learning_rate=-0\.1.*expected a learning rate of at least 0"),
        (lambda: adamw(math.nan), "expected a learning rate of at least 0, or a schedule"),
        (lambda: adamw(1e-3, betas=(0.9, 1.0)), "expected betas of at least 0 and below 1"),
        (lambda: adamw(1e-3, betas=(-0.1, 0.9)), "expected betas of at least 0 and below 1"),
        (lambda: adamw(1e-3, epsilon=0), "expected an epsilon above 0"),
        (lambda: adamw(1e-3, weight_decay=-1), "expected a weight decay of at least 0"),
        (lambda: sgd(math.inf), r"SGD\(learning_rate=inf.*expected a learning rate of at least 0"),
        (lambda: sgd(0.1, 1.0), "expected a momentum of at least 0 and below 1"),
        (
            lambda: adamw(WRONG),
            r"AdamW\(learning_rate='1e-3'.*expected a learning rate of at least 0, or a s",
        ),
        (
            lambda: lion(1e-3, WRONG),
            r"Lion\(.*betas='1e-3'.*expected betas of at least 0 and below 1, two of them",
        ),
        (lambda: lion(1e-3, weight_decay=WRONG), r"Lion\(.*'1e-3'.*expected a weight decay of at least 0"),
        (lambda: adafactor(1e-3, decay_rate=1), "Adafactor.*expected a decay rate of at least 0 and below 1"),
        (lambda: adafactor(1e-3, clipping_threshold=0), "expected a clipping threshold above 0, or None"),
        (lambda: adafactor(1e-3, 0), "expected a smallest size to factor that is a whole number above 0"),
        (lambda: adafactor(1e-3, epsilon=0), "expected an epsilon above 0"),
        (lambda: adafactor(1e-3, decays=WRONG), "expected decays that is a function of the name and"),
        (
            lambda: by_name("AdamV"),
            r"no optimizer 'AdamV' \(did you mean 'adam'\?\); expected one of adamw, adam, ",
        ),
        (lambda: nesterov(0.1, -0.5), "expected a momentum of at least 0 and below 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidOptimizer, match=message):
        make()
