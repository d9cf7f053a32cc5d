"""Attention of sequences of different lengths as its definition says it: each sequence is cut to its length."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tests.execution import run_in_jax


def cut_to_lengths(
    q: Any,
    k: Any,
    v: Any,
    lengths: tuple[Any, Any],
    *,
    causal: bool = False,
    window: int | None = None,
    cap: float | None = None,
    mask: Any = None,
) -> Any:
    """Attention of (batch, length, heads, width) in JAX; 0 for queries that do not count or see no key.

    Arguments:
        lengths: how many queries and how many keys count in each sequence.
        mask: of all scores, in addition.
    """
    share, width = q.shape[2] // k.shape[2], q.shape[3]
    offset = k.shape[1] - q.shape[1]
    whole = []
    for b, (rows, columns) in enumerate(zip(*lengths, strict=True)):
        i, j = np.indices((rows, columns))
        seen = np.ones((q.shape[2], rows, columns), bool)
        if causal:
            seen &= j <= i + offset
        if window is not None:
            seen &= j > i + offset - window
        if mask is not None:
            seen &= np.broadcast_to(mask, (len(q), q.shape[2], q.shape[1], k.shape[1]))[b, :, :rows, :columns]
        heads = []
        for h in range(q.shape[2]):
            some = seen[h].any(-1)
            scores = q[b, :rows, h][some] @ k[b, :columns, h // share].T / np.sqrt(width)
            if cap is not None:
                scores = cap * jnp.tanh(scores / cap)
            weights = jax.nn.softmax(jnp.where(seen[h][some], scores, -jnp.inf), -1)
            empty = jnp.zeros((q.shape[1], width), q.dtype)
            heads.append(empty.at[np.flatnonzero(some)].set(weights @ v[b, :columns, h // share]))
        whole.append(jnp.stack(heads, 1))
    return jnp.stack(whole)


def result_and_cotangents(function: Callable[..., Any], *operands: Any, cotangent: Any) -> list[Any]:
    """A function of JAX arrays and its gradient, in float64."""

    def both(g: Any, *x: Any) -> Any:
        y, pull = jax.vjp(function, *x)
        return y, *pull(g)

    return [np.asarray(x) for x in run_in_jax(both, cotangent, *operands)]


def drawn(
    queries: int, keys: int, heads: int, groups: int, width: int, seed: int, batch: int = 3
) -> list[Any]:
    """Random query, key, value and cotangent of the result, float64."""
    random = np.random.default_rng((seed, queries, keys))
    shapes = ((queries, heads), (keys, groups), (keys, groups), (queries, heads))
    return [random.normal(size=(batch, *shape, width)) for shape in shapes]


def spoiled(operands: list[Any], lengths: tuple[Any, Any]) -> list[Any]:
    """NaN, and infinities, beyond the lengths."""
    made = [x.copy() for x in operands]
    for x, ends in zip(made, (lengths[0], lengths[1], lengths[1], lengths[0]), strict=False):
        for b, end in enumerate(ends):
            x[b, end:] = np.nan if b % 2 else np.inf
    return made
