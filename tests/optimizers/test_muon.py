"""Muon beside a plain loop in NumPy's float64, and beside exact orthogonal factors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.execution import run
from tests.optimizers.test_optimizers import (
    SCHEDULE,
    STEPS,
    assert_near,
    loop_of_adamw,
    random_trees,
    rates,
    updated,
)

import pcp
from pcp.optimizers import InvalidOptimizer, adamw, hidden_matrices, muon
from pcp.optimizers.muon import QUINTIC, orthogonalised

Array = np.ndarray[Any, Any]


def iterated(matrix: Array, rounds: int = 5) -> Array:
    """The quintic on singular values, which is what the iteration does to a matrix."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    values = values / np.linalg.norm(matrix)
    a, b, c = QUINTIC
    for _ in range(rounds):
        values = a * values + b * values**3 + c * values**5
    return np.asarray((left * values) @ right)


@pytest.mark.parametrize("shape", [(3, 4), (7, 2), (1, 5), (6, 6)])
def test_the_iteration_moves_singular_values_only(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(shape[0]).normal(size=shape)
    found = run(pcp.trace(orthogonalised, pcp.spec(shape, "f64")), matrix)
    np.testing.assert_allclose(found, iterated(matrix), rtol=0, atol=1e-12)
    values = np.linalg.svd(found, compute_uv=False)
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_a_gradient_of_zero_is_no_step() -> None:
    found = run(pcp.trace(orthogonalised, pcp.spec((3, 2), "f32")), np.zeros((3, 2), np.float32))
    assert (found == 0).all()


# The iteration multiplies small singular values by 3.4 each round, and their rounding errors with them.
@pytest.mark.parametrize(("dtype", "near"), [("f64", 1e-13), ("f32", 1e-5)])
def test_matrices_are_orthogonalised_and_the_rest_is_adamw(dtype: str, near: float) -> None:
    (parameters,), gradients = random_trees(21), random_trees(22, STEPS)
    rest = adamw(SCHEDULE, betas=(0.8, 0.95), epsilon=1e-3, weight_decay=0.1)
    found, state, reported = updated(muon(rest, 0.9, 0.2), parameters, gradients, dtype)
    others = loop_of_adamw(parameters, gradients, rates(), lambda p: p.ndim >= 2)[0]
    weight, b = parameters["weight"], np.zeros((3, 4))
    for rate, gradient in zip(rates(), gradients, strict=True):
        b = 0.9 * b + 0.1 * gradient["weight"]
        direction = iterated(0.9 * b + 0.1 * gradient["weight"])
        weight = (1 - rate * 0.2) * weight - rate * 0.2 * np.sqrt(4) * direction
    assert np.linalg.norm(found["weight"] - weight) <= near * np.linalg.norm(weight)
    for name in ("bias", "inner"):
        assert_near(found[name], others[name], dtype)
    assert set(state) == {"momentum", "count", "first", "second"}
    assert set(state["momentum"]) == {"weight"}
    assert set(state["first"]) == {"bias", "inner.0"}
    assert reported == pytest.approx(rates(), rel=1e-14 if dtype == "f64" else 1e-6)


def test_tables_of_embeddings_are_no_matrices_for_it() -> None:
    names = ("blocks.0.attn.qkv.weight", "wte", "transformer.wpe.weight", "token_embedding", "lm_head.weight")
    assert [hidden_matrices(name, (4, 4)) for name in names] == [True, False, False, False, False]
    assert not hidden_matrices("blocks.0.ln_1.scale", (4,))


def everything(_name: str, _shape: tuple[int, ...]) -> bool:
    return True


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: muon(adamw(1e-3), momentum=1.0), "expected a momentum of at least 0 and below 1"),
        (lambda: muon(adamw(1e-3), weight_decay=-1), "expected a weight decay of at least 0"),
        (lambda: muon(adamw(1e-3), rounds=0), "expected rounds that are a whole number, from 1 to 99"),
        (lambda: muon(1e-3), "expected a rest that is AdamW, as pcp.optimizers.adamw"),
        (lambda: muon(adamw(1e-3), orthogonal="all"), "expected orthogonal that is a function"),
        (
            lambda: muon(adamw(1e-3), orthogonal=everything).initial_state({"bias": np.zeros(3)}),
            r"orthogonal chose bias, which has shape \(3,\)",
        ),
    ],
)
def test_settings_that_make_no_sense_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidOptimizer, match=message):
        make()
