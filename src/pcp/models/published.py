"""Decoders known by name, and the rows that they are: sizes as published.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3; Touvron et al., "LLaMA", 2023,
section 2.2; shared keys: "Llama 2", 2023; Zhang et al., "TinyLlama", 2024, table 1.
"""

from pcp.models.config import DecoderConfig, Rotary
from pcp.models.parameters import InvalidConfiguration


def gpt2_config(
    layers: int, heads: int, width: int, context: int, vocabulary: int, bias: bool = True
) -> DecoderConfig:
    """A GPT-2: learnt places, layer norms, tied embeddings, one product for query, key and value.

    Arguments:
        layers, heads, width, context, vocabulary: as of `DecoderConfig`.
        bias: whether linear layers and normalisations have one.

    Raises:
        InvalidConfiguration: a size is below 1, or the heads do not divide the width.
    """
    return DecoderConfig(
        family="gpt2", layers=layers, heads=heads, key_value_heads=heads, width=width,
        hidden=4 * width, context=context, vocabulary=vocabulary, layer_norm=True, joined=True, gated=False, tied=True,
        activation="gelu_new", biases=("norm", "qkv", "out", "up", "down") if bias else (),
    )  # fmt: skip


def llama_config(
    layers: int,
    heads: int,
    key_value_heads: int,
    width: int,
    hidden: int,
    context: int,
    vocabulary: int,
    tied: bool = False,
    rotary_base: float = 10000.0,
    epsilon: float = 1e-5,
) -> DecoderConfig:
    """A Llama: rotary positions, root mean square norms, SwiGLU and heads that share keys; arguments as of `DecoderConfig`.

    Raises:
        InvalidConfiguration: a size is below 1, or does not divide another that it should.
    """
    return DecoderConfig(
        layers=layers, heads=heads, key_value_heads=key_value_heads, width=width, hidden=hidden,
        context=context, vocabulary=vocabulary, tied=tied, rotary=Rotary(rotary_base), epsilon=epsilon,
    )  # fmt: skip


CONFIGURATIONS: dict[str, DecoderConfig] = {
    "gpt2": gpt2_config(layers=12, heads=12, width=768, context=1024, vocabulary=50257),
    "gpt2-medium": gpt2_config(layers=24, heads=16, width=1024, context=1024, vocabulary=50257),
    "gpt2-large": gpt2_config(layers=36, heads=20, width=1280, context=1024, vocabulary=50257),
    "gpt2-xl": gpt2_config(layers=48, heads=25, width=1600, context=1024, vocabulary=50257),
    "gpt2-nano": gpt2_config(layers=4, heads=4, width=128, context=64, vocabulary=65, bias=False),
    "llama-1b": llama_config(
        layers=22, heads=32, key_value_heads=4, width=2048, hidden=5632, context=2048, vocabulary=32000
    ),
    "llama-nano": llama_config(
        layers=4, heads=4, key_value_heads=2, width=128, hidden=352, context=64, vocabulary=65, tied=True
    ),
}


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
