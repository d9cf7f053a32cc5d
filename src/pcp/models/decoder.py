"""One decoder: what it computes is said by a `DecoderConfig`, and how it reads by what its attention looks at.

Source: Vaswani et al., "Attention Is All You Need", 2017; Radford et al., "Language Models are Unsupervised Multitask
Learners", 2019; Touvron et al., "LLaMA", 2023. What a row may differ in is from `pcp.models.config`.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pcp import nn
from pcp.ir import DType, DTypeLike
from pcp.models import paged
from pcp.models.config import DecoderConfig, Rotary
from pcp.models.experts import experts
from pcp.models.initial import initial_parameters as initial_parameters
from pcp.models.initial import named
from pcp.models.initial import parameter_shapes as parameter_shapes
from pcp.models.parameters import Parameters
from pcp.nn.attention import merge, project
from pcp.ops.elementwise import clip, convert, exp, log, maximum, tanh, where
from pcp.ops.indexing.reading import take
from pcp.ops.movement import concatenate, iota, reshape, slice_
from pcp.ops.reductions.primitives import mean, widened
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor

Cache = paged.Cache
Mix = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""Attention of a block, from its number, and query, key and value of its tokens."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": nn.gelu,
    "gelu": lambda x: nn.gelu(x, approximate=False),
    "silu": nn.silu,
    "relu": nn.relu,
}


def logits(parameters: Parameters, tokens: TensorLike, config: DecoderConfig) -> Tensor:
    """Scores of every next token.

    Arguments:
        tokens: integers of shape (batch, length), length at most the context.

    Returns:
        Shape (batch, length, vocabulary).

    Raises:
        ShapeMismatch: the tokens have another rank, or are more than the context.
    """
    return _scores(parameters, _of_sequences(parameters, tokens, config), config)


def loss(parameters: Parameters, tokens: TensorLike, targets: TensorLike, config: DecoderConfig) -> Tensor:
    """The mean cross entropy of the next token, in nats.

    Arguments:
        tokens: integers of shape (batch, length).
        targets: the token that follows each, of the same shape.
    """
    return nn.cross_entropy(logits(parameters, tokens, config), targets)


def window_losses(
    parameters: Parameters, tokens: TensorLike, targets: TensorLike, config: DecoderConfig
) -> Tensor:
    """The mean cross entropy of each sequence alone, of shape (batch,): what validation averages exactly."""
    return mean(nn.negative_log_likelihood(logits(parameters, tokens, config), targets), axis=1)


def empty_cache(config: DecoderConfig, pages: int, page: int, dtype: DTypeLike = "f32") -> Cache:
    """A cache before the first token, as `read` takes it: for each layer `key` and `value`, zeros of shape
    (pages, page, heads of keys, width of a head).

    Arguments:
        pages: how many there are; page 0 belongs to no row.
        page: tokens of a page.
        dtype: element type of what is kept.
    """
    return paged.empty(config.layers, pages, page, config.key_value_heads, config.head_width, dtype)


def read(
    parameters: Parameters,
    cache: Cache,
    tokens: TensorLike,
    start: TensorLike,
    count: TensorLike,
    table: TensorLike,
    config: DecoderConfig,
    every: bool = False,
    length: TensorLike | None = None,
    apart: bool = False,
) -> tuple[Cache, Tensor]:
    """Take in the next tokens of many rows and score what follows.

    One function decodes (a chunk of 1), reads prompts in chunks, batches both, and scores guesses. What a row gives depends on
    its own tokens only.

    Arguments:
        cache: as of `empty_cache`.
        tokens: integers of shape (rows, chunk); those beyond a row's count do not matter, but are tokens of the vocabulary.
        start: the place of each row's first token, integers of shape (rows,).
        count: how many of the chunk are tokens, integers of shape (rows,); 0 for an idle row, which writes nothing.
        table: the pages of each row in the order of places, integers of shape (rows, pages of a row). They hold the places
            below start + count; the rest may be 0. No page is in two rows, unless both only read it.
        every: whether all places are scored, and not only the last token of each row.
        length: how long each text is, integers of shape (rows,), of which this may be a part; None: start + count. Models whose
            places turn otherwise in longer texts (`Rotary.growth`, `Rotary.long_speeds`) read a prompt in chunks as they do
            at once only if it is given; others do not look at it.
        apart: whether experts are computed for their own tokens alone, in a loop: it pays on processors.

    Returns:
        The cache with these tokens, and scores of shape (rows, vocabulary), or (rows, chunk, vocabulary); those of an idle row,
        or beyond a row's count, mean nothing.

    Raises:
        ShapeMismatch: the shapes do not belong together.
    """
    chunk, grown = paged.Chunk.of(tokens, start, count, table), []

    def mix(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        grown.append(chunk.written(cache[layer], k, v))
        return chunk.attended(q, grown[layer], config.window_of(layer), config.attention_cap)

    lengths = chunk.lengths if length is None else as_tensor(length)
    x = _residual_stream(parameters, as_tensor(tokens), chunk.places, lengths, config, mix, apart)
    return grown, _scores(parameters, x, config) if every else _scores(parameters, chunk.last(x), config)[
        :, 0
    ]


def _of_sequences(parameters: Parameters, tokens: TensorLike, config: DecoderConfig) -> Tensor:
    """What the last block leaves of whole sequences, (batch, length, width)."""
    ids, context = as_tensor(tokens), config.context
    if ids.ndim != 2 or ids.shape[1] > context:
        raise ShapeMismatch(
            f"tokens {ids.shape} do not fit a {config.family} with a context of {context}; expected (batch, length), "
            f"length at most {context}"
        )

    def mix(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        window, cap = config.window_of(layer), config.attention_cap
        return nn.scaled_dot_product_attention(q, k, v, causal=True, window=window, cap=cap)

    return _residual_stream(parameters, ids, None, ids.shape[1], config, mix)


def _residual_stream(
    parameters: Parameters,
    ids: Tensor,
    places: Tensor | None,
    lengths: Tensor | int,
    config: DecoderConfig,
    mix: Mix,
    apart: bool = False,
) -> Tensor:
    """What the last block leaves of tokens, (rows, chunk, width).

    Arguments:
        ids: tokens (rows, chunk).
        places: where they stand, (rows, chunk); None: from 0 on.
        lengths: how long each text is with them, (rows,).
    """
    x = nn.embedding(ids, parameters[named("embedding", config)])
    if config.embedding_scale != 1:
        x = x * config.embedding_scale
    if config.rotary is None:
        table = parameters[named("places", config)]
        x = x + (
            slice_(table, (0, 0), (ids.shape[1], config.width)) if places is None else take(table, places, 0)
        )
    at = iota((ids.shape[1],)) if places is None else places
    for layer, block in enumerate(parameters["blocks"]):
        normed = _normed(x, block[named("norm_1", config)], config)
        q, k, v = _projected(normed, block["attn"], config)
        rotary = config.rotary_of(layer)
        if rotary is not None:
            q, k = _turned(q, at, lengths, rotary), _turned(k, at, lengths, rotary)
        if config.query_scale is not None:
            q = q * math.sqrt(config.head_width / config.query_scale)
        mixed = merge(mix(layer, q, k, v), block["attn"])
        mixed = _normed(mixed, block["norm_1_after"], config) if config.norms_after else mixed
        before, x = x, x + mixed
        read_by = before if config.parallel else x
        fed = _feed_forward(
            _normed(read_by, block[named("norm_2", config)], config),
            block["mlp"],
            layer,
            config,
            apart,
        )
        x = x + (_normed(fed, block["norm_2_after"], config) if config.norms_after else fed)
    return x


def _normed(x: Tensor, weights: Parameters, config: DecoderConfig) -> Tensor:
    if config.layer_norm:
        return nn.layer_norm(x, **weights, epsilon=config.epsilon)
    if config.one_more:
        return convert(nn.rms_norm(x, widened(weights["scale"]) + 1, config.epsilon), x.dtype)
    return nn.rms_norm(x, weights["scale"], config.epsilon)


def _projected(x: Tensor, weights: Parameters, config: DecoderConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value, of shape (rows, chunk, heads or key_value_heads, head width)."""
    if config.joined:
        return project(x, weights, config.heads)

    def one(kind: str, heads: int) -> Tensor:
        y = nn.linear(x, **weights[kind])
        norm = None if kind == "value" else config.query_key_norm
        y = _normed(y, weights[f"{kind}_norm"], config) if norm == "whole" else y
        y = y if config.clip is None else clip(y, -config.clip, config.clip)
        y = reshape(y, (*x.shape[:2], heads, config.head_width))
        return _normed(y, weights[f"{kind}_norm"], config) if norm == "head" else y

    shared = config.key_value_heads
    return one("query", config.heads), one("key", shared), one("value", shared)


def _turned(x: Tensor, places: Tensor, lengths: Tensor | int, rotary: Rotary) -> Tensor:
    """Queries or keys, their first features turned."""
    width = rotary.width or x.shape[-1]
    part = x if width == x.shape[-1] else x[..., :width]
    part = nn.rotary(part, places, rotary.base, speeds=_speeds(lengths, rotary, width))
    part = part if rotary.scale == 1 else part * rotary.scale
    return part if width == x.shape[-1] else concatenate([part, x[..., width:]], -1)


def _speeds(lengths: Tensor | int, rotary: Rotary, width: int) -> Any:
    """Radians a place of each pair, (pairs,) or (rows, 1, pairs); None: those of the base."""
    if rotary.growth == 1 and not rotary.speeds:
        return None
    if rotary.growth == 1 and (not rotary.long_speeds or isinstance(lengths, int)):
        is_long = rotary.long_speeds and isinstance(lengths, int) and lengths > rotary.original
        return np.asarray(rotary.long_speeds if is_long else rotary.speeds, np.float32)
    by_row = reshape(as_tensor(lengths), (-1, 1, 1) if isinstance(lengths, Tensor) else ())
    if rotary.growth == 1:
        short, long = (np.asarray(each, np.float32) for each in (rotary.speeds, rotary.long_speeds))
        return where(by_row > rotary.original, long, short)
    longer = convert(maximum(by_row, rotary.original), DType.f32) * (rotary.growth / rotary.original)
    base = log(longer - (rotary.growth - 1)) * (width / (width - 2)) + math.log(rotary.base)
    return exp(base * (iota((width // 2,), 0, DType.f32) * (-2 / width)))


def _feed_forward(x: Tensor, weights: Parameters, layer: int, config: DecoderConfig, apart: bool) -> Tensor:
    """SwiGLU and its like: Shazeer, "GLU Variants Improve Transformer", 2020, equation 6; or two layers."""
    activation = ACTIVATIONS[config.activation]
    if config.experts is None or not config.has_experts(layer):
        return _gated(x, weights, activation)
    y = experts(x, weights["router"], weights["experts"], config.experts, activation, apart)
    if not config.experts.shared:
        return y
    return y + nn.sigmoid(x @ weights["shared_gate"]) * _gated(x, weights["shared"], activation)


def _gated(x: Tensor, weights: Parameters, activation: Callable[[Tensor], Tensor]) -> Tensor:
    if "gate" not in weights:
        return nn.mlp(x, weights, activation)
    gate, up = nn.linear(x, **weights["gate"]), nn.linear(x, **weights["up"])
    return nn.linear(activation(gate) * up, **weights["down"])


def _scores(parameters: Parameters, x: Tensor, config: DecoderConfig) -> Tensor:
    """Scores of the next token from the residual stream."""
    head = parameters[named("embedding", config) if config.tied else "head"]
    scores = nn.unembedding(_normed(x, parameters[named("norm", config)], config), head)
    return scores if config.score_cap is None else tanh(scores * (1 / config.score_cap)) * config.score_cap
