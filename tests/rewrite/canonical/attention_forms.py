"""Attention as people write it in JAX, and what its canonical form says."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

B, N, H, D = 2, 6, 4, 8
ROW, COLUMN = np.indices((N, N))
LOWEST = float(jnp.finfo(jnp.float32).min)


def spec(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


Q, KEYS, SEEN = spec(B, N, H, D), spec(B, N, 2, D), spec(B, N, dtype=jnp.bool_)


@dataclass(frozen=True)
class Form:
    """A way to write attention.

    Arguments:
        function: of query, key, value and what else there is.
        specs: of them.
        says: attributes of the composite, those that matter; "mask" and "bias" by their axes.
        cuda: the kernels for GPUs, besides those of StableHLO.
    """

    function: Callable[..., Any]
    specs: tuple[Any, ...] = (Q, Q, Q)
    says: tuple[tuple[str, Any], ...] = (("causal", True), ("offset", 0))
    cuda: str = "cudnn triton"


def mixed(scores: Any, v: Any) -> Any:
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)


def product(q: Any, k: Any) -> Any:
    return jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(D)


def seen(mask: Callable[..., Any], fill: float = -1e9) -> Callable[..., Any]:
    return lambda q, k, v, *more: mixed(jnp.where(mask(*more), product(q, k), fill), v)


def hidden(mask: Callable[..., Any], fill: float = -jnp.inf) -> Callable[..., Any]:
    return lambda q, k, v, *more: mixed(jnp.where(mask(*more), fill, product(q, k)), v)


def added(bias: Callable[..., Any]) -> Callable[..., Any]:
    return lambda q, k, v, *more: mixed(product(q, k) + bias(*more), v)


def tril() -> Any:
    return jnp.tril(jnp.ones((N, N), bool))


def ones(kind: Any = bool) -> Any:
    return jnp.ones((N, N), kind)


def distance() -> Any:
    return jnp.arange(N)[:, None] - jnp.arange(N)


def packed() -> Any:
    """Two sequences in one, as `cumsum` of where they begin numbers them."""
    number = jnp.cumsum(jnp.arange(N) % 3 == 0)
    return (number[:, None] == number) & tril()


def flipped(row: int, column: int) -> Any:
    """A causal mask of which one element is another."""
    return (COLUMN <= ROW) ^ ((row == ROW) & (column == COLUMN))


def guarded(q: Any, k: Any, v: Any) -> Any:
    mask = tril()[None, None]
    weights = jax.nn.softmax(jnp.where(mask, product(q, k), -jnp.inf), -1)
    return jnp.einsum("bhqk,bkhd->bqhd", jnp.where(mask.any(-1, keepdims=True), weights, 0.0), v)


def joined(q: Any, k: Any, v: Any) -> Any:
    """As `bmm` of PyTorch takes heads: joined to the batch, and apart for the mask."""
    q, k, v = (x.transpose(0, 2, 1, 3).reshape(B * H, N, D) for x in (q, k, v))
    scores = jnp.einsum("nqd,nkd->nqk", q, k).reshape(B, H, N, N)
    weights = jax.nn.softmax(jnp.where(tril(), scores, -1e9), -1).reshape(B * H, N, N)
    return jnp.einsum("nqk,nkd->nqd", weights, v).reshape(B, H, N, D)


def joined_for_long(q: Any, k: Any, v: Any) -> Any:
    """As DeBERTa of transformers: scores are scaled and added to before heads are apart."""
    q, k, v = (x.transpose(0, 2, 1, 3).reshape(B * H, N, D) for x in (q, k, v))
    scores = jnp.einsum("nqd,ndk->nqk", q, k.transpose(0, 2, 1) / math.sqrt(D))
    slopes = jnp.tile(jnp.asarray([0.5, 0.25, 0.1, 0.05]), B)[:, None, None]
    scores = (scores + jnp.arange(N) * slopes).reshape(B, H, N, N)
    weights = jax.nn.softmax(jnp.where(tril(), scores, -1e9), -1)
    return jnp.einsum("bhqk,bhkd->bqhd", weights, v.reshape(B, H, N, D))


def turned(q: Any, k: Any, v: Any) -> Any:
    """As UNets write it: values are first, and weights have the keys before the queries."""
    weights = jax.nn.softmax(jnp.where(tril(), product(q, k), -1e9), -1).transpose(0, 1, 3, 2)
    return jnp.matmul(v.transpose(0, 2, 3, 1), weights).transpose(0, 3, 1, 2)


def repeated(q: Any, k: Any, v: Any) -> Any:
    return seen(tril)(q, jnp.repeat(k, 2, 2), jnp.repeat(v, 2, 2))


def shared(q: Any, k: Any, v: Any) -> Any:
    return seen(tril)(q, *(jnp.broadcast_to(x[:, :, :1], (B, N, H, D)) for x in (k, v)))


def tiled(q: Any, k: Any, v: Any) -> Any:
    """Each key serves heads that are not beside one another."""
    return seen(tril)(q, jnp.tile(k, (1, 1, 2, 1)), jnp.tile(v, (1, 1, 2, 1)))


def of_heads(q: Any, k: Any, v: Any) -> Any:
    """Each head sees other keys."""
    mask = (COLUMN + ROW) % np.arange(2, 2 + H)[:, None, None] == 0
    return seen(lambda: mask | np.eye(N, dtype=bool))(q, jnp.repeat(k, 2, 2), jnp.repeat(v, 2, 2))


def spread(q: Any, k: Any, v: Any) -> Any:
    """As `repeat_kv` of transformers: heads first, then an axis that is repeated and joined."""
    k, v = (x.transpose(0, 2, 1, 3)[:, :, None] for x in (k, v))
    k, v = (jnp.broadcast_to(x, (B, 2, 2, N, D)).reshape(B, H, N, D) for x in (k, v))
    scores = jnp.einsum("bqhd,bhkd->bhqk", q, k)
    return jnp.einsum("bhqk,bhkd->bqhd", jax.nn.softmax(jnp.where(tril(), scores, -jnp.inf), -1), v)


def twice(q: Any, k: Any, v: Any, m: Any) -> Any:
    scores = jnp.where(tril(), product(q, k), -jnp.inf)
    return mixed(jnp.where(m[:, None, None], scores, -jnp.inf), v)


def of_flax(m: Any) -> Any:
    """Masks of flax are numbers, multiplied and compared with 0."""
    pairs = jnp.multiply(m[:, :, None].astype(jnp.float32), m[:, None].astype(jnp.float32))[:, None]
    return jnp.logical_and(tril()[None, None], pairs).astype(jnp.float32)


def alibi() -> Any:
    slopes = jnp.asarray([0.5, 0.25, 0.1, 0.05])[:, None, None]
    return jnp.where(tril(), -abs(distance()) * slopes, -jnp.inf)


def padded(q: Any, k: Any, v: Any, m: Any) -> Any:
    return seen(lambda m: m[:, None, None], -jnp.inf)(q, k, v, m)


FULL = (("causal", False), ("mask", None), ("bias", None))
WINDOW = (("causal", True), ("offset", 0), ("window", 3))
PADDING = (("causal", True), ("offset", 0), ("mask", (0, 3)))
WITH = (Q, Q, Q, SEEN)

FORMS: dict[str, Form] = {
    "a fill of -1e9": Form(seen(tril)),
    "the lowest float": Form(seen(tril, LOWEST)),
    "not the triangle": Form(hidden(lambda: ~tril(), -1e10)),
    "above the triangle": Form(hidden(lambda: jnp.triu(ones(jnp.float32), 1) > 0)),
    "the triangle is 0": Form(hidden(lambda: jnp.tril(ones(jnp.float32)) == 0)),
    "an array of NumPy": Form(seen(lambda: np.tril(np.ones((1, 1, N, N), bool)))),
    "added, by choice": Form(added(lambda: jnp.where(tril(), 0.0, -1e9))),
    "added, by a product": Form(added(lambda: (1 - jnp.tril(ones(jnp.float32))) * -1e9)),
    "added, infinite": Form(added(lambda: jnp.triu(jnp.full((N, N), -jnp.inf), 1))),
    "a number of places": Form(seen(lambda: jnp.cumsum(ones(jnp.int32), 1) <= jnp.arange(1, N + 1)[:, None])),
    "a guard": Form(guarded),
    "joined heads": Form(joined),
    "heads joined for long": Form(joined_for_long, says=(("causal", True), ("bias", (0, 1, -3, 3))), cuda="triton"),
    "weights turned": Form(turned),
    "repeated keys": Form(repeated, (Q, KEYS, KEYS), (("causal", True), ("key", (0, 4, 1, -1)))),
    "spread keys": Form(spread, (Q, KEYS, KEYS), (("causal", True), ("key", (0, 1, 4, -1)))),
    "one key for all heads": Form(shared, (Q, KEYS, KEYS), (("causal", True), ("key", (0, 4, 1, -1)))),
    "keys in another order": Form(tiled, (Q, KEYS, KEYS), (("causal", True), ("key", (0, 3, 1, -1)))),
    "a mask for each head": Form(of_heads, (Q, KEYS, KEYS), (("mask", (1, 2, 3, 4)), ("key", (0, 4, 1, -1)))),
    "all ones": Form(seen(ones), says=FULL),
    "from place 0": Form(seen(lambda: jnp.broadcast_to(jnp.arange(N) >= 0, (B, 1, N, N))), says=FULL),
    "a bias of zeros": Form(added(lambda: jnp.zeros((1, 1, N, N))), says=FULL),
    "a window": Form(seen(lambda: (abs(distance()) < 3) & tril()), says=WINDOW),
    "a window of NumPy": Form(seen(lambda: (COLUMN <= ROW) & (ROW - COLUMN < 3)), says=WINDOW),
    "around a place": Form(seen(lambda: abs(distance()) < 3), says=(("offset", 2), ("window", 5)), cuda="triton"),
    "padding": Form(padded, WITH, (("causal", False), ("mask", (0, 3)))),
    "padding and causal": Form(seen(lambda m: m[:, None, None] & tril(), -jnp.inf), WITH, PADDING),
    "padding, then causal": Form(twice, WITH, PADDING),
    "padding is hidden": Form(hidden(lambda m: ~m[:, None, None] | ~tril()), WITH, PADDING),
    "padding of both": Form(
        seen(lambda m: m[:, None, None] & m[:, None, :, None] & tril()),
        WITH,
        (("causal", True), ("mask", (0, -3, 2, 3))),
        "triton",
    ),
    "padding in numbers": Form(seen(of_flax, LOWEST), WITH, (("causal", True), ("mask", (0, -3, 2, 3))), "triton"),
    "a bias and causal": Form(added(alibi), says=(("causal", True), ("bias", (1, 2, 3)))),
    "two sequences in one": Form(seen(packed, -jnp.inf), says=(("mask", (2, 3)),)),
    "one key less": Form(seen(lambda: flipped(4, 1), -jnp.inf), says=(("mask", (2, 3)),)),
    "one key more": Form(seen(lambda: flipped(1, 4), -jnp.inf), says=(("mask", (2, 3)),)),
    "the first keys": Form(
        seen(lambda: jnp.arange(N) < 4), says=(("causal", False), ("mask", (3,)))
    ),
    "a small fill": Form(seen(lambda: tril(), -2e4), cuda="triton"),
}  # fmt: skip
