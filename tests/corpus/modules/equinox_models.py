"""Layers and small networks of equinox, given to PCP as the modules that they are."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.corpus.arguments import distinct, integers, normal, uniform
from tests.corpus.case import Case, Maker


def module(
    name: str,
    make: Callable[[Any], Any],
    inputs: Maker,
    call: Callable[..., Any] | None = None,
    order: int = 1,
) -> Case:
    """A case of a module: `make` makes it of a key, `call` applies it."""

    def arguments(rng: np.random.Generator) -> tuple[Any, ...]:
        made = make(jax.random.key(0))
        varied = jax.tree.map(
            lambda a: a + 0.3 * rng.normal(size=a.shape) if eqx.is_inexact_array(a) else a, made
        )
        return varied, *inputs(rng)

    return Case(name, call or (lambda m, x: jax.vmap(m)(x)), arguments, order=order)


def _folded(cell: Any, xs: Any) -> Any:
    return lax.scan(lambda h, x: (cell(x, h),) * 2, jnp.zeros(4), xs)[1]


def _folded_lstm(cell: Any, xs: Any) -> Any:
    return lax.scan(lambda s, x: (cell(x, s), s[0]), (jnp.zeros(4), jnp.ones(4)), xs)


class Block(eqx.Module):
    """A transformer's block."""

    attention: eqx.nn.MultiheadAttention
    perceptron: eqx.nn.MLP
    first: eqx.nn.LayerNorm
    second: eqx.nn.LayerNorm

    def __init__(self, key: Any) -> None:
        a, b = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(2, 8, key=a)
        self.perceptron = eqx.nn.MLP(8, 8, 16, 1, jax.nn.gelu, key=b)
        self.first, self.second = eqx.nn.LayerNorm(8), eqx.nn.LayerNorm(8)

    def __call__(self, x: Any) -> Any:
        """Of (time, 8)."""
        h = jax.vmap(self.first)(x)
        x = x + self.attention(h, h, h, mask=jnp.tri(x.shape[0], dtype=bool))
        return x + jax.vmap(self.perceptron)(jax.vmap(self.second)(x))


class Stacked(eqx.Module):
    """Layers made by vmap, applied by scan, each recomputed."""

    layers: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        self.layers = eqx.filter_vmap(lambda k: eqx.nn.Linear(4, 4, key=k))(jax.random.split(key, 3))

    def __call__(self, x: Any) -> Any:
        """Of (4,)."""
        arrays, static = eqx.partition(self.layers, eqx.is_array)

        @jax.checkpoint
        def step(x: Any, layer: Any) -> Any:
            return jnp.tanh(eqx.combine(layer, static)(x)) + x, None

        return lax.scan(step, x, arrays)[0]


def _differential_equation(field: Any, x: Any) -> Any:
    def step(x: Any, _: Any) -> Any:
        k1 = field(x)
        k2 = field(x + 0.05 * k1)
        return x + 0.1 * k2, x

    return jax.vmap(lambda x: lax.scan(step, x, None, length=5))(x)


def _energy_force(network: Any, x: Any) -> Any:
    return jax.vmap(jax.grad(lambda p: network(p).sum()))(x)


def _physical_loss(network: Any, x: Any) -> Any:
    return ((_energy_force(network, x) + x) ** 2).mean()


def _deep_equilibrium(cell: Any, x: Any) -> Any:
    return lax.fori_loop(0, 6, lambda _, h: jnp.tanh(cell(h) / 4 + x), x)


def _mlp(inputs: int, outputs: int, activation: Any = jax.nn.relu) -> Callable[[Any], Any]:
    return lambda key: eqx.nn.MLP(inputs, outputs, 6, 2, activation, key=key)


def _gan(networks: Any, noise: Any, real: Any) -> Any:
    generator, critic = networks
    fake = jax.vmap(generator)(noise)
    return jax.nn.softplus(-jax.vmap(critic)(real)).mean() + jax.nn.softplus(jax.vmap(critic)(fake)).mean()


_X = normal((3, 4))
_IMAGE = normal((2, 3, 6, 6))

CASES = [
    module("linear", lambda k: eqx.nn.Linear(4, 5, key=k), _X, order=2),
    module("mlp", _mlp(4, 2), _X),
    module("mlp_smooth", _mlp(4, 2, jnp.tanh), _X, order=2),
    module("embedding", lambda k: eqx.nn.Embedding(7, 4, key=k), integers(0, 7, (5,))),
    module("layer_norm", lambda _: eqx.nn.LayerNorm(4), _X, order=2),
    module("rms_norm", lambda _: eqx.nn.RMSNorm(4), _X, order=2),
    module("group_norm", lambda _: eqx.nn.GroupNorm(3, 6), normal((2, 6, 4, 4))),
    module("prelu", lambda _: eqx.nn.PReLU(), _X),
    module("conv_1d", lambda k: eqx.nn.Conv1d(3, 4, 3, padding=1, key=k), normal((2, 3, 6))),
    module("conv_2d", lambda k: eqx.nn.Conv2d(3, 4, 3, stride=2, key=k), _IMAGE, order=2),
    module("conv_2d_grouped", lambda k: eqx.nn.Conv2d(3, 6, 3, groups=3, dilation=2, key=k), _IMAGE),
    module("conv_3d", lambda k: eqx.nn.Conv3d(2, 3, 2, key=k), normal((1, 2, 3, 3, 3))),
    module(
        "conv_transpose", lambda k: eqx.nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1, key=k), _IMAGE
    ),
    module("max_pool", lambda _: eqx.nn.MaxPool2d(2, 2), distinct((2, 3, 6, 6)), lambda m, x: jax.vmap(m)(x)),
    module("average_pool", lambda _: eqx.nn.AvgPool2d(3, 2), _IMAGE),
    module("adaptive_pool", lambda _: eqx.nn.AdaptiveAvgPool2d(4), _IMAGE),
    module("gru_cell", lambda k: eqx.nn.GRUCell(3, 4, key=k), normal((5, 3)), _folded, order=2),
    module("lstm_cell", lambda k: eqx.nn.LSTMCell(3, 4, key=k), normal((5, 3)), _folded_lstm, order=2),
    module(
        "attention",
        lambda k: eqx.nn.MultiheadAttention(2, 8, key=k),
        normal((5, 8), (4, 8)),
        lambda m, q, x: m(q, x, x),
        order=2,
    ),
    module(
        "rotary_embedding",
        lambda _: eqx.nn.RotaryPositionalEmbedding(4),
        normal((5, 4)),
        lambda m, x: m(x) * x,
    ),
    module("dropout", lambda _: eqx.nn.Dropout(0.4), _X, lambda m, x: m(x, key=jax.random.PRNGKey(3))),
    module(
        "sequential",
        lambda k: eqx.nn.Sequential(
            [eqx.nn.Linear(4, 5, key=k), eqx.nn.Lambda(jnp.sin), eqx.nn.Linear(5, 2, key=k)]
        ),
        _X,
        order=2,
    ),
    module(
        "shared_layers",
        lambda k: eqx.nn.Linear(4, 4, key=k),
        _X,
        lambda m, x: jax.vmap(lambda v: m(jnp.tanh(m(v))))(x),
    ),
    module("weight_norm", lambda k: eqx.nn.WeightNorm(eqx.nn.Linear(4, 5, key=k)), _X),
    module("transformer_block", Block, normal((5, 8)), lambda m, x: m(x)),
    module("stacked_layers", Stacked, _X, order=2),
    module(
        "ensemble",
        lambda k: eqx.filter_vmap(_mlp(4, 2, jnp.tanh))(jax.random.split(k, 3)),
        _X,
        lambda m, x: eqx.filter_vmap(lambda n: jax.vmap(n)(x))(m),
    ),
    module("neural_differential_equation", _mlp(3, 3, jnp.tanh), normal((2, 3)), _differential_equation),
    module("energy_and_force", _mlp(3, 1, jnp.tanh), normal((4, 3)), _energy_force, order=2),
    module("physical_loss", _mlp(3, 1, jnp.tanh), normal((4, 3)), _physical_loss),
    module("deep_equilibrium", lambda k: eqx.nn.Linear(4, 4, key=k), normal((4,)), _deep_equilibrium),
    module(
        "adversarial_networks",
        lambda k: (_mlp(2, 3, jnp.tanh)(k), _mlp(3, 1, jnp.tanh)(k)),
        normal((4, 2), (4, 3)),
        _gan,
        order=2,
    ),
    module(
        "normalized_convolutions",
        lambda k: eqx.nn.Sequential(
            [eqx.nn.Conv2d(3, 4, 3, key=k), eqx.nn.GroupNorm(2, 4), eqx.nn.Lambda(jax.nn.silu)]
        ),
        _IMAGE,
    ),
    module(
        "quantile_regression",
        _mlp(4, 3, jnp.tanh),
        uniform(-1, 1, (5, 4)),
        lambda m, x: jnp.sort(jax.vmap(m)(x), -1),
    ),
    module(
        "filtered_jit",
        _mlp(4, 2, jnp.tanh),
        _X,
        lambda m, x: eqx.filter_jit(lambda m, x: jax.vmap(m)(x))(m, x),
    ),
    module(
        "filtered_gradient",
        _mlp(4, 1, jnp.tanh),
        _X,
        lambda m, x: eqx.filter_grad(lambda m: (jax.vmap(m)(x) ** 2).sum())(m),
    ),
    module(
        "filtered_checkpoint",
        _mlp(4, 2, jnp.tanh),
        _X,
        lambda m, x: eqx.filter_checkpoint(lambda m, x: jax.vmap(m)(x))(m, x),
    ),
]
