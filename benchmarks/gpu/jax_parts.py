"""Parts of a decoder's loss in plain JAX as they are fast on a GPU: attention by cuDNN, a loss without all logits in memory.

The loss is taken of a part of the tokens at a time, and its gradient in the same pass.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

PARTS = 4
"""Of the tokens, for the loss."""


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """x @ weight + bias in bfloat16, of float32 weights."""
    y = x @ weight.astype(jnp.bfloat16)
    return y if bias is None else y + bias.astype(jnp.bfloat16)


def attention(q: Any, k: Any, v: Any) -> Any:
    """Causal attention of (batch, length, heads, width), by cuDNN where there is a GPU."""
    implementation = "cudnn" if jax.default_backend() == "gpu" else "xla"
    return jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=implementation)


@functools.partial(jax.custom_vjp)
def cross_entropy(x: Any, weight: Any, targets: Any) -> Any:
    """The mean cross entropy of x @ weight.T; the bfloat16 shapes are (tokens, width) and (vocabulary, width)."""
    return _with_gradient(x, weight, targets)[0]


def _with_gradient(x: Any, weight: Any, targets: Any) -> Any:
    parts = [each.reshape(PARTS, -1, *each.shape[1:]) for each in (x, targets)]

    def one(carry: Any, part: Any) -> Any:
        total, of_weight = carry
        rows, right = part
        logits = (rows @ weight.T).astype(jnp.float32)
        normaliser = jax.nn.logsumexp(logits, axis=-1)
        total += (normaliser - jnp.take_along_axis(logits, right[:, None], axis=-1)[:, 0]).sum()
        hot = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) == right[:, None]
        gradient = ((jnp.exp(logits - normaliser[:, None]) - hot) / len(x)).astype(jnp.bfloat16)
        of_weight += jnp.matmul(gradient.T, rows, preferred_element_type=jnp.float32)
        return (total, of_weight), gradient @ weight

    start = (jnp.float32(0), jnp.zeros(weight.shape, jnp.float32))
    (total, of_weight), of_x = jax.lax.scan(one, start, tuple(parts))
    return total / len(x), (of_x.reshape(x.shape), of_weight)


def _backward(kept: Any, cotangent: Any) -> Any:
    of_x, of_weight = kept
    return (of_x * cotangent).astype(jnp.bfloat16), (of_weight * cotangent).astype(jnp.bfloat16), None


cross_entropy.defvjp(_with_gradient, _backward)
