"""Activation functions beside those of `jax.nn`, values and gradients, at their kinks and far from 0 as well."""

from typing import Any

import jax
import numpy as np

import pcp

X = np.concatenate(
    [np.random.default_rng(8).normal(size=40) * 4, [-6.5, -1, 0, 1, 6, 90, -90, -3, 3]]
).astype(np.float32)
ROWS = np.random.default_rng(9).normal(size=(3, 5)).astype(np.float32)
NAMES = (
    "relu", "relu6", "silu", "swish", "gelu", "softplus", "log_sigmoid", "leaky_relu", "elu", "selu", "celu", "hard_swish",
    "hard_silu", "hard_sigmoid", "hard_tanh", "soft_sign", "mish", "squareplus", "sigmoid", "tanh", "sparse_plus",
    "sparse_sigmoid", "identity",
)  # fmt: skip


def test_values_and_gradients_are_those_of_jax() -> None:
    program = pcp.trace(lambda x: [getattr(pcp.nn, name)(x) for name in NAMES], X)
    theirs_all = {**vars(jax.nn), "tanh": jax.numpy.tanh}
    for name, mine in zip(NAMES, pcp.plan(program, "arena:cpu").run(X), strict=True):
        theirs = theirs_all[name](X)
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=2e-5, atol=1e-6, err_msg=name)
    for name in NAMES:
        gradient = pcp.grad(pcp.trace(lambda x, n=name: getattr(pcp.nn, n)(x).sum(), X))
        mine = pcp.plan(gradient, "arena:cpu").run(X)
        theirs = jax.grad(lambda x, n=name: theirs_all[n](x).sum())(X)
        np.testing.assert_allclose(
            np.asarray(mine), theirs, rtol=5e-5, atol=2e-5, err_msg=f"gradient of {name}"
        )


def test_what_goes_along_axes_is_that_of_jax() -> None:
    places = np.array([[0, 2], [1, 7]], np.int32)

    def everything(nn: Any, x: Any, places: Any) -> Any:
        return (
            nn.standardize(x), nn.standardize(x, 0), nn.standardize(x, (0, 1), epsilon=0.1),
            nn.standardize(x, where=ROWS < 0.8),
            nn.one_hot(places, 4), nn.one_hot(places, 4, axis=0), nn.one_hot(places, 4, axis=1), nn.logsumexp(x, 1),
            nn.softmax(x),
            nn.log_softmax(x, 0), nn.glu(x[:, :4]), nn.celu(x, 0.5), nn.leaky_relu(x, 0.3), nn.elu(x, 2.0), nn.gelu(x, False),
            nn.softmax(x, where=ROWS < 0.8), nn.log_softmax(x, 0, where=ROWS < 0.8), nn.logsumexp(x, 1, where=ROWS < 0.8),
            nn.log1mexp(x * x + 1e-6),
        )  # fmt: skip

    found = pcp.plan(pcp.trace(lambda *a: everything(pcp.nn, *a), ROWS, places), "arena:cpu").run(
        ROWS, places
    )
    for number, (mine, theirs) in enumerate(zip(found, everything(jax.nn, ROWS, places), strict=True)):
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=2e-5, atol=1e-6, err_msg=str(number))
