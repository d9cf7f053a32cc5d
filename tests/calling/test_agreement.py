"""The same function at once, through `pcp.jit` and by `jax.numpy`, on fresh random inputs."""
# ruff: noqa: ARG005  (every operation takes all inputs)

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.models import decoder
from pcp.models.published import gpt2_config

GENERATOR = np.random.default_rng()
X, Y = (GENERATOR.normal(size=(3, 4)).astype(np.float32) for _ in range(2))
SQUARE = GENERATOR.normal(size=(4, 4)).astype(np.float32)
WHOLE = GENERATOR.integers(-9, 9, (3, 4)).astype(np.int32)
COUNT = GENERATOR.integers(1, 5, (3, 4)).astype(np.int32)
INPUTS = {"x": X, "y": Y, "s": SQUARE, "i": WHOLE, "n": COUNT}

# From the module, `pcp` or `jax.numpy`, and the inputs to a result.
OPERATIONS: list[Callable[..., Any]] = [
    lambda m, x, y, s, i, n: x + y,
    lambda m, x, y, s, i, n: x - 2.5,
    lambda m, x, y, s, i, n: 2 - x,
    lambda m, x, y, s, i, n: x * y,
    lambda m, x, y, s, i, n: x / y,
    lambda m, x, y, s, i, n: 1 / x,
    lambda m, x, y, s, i, n: i // n,
    lambda m, x, y, s, i, n: i % n,
    lambda m, x, y, s, i, n: x**2,
    lambda m, x, y, s, i, n: x**n,
    lambda m, x, y, s, i, n: -x,
    lambda m, x, y, s, i, n: abs(i),
    lambda m, x, y, s, i, n: x @ s,
    lambda m, x, y, s, i, n: i & n,
    lambda m, x, y, s, i, n: i | 3,
    lambda m, x, y, s, i, n: i ^ n,
    lambda m, x, y, s, i, n: ~i,
    lambda m, x, y, s, i, n: i << n,
    lambda m, x, y, s, i, n: i >> n,
    lambda m, x, y, s, i, n: x < y,
    lambda m, x, y, s, i, n: x >= 0.5,
    lambda m, x, y, s, i, n: i == n,
    lambda m, x, y, s, i, n: i != 3,
    lambda m, x, y, s, i, n: x[1],
    lambda m, x, y, s, i, n: x[:, ::2],
    lambda m, x, y, s, i, n: x[-1, None, 1:3],
    lambda m, x, y, s, i, n: x[n[:, 0] % 3],
    lambda m, x, y, s, i, n: x.T,
    lambda m, x, y, s, i, n: x.reshape(2, 6),
    lambda m, x, y, s, i, n: x.sum(),
    lambda m, x, y, s, i, n: x.mean(0),
    lambda m, x, y, s, i, n: x.max(axis=1, keepdims=True),
    lambda m, x, y, s, i, n: x.var(1),
    lambda m, x, y, s, i, n: x.std(),
    lambda m, x, y, s, i, n: x.argmax(1),
    lambda m, x, y, s, i, n: (x > 0).any(0),
    lambda m, x, y, s, i, n: x.astype(np.int32),
    lambda m, x, y, s, i, n: m.tanh(x),
    lambda m, x, y, s, i, n: m.exp(x),
    lambda m, x, y, s, i, n: m.log(abs(x) + 1),
    lambda m, x, y, s, i, n: m.sin(x) + m.cos(y),
    lambda m, x, y, s, i, n: m.sqrt(abs(x)),
    lambda m, x, y, s, i, n: m.floor(x * 3),
    lambda m, x, y, s, i, n: m.sign(x),
    lambda m, x, y, s, i, n: m.maximum(x, y),
    lambda m, x, y, s, i, n: m.minimum(x, 0.25),
    lambda m, x, y, s, i, n: m.where(x > y, x, 0.0),
    lambda m, x, y, s, i, n: m.concatenate([x, y]),
    lambda m, x, y, s, i, n: m.stack([x, y], 1),
    lambda m, x, y, s, i, n: m.cumsum(x, 1),
    lambda m, x, y, s, i, n: m.sort(x, 1),
    lambda m, x, y, s, i, n: m.argsort(x, 1),
    lambda m, x, y, s, i, n: m.take(x, n % 3, 0),
    lambda m, x, y, s, i, n: m.einsum("ij,kj->ik", x, y),
    lambda m, x, y, s, i, n: m.expand_dims(x, 1),
    lambda m, x, y, s, i, n: m.swapaxes(x, 0, 1),
    lambda m, x, y, s, i, n: m.broadcast_to(x[0], (2, 4)),
    lambda m, x, y, s, i, n: m.tril(s),
    lambda m, x, y, s, i, n: m.clip(x, -0.5, 0.5),
    lambda m, x, y, s, i, n: m.zeros((2, 3)) + m.ones((3,)) + m.arange(3),
    lambda m, x, y, s, i, n: m.eye(4) * s,
    lambda m, x, y, s, i, n: m.arctan2(x, y),
]  # fmt: skip


def of_module(module: Any) -> Callable[..., list[Any]]:
    """The results of all of them, as one function."""

    def computed(x: Any, y: Any, s: Any, i: Any, n: Any) -> list[Any]:
        return [operation(module, x, y, s, i, n) for operation in OPERATIONS]

    return computed


def test_at_once_by_a_plan_and_by_jax_are_one() -> None:
    arrays = list(INPUTS.values())
    expected = jax.jit(of_module(jnp))(*arrays)
    planned = pcp.jit(of_module(pcp))(*arrays)
    at_once = of_module(pcp)(*map(pcp.array, arrays))
    for place, (wanted, by_plan, now) in enumerate(zip(expected, planned, at_once, strict=True)):
        for name, found in (("jit", by_plan), ("at once", now)):
            shown = f"operation {place} {name}"
            assert np.asarray(found).dtype == wanted.dtype, shown
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=shown)


@pytest.mark.parametrize("kind", [jnp.asarray, np.asarray, pcp.asarray])
def test_arrays_of_other_libraries_compute_at_once(kind: Callable[[Any], Any]) -> None:
    found = pcp.tanh(kind(X)) + kind(Y)
    assert isinstance(found, pcp.Array)
    np.testing.assert_allclose(found, np.tanh(X) + Y, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(kind(Y) + pcp.array(X), X + Y, rtol=1e-6, atol=1e-6)


def test_random_numbers_and_control_flow_compute_at_once() -> None:
    key = pcp.random.key(int(GENERATOR.integers(100)))
    drawn = pcp.random.normal(key, (3,))
    planned = pcp.jit(lambda key: pcp.random.normal(key, (3,)))(key)
    np.testing.assert_allclose(drawn, planned, rtol=1e-5)
    x = pcp.array(X)
    np.testing.assert_allclose(
        pcp.cond(x.sum() > 0, lambda: x + 1, lambda: x), X + (X.sum() > 0), rtol=1e-6, atol=1e-6
    )
    assert int(pcp.while_loop(lambda i: i < 10, lambda i: i + 3, 0)) == 12
    total, parts = pcp.scan(lambda carry, row: (carry + row, carry), pcp.zeros((4,)), x)
    np.testing.assert_allclose(total, X.sum(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        parts, np.cumsum(np.vstack([np.zeros((1, 4)), X[:-1]]), 0), rtol=1e-5, atol=1e-6
    )


def test_layers_and_composites_compute_at_once() -> None:
    @pcp.composite("test.swish")
    def swish(x: pcp.Tensor, *, beta: float = 1.0) -> pcp.Tensor:
        return x / (1 + pcp.exp(-beta * x))

    np.testing.assert_allclose(swish(X, beta=2.0), X / (1 + np.exp(-2 * X)), rtol=1e-5)
    ones = np.ones(4, np.float32)
    normed = pcp.nn.layer_norm(X, ones, 0 * ones)
    np.testing.assert_allclose(
        normed, (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5), rtol=1e-3
    )
    assert pcp.nn.gelu(pcp.array(X)).shape == (3, 4)


def test_a_model_computes_at_once() -> None:
    config = gpt2_config(vocabulary=11, context=8, width=8, heads=2, layers=2)
    parameters = decoder.initial_parameters(config, int(GENERATOR.integers(99)))
    tokens, targets = GENERATOR.integers(0, 11, (2, 2, 5)).astype(np.int32)
    planned = pcp.jit(lambda *given: decoder.loss(*given, config), device="arena:cpu")(
        parameters, tokens, targets
    )
    np.testing.assert_allclose(decoder.loss(parameters, tokens, targets, config), planned, rtol=1e-5)
