"""Gradients of the loops that flax and equinox make."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from equinox import internal
from tests.execution import run

import pcp

RANDOM = np.random.default_rng(0)
X, W, C = RANDOM.normal(size=(3, 7, 5)), RANDOM.normal(size=(4, 4)), RANDOM.normal(size=4)


def assert_gradients_equal(function: Any, reference: Any, arguments: Any) -> None:
    """The gradients of a function, by PCP, are those of a reference, by JAX."""
    leaves, tree = jax.tree.flatten(arguments)
    wrt = tuple(range(len(leaves)))

    def flat(of: Any) -> Any:
        return lambda *leaves: of(*jax.tree.unflatten(tree, leaves))

    text = str(jax.jit(flat(function), keep_unused=True).lower(*leaves).compiler_ir("stablehlo"))
    mine = run(pcp.grad(pcp.Program.parse(text), wrt), *leaves)
    theirs = jax.jit(jax.grad(flat(reference), wrt))(*leaves)
    for gradient, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
@pytest.mark.parametrize("lengths", [None, [3, 7, 1]])
def test_a_recurrent_network_of_flax(cell: Any, lengths: Any) -> None:
    with jax.enable_x64(True):
        module = nn.RNN(cell(6, param_dtype=jnp.float64), reverse=True, keep_order=True)
        variables = module.init(jax.random.PRNGKey(0), X)
        seq_lengths = None if lengths is None else jnp.array(lengths)

        def loss(variables: Any, x: Any) -> Any:
            return (module.apply(variables, x, seq_lengths=seq_lengths) ** 2).sum()

        assert_gradients_equal(loss, loss, (variables, X))


@pytest.mark.parametrize("kind", ["lax", "checkpointed", "bounded"])
def test_a_loop_of_equinox(kind: str) -> None:
    def function(w: Any, c: Any) -> Any:
        def body(state: Any) -> Any:
            return state[0] + 1, jnp.sin(w @ state[1])

        loop = internal.while_loop(lambda s: s[0] < 5, body, (0, c), max_steps=16, kind=kind)
        return (loop[1] ** 2).sum()

    def reference(w: Any, c: Any) -> Any:
        for _ in range(5):
            c = jnp.sin(w @ c)
        return (c**2).sum()

    with jax.enable_x64(True):
        assert_gradients_equal(function, reference, (W, C))
