"""GPT-2: a decoder-only transformer with learnt positions and tied embeddings.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3.
"""

import math
from dataclasses import dataclass
from typing import Any

from pcp import nn
from pcp.ir import DTypeLike
from pcp.models import caches, paged
from pcp.models.parameters import DEVIATION, InvalidConfiguration, Leaf, Parameters, described, drawn
from pcp.nn.attention import merge, project
from pcp.ops.indexing.reading import take
from pcp.ops.movement import iota, slice_
from pcp.ops.reductions.primitives import mean
from pcp.tensor import Tensor, TensorLike, as_tensor


@dataclass(frozen=True, slots=True)
class GPT2Config:
    """The sizes of a GPT-2.

    Arguments:
        layers: transformer blocks.
        heads: attention heads of each block; they share the width.
        width: size of the residual stream.
        context: longest sequence, in tokens.
        vocabulary: number of tokens.
        bias: whether linear layers and normalisations have one.
    """

    layers: int
    heads: int
    width: int
    context: int
    vocabulary: int
    bias: bool = True

    def __post_init__(self) -> None:
        if (
            min(self.layers, self.heads, self.width, self.context, self.vocabulary) < 1
            or self.width % self.heads
        ):
            raise InvalidConfiguration(
                f"{self} is not a valid GPT-2: sizes must be positive, and heads must divide width"
            )


CONFIGURATIONS = {
    "gpt2": GPT2Config(layers=12, heads=12, width=768, context=1024, vocabulary=50257),
    "gpt2-medium": GPT2Config(layers=24, heads=16, width=1024, context=1024, vocabulary=50257),
    "gpt2-large": GPT2Config(layers=36, heads=20, width=1280, context=1024, vocabulary=50257),
    "gpt2-xl": GPT2Config(layers=48, heads=25, width=1600, context=1024, vocabulary=50257),
    "gpt2-nano": GPT2Config(layers=4, heads=4, width=128, context=64, vocabulary=65, bias=False),
}


def initial_parameters(config: GPT2Config, seed: int = 0) -> Parameters:
    """Random float32 parameters: normal with deviation 0.02, residual projections with 0.02 / sqrt(2 layers).

    Arguments:
        config: the sizes.
        seed: of a counter-based generator; equal seeds give equal parameters on every machine.
    """
    return _nested(config, drawn(seed))


def parameter_shapes(config: GPT2Config) -> Parameters:
    """The `TensorSpec` of each array that `initial_parameters` makes, nested alike; no memory is taken."""
    return _nested(config, described)


def _nested(config: GPT2Config, leaf: Leaf) -> Parameters:
    width, residual = config.width, DEVIATION / math.sqrt(2 * config.layers)

    def linear(inputs: int, outputs: int, deviation: float = DEVIATION) -> Parameters:
        bias = {"bias": leaf((outputs,), 0, 0)} if config.bias else {}
        return {"weight": leaf((inputs, outputs), deviation, 0)} | bias

    def norm() -> Parameters:
        return {"scale": leaf((width,), 0, 1)} | ({"bias": leaf((width,), 0, 0)} if config.bias else {})

    return {
        "wte": leaf((config.vocabulary, width), DEVIATION, 0),
        "wpe": leaf((config.context, width), DEVIATION, 0),
        "blocks": [
            {
                "ln_1": norm(),
                "attn": {"qkv": linear(width, 3 * width), "out": linear(width, width, residual)},
                "ln_2": norm(),
                "mlp": {"up": linear(width, 4 * width), "down": linear(4 * width, width, residual)},
            }
            for _ in range(config.layers)
        ],
        "ln_f": norm(),
    }


def logits(parameters: Parameters, tokens: TensorLike, config: GPT2Config) -> Tensor:
    """Scores of every next token.

    Arguments:
        tokens: integers of shape (batch, length), length at most the context.

    Returns:
        Shape (batch, length, vocabulary).

    Raises:
        ShapeMismatch: the tokens have another rank, or are more than the context.
    """
    return _scores(parameters, _residual_stream(parameters, tokens, config)[0])


def _residual_stream(
    parameters: Parameters, tokens: TensorLike, config: GPT2Config
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """What the last block leaves of whole sequences, (batch, length, width), and the keys and values of each block."""
    ids = caches.checked_tokens(tokens, config.context, "GPT-2")
    positions = slice_(parameters["wpe"], (0, 0), (ids.shape[1], config.width))
    x = nn.embedding(ids, parameters["wte"]) + positions
    seen = []
    for block in parameters["blocks"]:
        q, k, v = project(nn.layer_norm(x, **block["ln_1"]), block["attn"], config.heads)
        seen.append((k, v))
        x = x + merge(nn.scaled_dot_product_attention(q, k, v, causal=True), block["attn"])
        x = x + nn.mlp(nn.layer_norm(x, **block["ln_2"]), block["mlp"])
    return x, seen


def _scores(parameters: Parameters, x: Tensor) -> Tensor:
    """Scores of the next token from the residual stream."""
    return nn.unembedding(nn.layer_norm(x, **parameters["ln_f"]), parameters["wte"])


def empty_cache(config: GPT2Config, batch: int = 1, dtype: DTypeLike = "f32") -> list[dict[str, Any]]:
    """Zeros for the keys and values of a whole context, per block of shape (batch, context, heads, width / heads).

    Arguments:
        config: the sizes.
        batch: sequences that are decoded together.
        dtype: element type of the parameters.
    """
    shape = (batch, config.context, config.heads, config.width // config.heads)
    return caches.zeros(config.layers, shape, dtype)


def prefill(
    parameters: Parameters, tokens: TensorLike, length: TensorLike, config: GPT2Config
) -> tuple[list[dict[str, Tensor]], Tensor]:
    """Take in the first tokens of each sequence at once and score the next: what `decode` does one token at a time.

    Arguments:
        tokens: integers of shape (batch, padded), padded at most the context. What follows the first `length` does not matter.
        length: how many tokens count, an integer scalar from 1 to padded.

    Returns:
        The cache, in which positions from `length` on hold what `decode` does not see, and scores of shape (batch, vocabulary).

    Raises:
        ShapeMismatch: the tokens have another rank, or are more than the context.
    """
    x, seen = _residual_stream(parameters, tokens, config)
    return caches.of_sequence(seen, config.context), _scores(parameters, caches.last_place(x, length))[:, 0]


def decode(
    parameters: Parameters,
    cache: list[dict[str, Tensor]],
    token: TensorLike,
    position: TensorLike,
    config: GPT2Config,
) -> tuple[list[dict[str, Tensor]], Tensor]:
    """Take in one token of each sequence and score the next.

    Arguments:
        cache: keys and values of the tokens before, as of `empty_cache`.
        token: integers of shape (batch,).
        position: how many tokens came before, an integer scalar below the context.

    Returns:
        The cache with this token's keys and values, and scores of shape (batch, vocabulary).
    """
    ids, place = as_tensor(token), as_tensor(position)
    x = nn.embedding(ids[:, None], parameters["wte"]) + take(parameters["wpe"], place, 0)
    seen = iota((config.context,)) <= place
    grown = []
    for block, past in zip(parameters["blocks"], cache, strict=True):
        q, k, v = project(nn.layer_norm(x, **block["ln_1"]), block["attn"], config.heads)
        now = caches.grown(past, k, v, place)
        grown.append(now)
        x = x + merge(nn.scaled_dot_product_attention(q, now["key"], now["value"], mask=seen), block["attn"])
        x = x + nn.mlp(nn.layer_norm(x, **block["ln_2"]), block["mlp"])
    return grown, _scores(parameters, x)[:, 0]


def empty_pages(config: GPT2Config, pages: int, page: int, dtype: DTypeLike = "f32") -> paged.Cache:
    """See `pcp.models.decoder.empty_cache`."""
    return paged.empty(config.layers, pages, page, config.heads, config.width // config.heads, dtype)


def read(
    parameters: Parameters,
    cache: paged.Cache,
    tokens: TensorLike,
    chunk: paged.Chunk,
    config: GPT2Config,
    every: bool,
) -> tuple[paged.Cache, Tensor]:
    """See `pcp.models.decoder.read`."""
    x = nn.embedding(tokens, parameters["wte"]) + take(parameters["wpe"], chunk.places, 0)
    grown = []
    for block, past in zip(parameters["blocks"], cache, strict=True):
        q, k, v = project(nn.layer_norm(x, **block["ln_1"]), block["attn"], config.heads)
        grown.append(chunk.written(past, k, v))
        x = x + merge(chunk.attended(q, grown[-1]), block["attn"])
        x = x + nn.mlp(nn.layer_norm(x, **block["ln_2"]), block["mlp"])
    return grown, _scores(parameters, x) if every else _scores(parameters, chunk.last(x))[:, 0]


def loss(parameters: Parameters, tokens: TensorLike, targets: TensorLike, config: GPT2Config) -> Tensor:
    """The mean cross entropy of the next token, in nats.

    Arguments:
        tokens: integers of shape (batch, length).
        targets: the token that follows each, of the same shape.
    """
    return nn.cross_entropy(logits(parameters, tokens, config), targets)


def window_losses(
    parameters: Parameters, tokens: TensorLike, targets: TensorLike, config: GPT2Config
) -> Tensor:
    """The mean cross entropy of each sequence alone, of shape (batch,): what validation averages exactly."""
    return mean(nn.negative_log_likelihood(logits(parameters, tokens, config), targets), axis=1)
