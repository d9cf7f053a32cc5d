"""Activations, normalisations, layers and losses against NumPy in float64."""

import math
from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import nn
from pcp.tensor import DTypeMismatch, ShapeMismatch

RNG = np.random.default_rng(7)
X = RNG.normal(size=(2, 3, 4))
SCALE, BIAS = RNG.normal(size=4), RNG.normal(size=4)
W, B = RNG.normal(size=(4, 5)), RNG.normal(size=5)
erf = np.vectorize(math.erf)


def apply(function: Any, *arguments: Any) -> Any:
    return run(pcp.trace(function, *map(pcp.specs_of, arguments)), *arguments)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (nn.relu, lambda x: np.maximum(x, 0)),
        (nn.silu, lambda x: x / (1 + np.exp(-x))),
        (lambda x: nn.gelu(x, approximate=False), lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2)))),
        (nn.gelu, lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    ],
    ids=["relu", "silu", "gelu", "gelu by tanh"],
)
def test_activations(function: Any, expected: Any) -> None:
    x = 2 * X
    np.testing.assert_allclose(apply(function, x), expected(x), rtol=1e-13, atol=1e-15)


def test_layer_norm() -> None:
    expected = (X - X.mean(-1, keepdims=True)) / np.sqrt(X.var(-1, keepdims=True) + 0.1) * SCALE
    found = apply(lambda x, s: nn.layer_norm(x, s, epsilon=0.1), X, SCALE)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    found = apply(lambda x, s, b: nn.layer_norm(x, s, b, 0.1), X, SCALE, BIAS)
    np.testing.assert_allclose(found, expected + BIAS, rtol=1e-12)


def test_rms_norm() -> None:
    expected = X / np.sqrt((X**2).mean(-1, keepdims=True) + 0.1) * SCALE
    np.testing.assert_allclose(apply(lambda x, s: nn.rms_norm(x, s, 0.1), X, SCALE), expected, rtol=1e-12)


def test_linear_and_mlp() -> None:
    np.testing.assert_allclose(apply(nn.linear, X, W), X @ W, rtol=1e-12)
    np.testing.assert_allclose(apply(nn.linear, X, W, B), X @ W + B, rtol=1e-12)
    parameters = {"up": {"weight": W, "bias": B}, "down": {"weight": W.T.copy()}}
    expected = np.maximum(X @ W + B, 0) @ W.T
    found = apply(lambda x, p: nn.mlp(x, p, activation=nn.relu), X, parameters)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_embedding() -> None:
    tokens = np.array([[3, 0, 3], [1, 2, 0]], np.int32)
    np.testing.assert_array_equal(apply(nn.embedding, tokens, W), W[tokens])


LOGITS = RNG.normal(size=(2, 3, 5)) * 4
TARGETS = RNG.integers(0, 5, (2, 3)).astype(np.int32)
LOSSES = np.log(np.exp(LOGITS).sum(-1)) - np.take_along_axis(LOGITS, TARGETS[..., None], -1)[..., 0]


def test_cross_entropy() -> None:
    np.testing.assert_allclose(apply(nn.negative_log_likelihood, LOGITS, TARGETS), LOSSES, rtol=1e-12)
    np.testing.assert_allclose(apply(nn.cross_entropy, LOGITS, TARGETS), LOSSES.mean(), rtol=1e-12)
    weights = RNG.uniform(0.1, 2, (2, 3))
    expected = (LOSSES * weights).sum() / weights.sum()
    np.testing.assert_allclose(apply(nn.cross_entropy, LOGITS, TARGETS, weights), expected, rtol=1e-12)


def test_cross_entropy_of_large_scores_is_finite() -> None:
    logits = np.array([[3e4, 0.0], [-3e4, 0.0]], np.float32)
    targets = np.array([0, 0], np.int32)
    np.testing.assert_allclose(apply(nn.negative_log_likelihood, logits, targets), [0, 3e4])


def test_cross_entropy_refuses_other_shapes_and_types() -> None:
    with pytest.raises(
        ShapeMismatch, match=r"logits \(2, 3, 5\) need targets of shape \(2, 3\); \(3, 2\) was given"
    ):
        apply(nn.cross_entropy, LOGITS, TARGETS.T.copy())
    with pytest.raises(
        DTypeMismatch, match="targets of f64 were given; expected integers, the index of the class"
    ):
        apply(nn.cross_entropy, LOGITS, LOSSES)


def test_mse() -> None:
    np.testing.assert_allclose(apply(nn.mse, X, SCALE), ((X - SCALE) ** 2).mean(), rtol=1e-13)
