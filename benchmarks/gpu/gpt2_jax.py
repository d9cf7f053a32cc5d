"""GPT-2's loss in plain JAX as it is fast on a GPU: bfloat16 with float32 parameters, attention by cuDNN, no float32 logits.

q, k and v are three products, so that nothing is sliced and joined; the loss is taken of a part of the tokens at a time, and
its gradient in the same pass.
"""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu.jax_parts import attention, cross_entropy, linear
from pcp.models.config import DecoderConfig

Tree = Any


def _norm(x: Any, p: Tree) -> Any:
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    y = (wide - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"]
    return (y + p["bias"] if "bias" in p else y).astype(jnp.bfloat16)


def _attention(x: Any, p: Tree, heads: int) -> Any:
    batch, length, width = x.shape
    weights = jnp.split(p["qkv"]["weight"], 3, axis=1)
    biases = jnp.split(p["qkv"]["bias"], 3) if "bias" in p["qkv"] else [None] * 3
    q, k, v = (
        linear(x, weight, bias).reshape(batch, length, heads, width // heads)
        for weight, bias in zip(weights, biases, strict=True)
    )
    mixed = attention(q, k, v)
    return linear(mixed.reshape(batch, length, width), **p["out"])


def _block(x: Any, p: Tree, heads: int) -> Any:
    x = x + _attention(_norm(x, p["ln_1"]), p["attn"], heads)
    hidden = jax.nn.gelu(linear(_norm(x, p["ln_2"]), **p["mlp"]["up"]))
    return x + linear(hidden, **p["mlp"]["down"])


def loss(params: Tree, tokens: Any, targets: Any, config: DecoderConfig) -> Any:
    """The mean cross entropy of the next token."""
    x = (params["wte"][tokens] + params["wpe"][: tokens.shape[1]]).astype(jnp.bfloat16)
    for block in params["blocks"]:
        x = _block(x, block, config.heads)
    x = _norm(x, params["ln_f"]).reshape(-1, config.width)
    return cross_entropy(x, params["wte"].astype(jnp.bfloat16), targets.reshape(-1))
