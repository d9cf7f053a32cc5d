"""Llama: a decoder-only transformer with rotary positions, root mean square norms, SwiGLU and heads that share keys.

Its functions are those of `pcp.models.gpt2`, where their arguments are described.

Source: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023, section 2.2; shared keys: "Llama 2", 2023.
"""

import math
from dataclasses import dataclass
from typing import Any

from pcp import nn
from pcp.ir import DTypeLike
from pcp.models import caches, paged
from pcp.models.parameters import DEVIATION, InvalidConfiguration, Leaf, Parameters, described, drawn
from pcp.nn.attention import merge
from pcp.ops.movement import iota, reshape
from pcp.ops.reductions.primitives import mean
from pcp.tensor import Tensor, TensorLike, as_tensor


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The sizes of a Llama.

    Arguments:
        layers: transformer blocks.
        heads: attention heads of each block; they share the width.
        key_value_heads: heads of keys and values; each serves heads / key_value_heads queries.
        width: size of the residual stream.
        hidden: size between the two halves of the feed-forward block.
        context: longest sequence, in tokens.
        vocabulary: number of tokens.
        tied: whether the token embedding is also the head; otherwise the head has weights of its own.
        rotary_base: the slowest angle of rotary positions is about position / rotary_base.
        epsilon: added to the mean square in norms.
    """

    layers: int
    heads: int
    key_value_heads: int
    width: int
    hidden: int
    context: int
    vocabulary: int
    tied: bool = False
    rotary_base: float = 10000.0
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        sizes = (self.layers, self.heads, self.key_value_heads, self.width, self.hidden)
        if (
            min(*sizes, self.context, self.vocabulary) < 1
            or self.width % (2 * self.heads)
            or self.heads % self.key_value_heads
        ):
            raise InvalidConfiguration(
                f"{self} is not a valid Llama: sizes must be positive, twice the heads must divide width, "
                "and key_value_heads must divide heads"
            )

    @property
    def head_width(self) -> int:
        """Numbers of a query or key of one head."""
        return self.width // self.heads


CONFIGURATIONS = {
    # Zhang et al., "TinyLlama", 2024, table 1.
    "llama-1b": LlamaConfig(
        layers=22, heads=32, key_value_heads=4, width=2048, hidden=5632, context=2048, vocabulary=32000
    ),
    "llama-nano": LlamaConfig(
        layers=4, heads=4, key_value_heads=2, width=128, hidden=352, context=64, vocabulary=65, tied=True
    ),
}


def initial_parameters(config: LlamaConfig, seed: int = 0) -> Parameters:
    """Random float32 parameters, as `gpt2.initial_parameters` draws them."""
    return _nested(config, drawn(seed))


def parameter_shapes(config: LlamaConfig) -> Parameters:
    """Their shapes, as `gpt2.parameter_shapes` has them."""
    return _nested(config, described)


def _nested(config: LlamaConfig, leaf: Leaf) -> Parameters:
    width, residual = config.width, DEVIATION / math.sqrt(2 * config.layers)
    shared = config.key_value_heads * config.head_width

    def linear(inputs: int, outputs: int, deviation: float = DEVIATION) -> Parameters:
        return {"weight": leaf((inputs, outputs), deviation, 0)}

    def norm() -> Parameters:
        return {"scale": leaf((width,), 0, 1)}

    def embedding() -> Any:
        return leaf((config.vocabulary, width), DEVIATION, 0)

    return {
        "embedding": embedding(),
        "blocks": [
            {
                "norm_1": norm(),
                "attn": {
                    "query": linear(width, width),
                    "key": linear(width, shared),
                    "value": linear(width, shared),
                    "out": linear(width, width, residual),
                },
                "norm_2": norm(),
                "mlp": {
                    "gate": linear(width, config.hidden),
                    "up": linear(width, config.hidden),
                    "down": linear(config.hidden, width, residual),
                },
            }
            for _ in range(config.layers)
        ],
        "norm": norm(),
    } | ({} if config.tied else {"head": embedding()})


def logits(parameters: Parameters, tokens: TensorLike, config: LlamaConfig) -> Tensor:
    """Scores of every next token; see `gpt2.logits`."""
    return _scores(parameters, _residual_stream(parameters, tokens, config)[0], config)


def _residual_stream(
    parameters: Parameters, tokens: TensorLike, config: LlamaConfig
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """What the last block leaves of whole sequences, (batch, length, width), and the keys and values of each block."""
    ids = caches.checked_tokens(tokens, config.context, "Llama")
    places = iota((ids.shape[1],))
    x = nn.embedding(ids, parameters["embedding"])
    seen = []
    for block in parameters["blocks"]:
        q, k, v = _projected(x, block, places, config)
        seen.append((k, v))
        x = x + merge(nn.scaled_dot_product_attention(q, k, v, causal=True), block["attn"])
        x = x + _feed_forward(x, block, config)
    return x, seen


def _projected(
    x: Tensor, block: Parameters, places: Tensor, config: LlamaConfig
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value, of shape (batch, length, heads or key_value_heads, head width), the first two turned by place."""
    normed = nn.rms_norm(x, block["norm_1"]["scale"], config.epsilon)
    q, k, v = (
        reshape(nn.linear(normed, **block["attn"][kind]), (*x.shape[:2], heads, config.head_width))
        for kind, heads in (
            ("query", config.heads),
            ("key", config.key_value_heads),
            ("value", config.key_value_heads),
        )
    )
    return nn.rotary(q, places, config.rotary_base), nn.rotary(k, places, config.rotary_base), v


def _feed_forward(x: Tensor, block: Parameters, config: LlamaConfig) -> Tensor:
    """SwiGLU: Shazeer, "GLU Variants Improve Transformer", 2020, equation 6."""
    normed, weights = nn.rms_norm(x, block["norm_2"]["scale"], config.epsilon), block["mlp"]
    gate, up = nn.linear(normed, **weights["gate"]), nn.linear(normed, **weights["up"])
    return nn.linear(nn.silu(gate) * up, **weights["down"])


def _scores(parameters: Parameters, x: Tensor, config: LlamaConfig) -> Tensor:
    """Scores of the next token from the residual stream."""
    head = parameters["embedding" if config.tied else "head"]
    return nn.unembedding(nn.rms_norm(x, parameters["norm"]["scale"], config.epsilon), head)


def empty_cache(config: LlamaConfig, batch: int = 1, dtype: DTypeLike = "f32") -> list[dict[str, Any]]:
    """Zeros for the keys and values of a whole context, per block of shape (batch, context, key_value_heads, head width)."""
    shape = (batch, config.context, config.key_value_heads, config.head_width)
    return caches.zeros(config.layers, shape, dtype)


def prefill(
    parameters: Parameters, tokens: TensorLike, length: TensorLike, config: LlamaConfig
) -> tuple[list[dict[str, Tensor]], Tensor]:
    """Take in the first tokens of each sequence at once and score the next; see `gpt2.prefill`."""
    x, seen = _residual_stream(parameters, tokens, config)
    scores = _scores(parameters, caches.last_place(x, length), config)
    return caches.of_sequence(seen, config.context), scores[:, 0]


def decode(
    parameters: Parameters,
    cache: list[dict[str, Tensor]],
    token: TensorLike,
    position: TensorLike,
    config: LlamaConfig,
) -> tuple[list[dict[str, Tensor]], Tensor]:
    """Take in one token of each sequence and score the next; see `gpt2.decode`."""
    ids, place = as_tensor(token), as_tensor(position)
    x = nn.embedding(ids[:, None], parameters["embedding"])
    seen = iota((config.context,)) <= place
    grown = []
    for block, past in zip(parameters["blocks"], cache, strict=True):
        q, k, v = _projected(x, block, reshape(place, (1,)), config)
        now = caches.grown(past, k, v, place)
        grown.append(now)
        x = x + merge(nn.scaled_dot_product_attention(q, now["key"], now["value"], mask=seen), block["attn"])
        x = x + _feed_forward(x, block, config)
    return grown, _scores(parameters, x, config)[:, 0]


def empty_pages(config: LlamaConfig, pages: int, page: int, dtype: DTypeLike = "f32") -> paged.Cache:
    """See `pcp.models.decoder.empty_cache`."""
    return paged.empty(config.layers, pages, page, config.key_value_heads, config.head_width, dtype)


def read(
    parameters: Parameters,
    cache: paged.Cache,
    tokens: TensorLike,
    chunk: paged.Chunk,
    config: LlamaConfig,
    every: bool,
) -> tuple[paged.Cache, Tensor]:
    """See `pcp.models.decoder.read`."""
    x = nn.embedding(tokens, parameters["embedding"])
    grown = []
    for block, past in zip(parameters["blocks"], cache, strict=True):
        q, k, v = _projected(x, block, chunk.places, config)
        grown.append(chunk.written(past, k, v))
        x = x + merge(chunk.attended(q, grown[-1]), block["attn"])
        x = x + _feed_forward(x, block, config)
    return grown, _scores(parameters, x, config) if every else _scores(parameters, chunk.last(x), config)[
        :, 0
    ]


def loss(parameters: Parameters, tokens: TensorLike, targets: TensorLike, config: LlamaConfig) -> Tensor:
    """The mean cross entropy of the next token, in nats; see `gpt2.loss`."""
    return nn.cross_entropy(logits(parameters, tokens, config), targets)


def window_losses(
    parameters: Parameters, tokens: TensorLike, targets: TensorLike, config: LlamaConfig
) -> Tensor:
    """The mean cross entropy of each sequence alone; see `gpt2.window_losses`."""
    return mean(nn.negative_log_likelihood(logits(parameters, tokens, config), targets), axis=1)
