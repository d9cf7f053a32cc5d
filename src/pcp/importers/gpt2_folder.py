"""A GPT-2 from the folder that `save_pretrained` of the `transformers` library writes: settings, weights, tokenizer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.importers.weights import WeightsUnreadable, map_weights
from pcp.inference.text_model import TextModel
from pcp.models.gpt2 import GPT2Config
from pcp.models.gpt2_weights import from_transformers
from pcp.training.data.byte_pairs import BytePairTokenizer

_SIZES = {
    "layers": "n_layer",
    "heads": "n_head",
    "width": "n_embd",
    "context": "n_positions",
    "vocabulary": "vocab_size",
}

# Settings that change what a GPT-2 computes -> the values with which PCP's computes the same; absent is the first.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "layer_norm_epsilon": (1e-5,),
    "n_inner": (None,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
}


class UnsupportedModel(PCPError):
    """A folder of `transformers` whose model is not a GPT-2, or computes something else than PCP's GPT-2."""


class TokenizerMissing(PCPError):
    """A folder of `transformers` that holds a model without its tokenizer."""


def holds_transformers_model(folder: Path) -> bool:
    """Whether a folder's config.json is one that `transformers` wrote."""
    settings = _settings(folder)
    return "model_type" in settings or "architectures" in settings


def read_gpt2_folder(folder: Path) -> TextModel:
    """The model in a folder of `transformers`; float32, whatever type the file has.

    Arguments:
        folder: with config.json, model.safetensors (or the index of several files), and tokenizer.json (or vocab.json and
            merges.txt).

    Raises:
        UnsupportedModel: it is not a GPT-2, or has settings that change what it computes.
        WeightsUnreadable, WeightsMismatch, PCPError: the weights are absent, damaged or another model's.
        TokenizerMissing, TokenizerUnreadable: the tokenizer is absent or damaged.
        MissingExtra: the package `tokenizers` is not installed.
    """
    config = _config(folder, _settings(folder))
    tokenizer = _tokenizer(folder)
    if not any((folder / name).exists() for name in ("model.safetensors", "model.safetensors.index.json")):
        raise WeightsUnreadable(
            f"{folder} has no model.safetensors; write it with transformers: "
            f"AutoModelForCausalLM.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
        )
    return TextModel(from_transformers(map_weights(folder), config), config, tokenizer)


def _config(folder: Path, settings: Mapping[str, Any]) -> GPT2Config:
    kind = settings.get("model_type")
    if kind != "gpt2":
        raise UnsupportedModel(
            f"{folder} holds a model of type {kind!r}; `pcp generate` runs only 'gpt2'. To run another model with PCP, import "
            "it from PyTorch with pcp.from_torch (docs/importing.md)"
        )
    for name, accepted in _SUPPORTED.items():
        value = settings.get(name, accepted[0])
        if value not in accepted and not (name == "n_inner" and value == 4 * settings.get("n_embd", 0)):
            raise UnsupportedModel(
                f"{folder / 'config.json'} sets {name} to {value!r}; PCP's GPT-2 supports only "
                f"{' or '.join(map(repr, accepted))}. Import the model from PyTorch with pcp.from_torch (docs/importing.md)"
            )
    absent = [name for name in _SIZES.values() if type(settings.get(name)) is not int]
    if absent:
        raise UnsupportedModel(
            f"{folder / 'config.json'} lacks {', '.join(absent)}; expected the config.json of a GPT-2 that transformers wrote"
        )
    return GPT2Config(**{ours: settings[theirs] for ours, theirs in _SIZES.items()})


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


def _settings(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
