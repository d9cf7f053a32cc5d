"""A model from the folder that `save_pretrained` of the `transformers` library writes: settings, weights, tokenizer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.importers.weights import WeightsUnreadable, map_weights
from pcp.inference.text_model import TextModel
from pcp.models import gpt2_weights, llama_weights
from pcp.models.decoder import DecoderConfig
from pcp.models.gpt2 import GPT2Config
from pcp.models.llama import LlamaConfig
from pcp.models.parameters import Parameters
from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.recipes.model_folder import settings_of

_Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Kind:
    """A model of `transformers` that PCP has as well.

    Arguments:
        name: for people.
        config: makes its configuration of the settings.
        sizes: settings that must be whole numbers.
        supported: settings that change what it computes -> the values with which PCP's computes the same; absent is the first.
        parameters: from tensors by their names in `transformers`.
    """

    name: str
    config: Callable[[_Settings], DecoderConfig]
    sizes: tuple[str, ...]
    supported: Callable[[_Settings], dict[str, tuple[Any, ...]]]
    parameters: Callable[[Mapping[str, Any], Any], Parameters]


def _gpt2_config(settings: _Settings) -> GPT2Config:
    names = ("n_layer", "n_head", "n_embd", "n_positions", "vocab_size")
    return GPT2Config(*(settings[name] for name in names))


def _gpt2_supported(settings: _Settings) -> dict[str, tuple[Any, ...]]:
    return {
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "layer_norm_epsilon": (1e-5,),
        "n_inner": (None, 4 * (settings.get("n_embd") or 0)),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    }


def _llama_config(settings: _Settings) -> LlamaConfig:
    heads = settings["num_attention_heads"]
    return LlamaConfig(
        layers=settings["num_hidden_layers"],
        heads=heads,
        key_value_heads=settings.get("num_key_value_heads") or heads,
        width=settings["hidden_size"],
        hidden=settings["intermediate_size"],
        context=settings["max_position_embeddings"],
        vocabulary=settings["vocab_size"],
        tied=settings.get("tie_word_embeddings", False),
        rotary_base=float(_rotary(settings).get("rope_theta", 10000.0)),
        epsilon=settings.get("rms_norm_eps", 1e-6),
    )


def _llama_supported(settings: _Settings) -> dict[str, tuple[Any, ...]]:
    width, heads = settings.get("hidden_size") or 0, settings.get("num_attention_heads") or 1
    plain = _rotary(settings).get("rope_type", "default") == "default"
    unscaled = (None, {"rope_type": "default"})
    return {
        "hidden_act": ("silu", "swish"),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "head_dim": (None, width // heads),
        "rope_scaling": unscaled,
        "rope_parameters": (settings.get("rope_parameters"),) if plain else unscaled,
    }


def _rotary(settings: _Settings) -> _Settings:
    """How positions turn: settings of their own in newer files, beside the others in older ones."""
    return settings.get("rope_parameters") or settings


_KINDS = {
    "gpt2": _Kind(
        "GPT-2",
        _gpt2_config,
        ("n_layer", "n_head", "n_embd", "n_positions", "vocab_size"),
        _gpt2_supported,
        gpt2_weights.from_transformers,
    ),
    "llama": _Kind(
        "Llama",
        _llama_config,
        (
            "num_hidden_layers",
            "num_attention_heads",
            "hidden_size",
            "intermediate_size",
            "max_position_embeddings",
            "vocab_size",
        ),
        _llama_supported,
        llama_weights.from_transformers,
    ),
}


class UnsupportedModel(PCPError):
    """A folder of `transformers` whose model PCP does not have, or has otherwise."""


class TokenizerMissing(PCPError):
    """A folder of `transformers` that holds a model without its tokenizer."""


def read_transformers_folder(folder: Path) -> TextModel:
    """The model in a folder of `transformers`; float32, whatever type the file has.

    Arguments:
        folder: with config.json, model.safetensors (or the index of several files), and tokenizer.json (or vocab.json and
            merges.txt).

    Raises:
        UnsupportedModel: it is another model than a GPT-2 or a Llama, or has settings that change what it computes.
        WeightsUnreadable, WeightsMismatch, PCPError: the weights are absent, damaged or another model's.
        TokenizerMissing, TokenizerUnreadable: the tokenizer is absent or damaged.
        MissingExtra: the package `tokenizers` is not installed.
    """
    settings = settings_of(folder)
    kind = _kind(folder, settings)
    config = kind.config(settings)
    tokenizer = _tokenizer(folder)
    if not any((folder / name).exists() for name in ("model.safetensors", "model.safetensors.index.json")):
        raise WeightsUnreadable(
            f"{folder} has no model.safetensors; write it with transformers: "
            f"AutoModelForCausalLM.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
        )
    return TextModel(kind.parameters(map_weights(folder), config), config, tokenizer)


def _kind(folder: Path, settings: _Settings) -> _Kind:
    """Which model the settings are of; it computes what PCP's does."""
    kind = _KINDS.get(str(settings.get("model_type")))
    if kind is None:
        raise UnsupportedModel(
            f"{folder} holds a model of type {settings.get('model_type')!r}; `pcp generate` runs only "
            f"{' and '.join(map(repr, _KINDS))}. To run another model with PCP, import it from PyTorch with pcp.from_torch "
            "(docs/importing.md)"
        )
    absent = [name for name in kind.sizes if type(settings.get(name)) is not int]
    if absent:
        raise UnsupportedModel(
            f"{folder / 'config.json'} lacks {', '.join(absent)}; expected the config.json of a {kind.name} that transformers "
            "wrote"
        )
    for name, accepted in kind.supported(settings).items():
        value = settings.get(name, accepted[0])
        if value not in accepted:
            raise UnsupportedModel(
                f"{folder / 'config.json'} sets {name} to {value!r}; PCP's {kind.name} supports only "
                f"{' or '.join(map(repr, accepted))}. Import the model from PyTorch with pcp.from_torch (docs/importing.md)"
            )
    return kind


def _tokenizer(folder: Path) -> BytePairTokenizer:
    whole, vocabulary, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    if whole.exists():
        return BytePairTokenizer(whole.read_text(encoding="utf-8"))
    if vocabulary.exists() and merges.exists():
        return BytePairTokenizer.of_files(vocabulary, merges)
    raise TokenizerMissing(
        f"{folder} has a model but neither tokenizer.json nor vocab.json and merges.txt; write the tokenizer of this model "
        f"there with transformers: AutoTokenizer.from_pretrained(NAME).save_pretrained({str(folder)!r})"
    )
