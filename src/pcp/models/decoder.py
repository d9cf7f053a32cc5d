"""The decoders that PCP knows by name: a module each, with the same functions of parameters and a configuration."""

from collections import ChainMap
from collections.abc import Mapping
from typing import Any, Protocol, cast

from pcp.ir import DTypeLike
from pcp.models import gpt2, llama, paged
from pcp.models.gpt2 import GPT2Config
from pcp.models.llama import LlamaConfig
from pcp.models.parameters import InvalidConfiguration, Parameters
from pcp.tensor import Tensor, TensorLike, as_tensor

DecoderConfig = GPT2Config | LlamaConfig
# A ChainMap lists the last of its maps first.
CONFIGURATIONS: Mapping[str, DecoderConfig] = ChainMap(
    cast(dict[str, DecoderConfig], llama.CONFIGURATIONS), cast(dict[str, DecoderConfig], gpt2.CONFIGURATIONS)
)
Cache = paged.Cache


class Decoder(Protocol):
    """What the module of a decoder has; each function is documented in `pcp.models.gpt2`."""

    def initial_parameters(self, config: Any, seed: int = 0) -> Parameters:
        """Random float32 parameters."""

    def parameter_shapes(self, config: Any) -> Parameters:
        """Their shapes."""

    def logits(self, parameters: Parameters, tokens: TensorLike, config: Any) -> Tensor:
        """Scores of every next token."""

    def loss(self, parameters: Parameters, tokens: TensorLike, targets: TensorLike, config: Any) -> Tensor:
        """The mean cross entropy of the next token."""

    def window_losses(
        self, parameters: Parameters, tokens: TensorLike, targets: TensorLike, config: Any
    ) -> Tensor:
        """The loss of each sequence."""

    def empty_cache(self, config: Any, batch: int = 1, dtype: DTypeLike = "f32") -> Cache:
        """A cache of keys and values before the first token."""

    def prefill(
        self, parameters: Parameters, tokens: TensorLike, length: TensorLike, config: Any
    ) -> tuple[Cache, Tensor]:
        """Take in many tokens."""

    def empty_pages(self, config: Any, pages: int, page: int, dtype: DTypeLike = "f32") -> Cache:
        """A cache in pages before the first token."""

    def read(
        self,
        parameters: Parameters,
        cache: Cache,
        tokens: TensorLike,
        chunk: paged.Chunk,
        config: Any,
        every: bool,
    ) -> tuple[Cache, Tensor]:
        """Take in a chunk of many rows."""

    def decode(
        self, parameters: Parameters, cache: Cache, token: TensorLike, position: TensorLike, config: Any
    ) -> tuple[Cache, Tensor]:
        """Take in one token."""


def empty_cache(config: DecoderConfig, pages: int, page: int, dtype: DTypeLike = "f32") -> Cache:
    """A cache before the first token, as `read` takes it: for each layer `key` and `value`, zeros of shape
    (pages, page, heads of keys, width of a head).

    Arguments:
        pages: how many there are; page 0 belongs to no row.
        page: tokens of a page.
        dtype: element type of what is kept.
    """
    return decoder_of(config).empty_pages(config, pages, page, dtype)


def read(
    parameters: Parameters,
    cache: Cache,
    tokens: TensorLike,
    start: TensorLike,
    count: TensorLike,
    table: TensorLike,
    config: DecoderConfig,
    every: bool = False,
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

    Returns:
        The cache with these tokens, and scores of shape (rows, vocabulary), or (rows, chunk, vocabulary); those of an idle row,
        or beyond a row's count, mean nothing.

    Raises:
        ShapeMismatch: the shapes do not belong together.
    """
    chunk = paged.Chunk.of(tokens, start, count, table)
    return decoder_of(config).read(parameters, cache, as_tensor(tokens), chunk, config, every)


def decoder_of(config: DecoderConfig) -> Decoder:
    """The functions of a configuration's model."""
    return gpt2 if isinstance(config, GPT2Config) else llama


def configuration(name: str) -> DecoderConfig:
    """A configuration by name.

    Raises:
        InvalidConfiguration: there is none of that name.
    """
    try:
        return CONFIGURATIONS[name]
    except KeyError:
        raise InvalidConfiguration(
            f"there is no model {name!r}; choose one of {', '.join(CONFIGURATIONS)}"
        ) from None
