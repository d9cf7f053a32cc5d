"""Llama's loss in plain JAX as it is fast on a GPU: bfloat16 with float32 parameters, attention by cuDNN, no float32 logits."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu.jax_parts import attention, cross_entropy, linear
from pcp.models.config import DecoderConfig

Tree = Any


def _norm(x: Any, p: Tree, epsilon: float) -> Any:
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + epsilon)
    return (wide * scale * p["scale"]).astype(jnp.bfloat16)


def _turned(x: Any, base: float) -> Any:
    half = x.shape[-1] // 2
    speeds = base ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = (jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * speeds)[None, :, None]
    cosine, sine = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cosine - second * sine, second * cosine + first * sine], -1).astype(
        jnp.bfloat16
    )


def _block(x: Any, p: Tree, config: DecoderConfig) -> Any:
    y = _norm(x, p["norm_1"], config.epsilon)
    q, k, v = (
        linear(y, p["attn"][kind]["weight"]).reshape(*y.shape[:2], -1, config.head_width)
        for kind in ("query", "key", "value")
    )
    mixed = attention(_turned(q, config.rotary.base), _turned(k, config.rotary.base), v)
    x = x + linear(mixed.reshape(x.shape), p["attn"]["out"]["weight"])
    y = _norm(x, p["norm_2"], config.epsilon)
    hidden = jax.nn.silu(linear(y, p["mlp"]["gate"]["weight"])) * linear(y, p["mlp"]["up"]["weight"])
    return x + linear(hidden, p["mlp"]["down"]["weight"])


def loss(params: Tree, tokens: Any, targets: Any, config: DecoderConfig) -> Any:
    """The mean cross entropy of the next token."""
    x = params["embedding"][tokens].astype(jnp.bfloat16)
    for block in params["blocks"]:
        x = _block(x, block, config)
    x = _norm(x, params["norm"], config.epsilon).reshape(-1, config.width)
    head = params["embedding" if config.tied else "head"]
    return cross_entropy(x, head.astype(jnp.bfloat16), targets.reshape(-1))
