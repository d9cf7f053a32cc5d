"""Multi-head attention."""

import math
from typing import Any

from pcp.nn.layers import linear
from pcp.ops.elementwise import greater_equal, where
from pcp.ops.linear_algebra import dot_general
from pcp.ops.movement import iota, reshape, split, transpose
from pcp.ops.normalizing import softmax
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor, explained


@explained
def scaled_dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    causal: bool = False,
    mask: TensorLike | None = None,
) -> Tensor:
    """softmax(query key^T / sqrt(width)) value, for every head.

    Arguments:
        query: shape (batch, queries, heads, width).
        key: shape (batch, keys, groups, width); `groups` divides `heads`, and each serves heads / groups of them.
        value: shape (batch, keys, groups, width).
        causal: query i sees the keys up to i + keys - queries only.
        mask: booleans that broadcast to (batch, heads, queries, keys), true where a query sees a key; in addition to `causal`.

    Returns:
        Shape (batch, queries, heads, width).

    Raises:
        ShapeMismatch: the shapes do not correspond.

    Source: Vaswani et al., "Attention Is All You Need", 2017, equation 1; groups: Ainslie et al., 2023.
    """
    q, k, v = as_tensor(query), as_tensor(key), as_tensor(value)
    if (
        q.ndim != 4
        or k.ndim != 4
        or k.shape != v.shape
        or q.shape[0] != k.shape[0]
        or q.shape[3] != k.shape[3]
    ):
        raise ShapeMismatch(
            f"attention: query {q.shape}, key {k.shape} and value {v.shape} were given; "
            "expected (batch, queries, heads, width) and twice (batch, keys, groups, width)"
        )
    _, queries, heads, width = q.shape
    keys, groups = k.shape[1], k.shape[2]
    if heads % groups:
        raise ShapeMismatch(f"attention: {heads} heads cannot share {groups} groups of keys evenly")
    if groups != heads:
        k, v = (_repeated(t, heads // groups) for t in (k, v))
    scores = dot_general(q, k, ((3,), (3,)), ((0, 2), (0, 2))) * (1 / math.sqrt(width))
    if causal:
        shape = (queries, keys)
        visible = greater_equal(iota(shape, 0) + (keys - queries), iota(shape, 1))
        scores = where(visible, scores, -math.inf)
    if mask is not None:
        scores = where(mask, scores, -math.inf)
    mixed = dot_general(softmax(scores), v, ((3,), (1,)), ((0, 1), (0, 2)))
    return transpose(mixed, 0, 2, 1, 3)


@explained
def attention(x: TensorLike, parameters: dict[str, Any], heads: int, causal: bool = False) -> Tensor:
    """Multi-head self-attention.

    Arguments:
        x: shape (batch, length, width).
        parameters: `qkv` (weight (width, 3 width)) and `out` (weight (width, width)), each perhaps with `bias`.
        heads: how many; they share the width evenly.
        causal: each place sees itself and those before it only.

    Returns:
        Shape (batch, length, width).

    Raises:
        ShapeMismatch: the heads do not divide the width.
    """
    q, k, v = project(x, parameters, heads)
    return merge(scaled_dot_product_attention(q, k, v, causal), parameters)


def project(x: TensorLike, parameters: dict[str, Any], heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of every head, each of shape (batch, length, heads, width / heads); arguments as of `attention`."""
    tensor = as_tensor(x)
    batch, length, width = tensor.shape
    if width % heads:
        raise ShapeMismatch(f"attention: a width of {width} cannot be shared by {heads} heads evenly")
    shape = (batch, length, heads, width // heads)
    q, k, v = (reshape(part, shape) for part in split(linear(tensor, **parameters["qkv"]), 3, axis=2))
    return q, k, v


def merge(mixed: Tensor, parameters: dict[str, Any]) -> Tensor:
    """The heads (batch, length, heads, width / heads) joined and projected to (batch, length, width)."""
    batch, length, heads, width = mixed.shape
    return linear(reshape(mixed, (batch, length, heads * width)), **parameters["out"])


def _repeated(tensor: Tensor, times: int) -> Tensor:
    batch, keys, groups, width = tensor.shape
    wide = reshape(tensor, (batch, keys, groups, 1, width)).broadcast_to((batch, keys, groups, times, width))
    return reshape(wide, (batch, keys, groups * times, width))
