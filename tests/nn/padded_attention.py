"""Attention of sequences of different lengths as its definition says it: each sequence is cut to its length."""

from typing import Any

import numpy as np


def attended(
    q: Any,
    k: Any,
    v: Any,
    cotangent: Any,
    lengths: tuple[Any, Any],
    *,
    causal: bool = False,
    window: int | None = None,
    cap: float | None = None,
    mask: Any = None,
    bias: Any = None,
) -> list[Any]:
    """Attention of (batch, length, heads, width) in float64, and the cotangents of query, key and value.

    The result is 0 for queries that do not count or see no key.

    Arguments:
        cotangent: of the result.
        lengths: how many queries and how many keys count in each sequence.
        mask: of all scores, in addition.
        bias: that is added to the scores of each head.
    """
    q, k, v, cotangent = (np.asarray(x, np.float64) for x in (q, k, v, cotangent))
    share, root, offset = q.shape[2] // k.shape[2], np.sqrt(q.shape[3]), k.shape[1] - q.shape[1]
    made = [np.zeros(x.shape) for x in (cotangent, q, k, v)]
    for b, h in np.ndindex(len(q), q.shape[2]):
        rows, columns = lengths[0][b], lengths[1][b]
        i, j = np.indices((rows, columns))
        seen = np.ones((rows, columns), bool)
        if causal:
            seen &= j <= i + offset
        if window is not None:
            seen &= j > i + offset - window
        if mask is not None:
            seen &= np.broadcast_to(mask, (len(q), q.shape[2], q.shape[1], k.shape[1]))[b, h, :rows, :columns]
        some = np.flatnonzero(seen.any(-1))
        if not len(some):
            continue
        keys, values = (x[b, :columns, h // share] for x in (k, v))
        queries, given = q[b, some, h], cotangent[b, some, h]
        bent = np.tanh(queries @ keys.T / root / cap) if cap is not None else 0.0
        scores = queries @ keys.T / root if cap is None else cap * bent
        scores = np.where(seen[some], scores if bias is None else scores + bias[h, some, :columns], -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        change = given @ values.T
        change = weights * (change - (weights * change).sum(-1, keepdims=True)) * (1 - bent**2) / root
        made[0][b, some, h] = weights @ values
        made[1][b, some, h] = change @ keys
        made[2][b, :columns, h // share] += change.T @ queries
        made[3][b, :columns, h // share] += weights.T @ given
    return made


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
