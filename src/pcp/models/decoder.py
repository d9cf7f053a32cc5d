"""The decoders that PCP knows by name: a module each, with the same functions of parameters and a configuration."""

from collections import ChainMap
from collections.abc import Mapping
from typing import Any, Protocol, cast

from pcp.ir import DTypeLike
from pcp.models import gpt2, llama
from pcp.models.gpt2 import GPT2Config
from pcp.models.llama import LlamaConfig
from pcp.models.parameters import InvalidConfiguration, Parameters
from pcp.tensor import Tensor, TensorLike

DecoderConfig = GPT2Config | LlamaConfig
# A ChainMap lists the last of its maps first.
CONFIGURATIONS: Mapping[str, DecoderConfig] = ChainMap(
    cast(dict[str, DecoderConfig], llama.CONFIGURATIONS), cast(dict[str, DecoderConfig], gpt2.CONFIGURATIONS)
)
Cache = list[dict[str, Any]]


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

    def decode(
        self, parameters: Parameters, cache: Cache, token: TensorLike, position: TensorLike, config: Any
    ) -> tuple[Cache, Tensor]:
        """Take in one token."""


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
