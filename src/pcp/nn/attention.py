"""Multi-head attention."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pcp.composites import named
from pcp.ir.composites import Number
from pcp.ir.composites.records import ATTENTION
from pcp.nn.layers import linear
from pcp.nn.lengths import Padded, lengths_of
from pcp.ops.elementwise import greater, greater_equal, tanh, where
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import iota, reshape, split, transpose
from pcp.ops.normalizing import softmax, softmax_form
from pcp.ops.promotion import broadcast_shape
from pcp.ops.reductions.primitives import narrowed, widened
from pcp.rewrite.raising.attention import BROADCAST, CONTRACTED, FREE
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, TracingError, as_tensor, explained

Softmax = Callable[[Tensor], Tensor]

FURTHEST = 1 << 30
"""A window, at most: more keys than there are, and numbers of places stay within 32 bits."""


class InvalidWindow(TracingError):
    """A window that is no number of keys, or is asked for where queries see later keys, too."""


class InvalidCap(TracingError):
    """A bound of scores that is no number above 0."""


@explained
def scaled_dot_product_attention(
    query: TensorLike,
    key: TensorLike,
    value: TensorLike,
    causal: bool = False,
    mask: TensorLike | None = None,
    window: int | None = None,
    cap: float | None = None,
    query_lengths: TensorLike | None = None,
    key_lengths: TensorLike | None = None,
) -> Tensor:
    """softmax(query key^T / sqrt(width)) value, for every head.

    Arguments:
        query: shape (batch, queries, heads, width).
        key: shape (batch, keys, groups, width); `groups` divides `heads`, and each serves heads / groups of them.
        value: shape (batch, keys, groups, width).
        causal: query i sees the keys up to i + keys - queries only.
        mask: booleans that broadcast to (batch, heads, queries, keys), true where a query sees a key; in addition to `causal`.
        window: of the keys that a causal query sees, it sees the last ones only, so many at most; None: all of them.
        cap: scores become cap * tanh(scores / cap) before keys are hidden, so none is larger; None: they stay.
        query_lengths: whole numbers of shape (batch,): so many queries of each sequence count, the first ones; None: all.
        key_lengths: the same of keys and values; None: all.

    Returns:
        Shape (batch, queries, heads, width). Where lengths are given, a query beyond its length gives 0, and so does one that
        sees no key. What stands beyond a length counts in no result and no gradient, be it infinite or NaN, and its own
        gradient is 0.

    Raises:
        ShapeMismatch: the shapes do not correspond.
        InvalidWindow: the window is below 1, or there is one without `causal`.
        InvalidCap: the cap is no number above 0.
        DTypeMismatch: lengths are no whole numbers.

    Source: Vaswani et al., "Attention Is All You Need", 2017, equation 1; groups: Ainslie et al., 2023;
    windows: Beltagy et al., "Longformer: The Long-Document Transformer", 2020; caps: Gemma Team, "Gemma 2", 2024, section 2.
    """
    q, k, v = as_tensor(query), as_tensor(key), as_tensor(value)
    _check(q, k, v, causal, window, cap)
    batch, queries, heads, width = q.shape
    keys, groups = k.shape[1], k.shape[2]
    window = None if window is None else min(window, FURTHEST)
    shared = heads // groups
    masks = [] if mask is None else [_broadcasting(as_tensor(mask), (batch, heads, queries, keys))]
    lengths = {
        kind: lengths_of(kind, as_tensor(lengths_given), batch, most)
        for kind, lengths_given, most in (
            ("query_lengths", query_lengths, queries),
            ("key_lengths", key_lengths, keys),
        )
        if lengths_given is not None
    }
    if shared > 1:  # queries that share keys have an axis of their own, so that no key is written twice
        q = reshape(q, (batch, queries, groups, shared, width))
        masks = [_in_groups(each, groups) for each in masks]
    axis = q.ndim - 1
    shape = (batch, groups, queries, *([shared] if shared > 1 else []), keys)

    def scored(q: Tensor, k: Tensor) -> Tensor:
        scores = dot_general(q, k, ((axis,), (3,)), ((0, 2), (0, 2))) * (1 / math.sqrt(width))
        return scores if cap is None else tanh(scores * (1 / cap)) * cap

    def seen(masks: Sequence[Tensor]) -> Iterator[Tensor]:
        if causal:
            places = (queries, keys)
            last = iota(places, 0) + (keys - queries)
            visible = greater_equal(last, iota(places, 1))
            if window is not None:
                visible = visible & greater(iota(places, 1), last - window)
            yield reshape(visible, (queries, 1, keys)) if shared > 1 else visible
        yield from masks

    def form(softmax: Softmax, q: Tensor, k: Tensor, v: Tensor, *further: Tensor) -> Tensor:
        visible = seen(further[: len(masks)])
        if not lengths:
            scores = functools.reduce(
                lambda scores, each: where(each, scores, -math.inf), visible, scored(q, k)
            )
            return mixed(softmax(scores), v)
        padded = Padded(shape, dict(zip(lengths, further[len(masks) :], strict=True)))
        q, k, v = padded.query(q), padded.key(k), padded.key(v)
        looks, counts = padded.seen(visible)
        scores = scored(q, k)
        weights = softmax(scores if looks is None else where(looks, scores, -math.inf))
        return where(counts, mixed(weights, v), 0.0)

    def mixed(weights: Tensor, v: Tensor) -> Tensor:
        return dot_general(weights, v, ((axis,), (1,)), ((0, 1), (0, 2)))

    attributes = _attributes(shape, masks, bool(masks or lengths), causal) | {"scale": 1 / math.sqrt(width)}
    if lengths:
        attributes |= {"queries": 2, **dict.fromkeys(lengths, (0,))}
    if window is not None:
        attributes["window"] = window
    if cap is not None:
        attributes["cap"] = float(cap)
    mixed_values = named_attention(form, (q, k, v), [*masks, *lengths.values()], attributes)
    return reshape(
        transpose(mixed_values, (0, 2, 1, *range(3, mixed_values.ndim))), (batch, queries, heads, width)
    )


def _check(q: Tensor, k: Tensor, v: Tensor, causal: bool, window: int | None, cap: float | None) -> None:
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
    heads, groups = q.shape[2], k.shape[2]
    if heads % groups:
        raise ShapeMismatch(f"attention: {heads} heads cannot share {groups} groups of keys evenly")
    if window is not None and not (causal and window >= 1):
        wrong = "without causal=True" if window >= 1 else f"of {window}"
        raise InvalidWindow(
            f"attention: a window {wrong} was given; expected 1 key or more, the last of those that a causal query sees"
        )
    if cap is not None and not 0 < cap < math.inf:
        raise InvalidCap(f"attention: a cap of {cap} was given; expected a finite number above 0")


def _broadcasting(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    if broadcast_shape("attention", shape, mask.shape) != shape:
        raise ShapeMismatch(
            f"attention: a mask {mask.shape} was given; expected one that broadcasts to {shape}"
        )
    return mask


def _in_groups(mask: Tensor, groups: int) -> Tensor:
    """A mask for scores with the axes batch, groups, queries, heads of a group, keys."""
    sizes = (1,) * (4 - mask.ndim) + mask.shape
    each = (groups, sizes[1] // groups) if sizes[1] > 1 else (1, 1)
    return transpose(reshape(mask, (sizes[0], *each, *sizes[2:])), (0, 1, 3, 2, 4))


def _attributes(
    shape: tuple[int, ...], masks: Sequence[Tensor], hides: bool, causal: bool
) -> dict[str, Number]:
    """The attributes but the scale, for scores of a shape (batch, groups, queries, [heads of a group,] keys)."""
    batch, head, query_axis, *shared, key_axis = range(len(shape))
    attributes: dict[str, Number] = {
        "query": (batch, query_axis, head, *shared, CONTRACTED), "key": (batch, key_axis, head, CONTRACTED),
        "value": (batch, key_axis, head, FREE), "result": (batch, head, query_axis, *shared, FREE), "axis": key_axis,
        "causal": causal,
    }  # fmt: skip
    if causal:
        attributes |= {"offset": shape[key_axis] - shape[query_axis], "queries": query_axis}
    if causal or hides:
        attributes["fill"] = -math.inf
    for mask in masks:
        attributes["mask"] = axes_of_mask(mask, shape)
    return attributes


def named_attention(
    form: Callable[..., Tensor],
    operands: tuple[Tensor, Tensor, Tensor],
    others: Sequence[Tensor],
    attributes: Mapping[str, Number],
) -> Tensor:
    """The composite `pcp.attention`, where softmax is taken of numbers of the operands' type; else what it is made of.

    Arguments:
        form: the result, from how softmax is taken of scores, query, key, value and the other operands.
        operands: query, key and value.
        others: masks, then lengths.
        attributes: as `pcp.rewrite.raising.attention` has them.
    """
    dtype, axis = operands[0].dtype, attributes["axis"]
    assert isinstance(axis, int)
    if not all(x.dtype is dtype and x.dtype.is_float and x.dtype.itemsize >= 4 for x in operands):
        return form(lambda scores: narrowed(softmax(widened(scores), axis), scores.dtype), *operands, *others)
    scale = float(np.asarray(attributes["scale"], dtype.numpy))
    return named(
        ATTENTION,
        functools.partial(form, lambda scores: softmax_form(scores, axis)),
        [*operands, *others],
        {**attributes, "scale": scale},
    )


def axes_of_mask(mask: Tensor, scores: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of the scores that a mask runs along, where it broadcasts to their shape."""
    first = len(scores) - mask.ndim
    return tuple(
        axis if size == scores[axis] else BROADCAST for axis, size in enumerate(mask.shape, start=first)
    )


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
