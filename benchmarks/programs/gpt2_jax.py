"""GPT-2's training step in plain JAX, as its users write it; parameters are nested as in `pcp.models.gpt2`."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pcp.models.config import DecoderConfig

Tree = Any


def _layer_norm(x: Any, scale: Any, bias: Any = None) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    y = (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale
    return y if bias is None else y + bias


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    return x @ weight if bias is None else x @ weight + bias


def _attention(x: Any, p: Tree, heads: int) -> Any:
    batch, length, width = x.shape
    q, k, v = jnp.split(_linear(x, **p["qkv"]), 3, axis=-1)
    q, k, v = (t.reshape(batch, length, heads, width // heads) for t in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(width // heads)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return _linear(mixed.reshape(batch, length, width), **p["out"])


def _block(x: Any, p: Tree, heads: int) -> Any:
    x = x + _attention(_layer_norm(x, **p["ln_1"]), p["attn"], heads)
    hidden = jax.nn.gelu(_linear(_layer_norm(x, **p["ln_2"]), **p["mlp"]["up"]))
    return x + _linear(hidden, **p["mlp"]["down"])


def stacked(params: Tree) -> Tree:
    """The same parameters for a loop over layers that is compiled once (`lax.scan`): those of all layers as one array each."""
    return {**params, "blocks": jax.tree.map(lambda *leaves: np.stack(leaves), *params["blocks"])}


def _is_stacked(params: Tree) -> bool:
    return isinstance(params.get("blocks"), dict)


def logits(params: Tree, tokens: Any, config: DecoderConfig) -> Any:
    """The logits of the next token at every place."""
    x = params["wte"][tokens] + params["wpe"][: tokens.shape[1]]
    if _is_stacked(params):
        x, _ = jax.lax.scan(lambda x, block: (_block(x, block, config.heads), None), x, params["blocks"])
    else:
        for block in params["blocks"]:
            x = _block(x, block, config.heads)
    return _layer_norm(x, **params["ln_f"]) @ params["wte"].T


def loss(params: Tree, tokens: Any, targets: Any, config: DecoderConfig) -> Any:
    """The mean cross entropy of the next token."""
    found = jax.nn.log_softmax(logits(params, tokens, config))
    return -jnp.take_along_axis(found, targets[..., None], axis=-1).mean()


def training_step(config: DecoderConfig, rate: float, loss: Callable[..., Any] = loss) -> Any:
    """A jitted step `(state, (tokens, targets)) -> (state, loss)`: clipping at 1, AdamW with decay on matrices.

    Arguments:
        loss: of parameters, tokens, targets and config.
    """
    tree_map = jax.tree.map

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: Tree, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(state["params"], *batch, config)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
        grads = tree_map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), grads)
        count = state["count"] + 1
        first = tree_map(lambda m, g: 0.9 * m + 0.1 * g, state["first"], grads)
        second = tree_map(lambda v, g: 0.99 * v + 0.01 * g * g, state["second"], grads)

        ranks = tree_map(jnp.ndim, state["params"])
        if _is_stacked(state["params"]):
            ranks["blocks"] = tree_map(lambda rank: rank - 1, ranks["blocks"])

        def update(p: Any, m: Any, v: Any, rank: int) -> Any:
            direction = (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.99**count)) + 1e-8)
            return p - rate * (direction + (0.1 * p if rank >= 2 else 0.0))

        params = tree_map(update, state["params"], first, second, ranks)
        return {"params": params, "first": first, "second": second, "count": count}, value

    return step


def initial_state(params: Tree) -> Tree:
    """The state before the first step, on the device."""
    placed = jax.tree.map(jnp.array, params)
    return {
        "params": placed,
        "first": jax.tree.map(jnp.zeros_like, placed),
        "second": jax.tree.map(jnp.zeros_like, placed),
        "count": jnp.zeros((), jnp.int32),
    }
