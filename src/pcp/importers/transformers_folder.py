"""A model from the folder that `save_pretrained` of the `transformers` library writes: settings, weights, tokenizer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pcp import backends
from pcp.errors import PCPError
from pcp.importers.packed import unpacked
from pcp.importers.weights import WeightsUnreadable, map_weights
from pcp.inference.habits import Habits
from pcp.inference.text_model import TextModel
from pcp.ir import DTypeLike
from pcp.models.config import DecoderConfig
from pcp.models.families import config_of
from pcp.models.names import from_transformers
from pcp.models.parameters import Parameters
from pcp.tracing import leaf_spec
from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.recipes.model_folder import settings_of


class TokenizerMissing(PCPError):
    """A folder of `transformers` that holds a model without its tokenizer."""


class TokenizerMismatch(PCPError):
    """A tokenizer with more tokens than the model beside it."""


def read_transformers_folder(
    folder: Path, device: str | None = None, dtype: DTypeLike | None = "f32"
) -> TextModel:
    """The model in a folder of `transformers`.

    Arguments:
        folder: with config.json, model.safetensors (or the index of several files), and tokenizer.json (or vocab.json and
            merges.txt).
        device, dtype: as of `read_weights`.

    Raises:
        UnsupportedModel: it is of no family in `pcp.models.families`, or has settings that change what it computes.
        WeightsUnreadable, WeightsMismatch, PCPError: the weights are absent, damaged or another model's.
        TokenizerMissing, TokenizerMismatch, TokenizerUnreadable: the tokenizer is absent, another model's or damaged.
        MissingExtra: the package `tokenizers` is not installed.
    """
    config = config_of(settings_of(folder), str(folder / "config.json"))
    tokenizer = _tokenizer(folder)
    if tokenizer.vocabulary_size > config.vocabulary:
        raise TokenizerMismatch(
            f"the tokenizer in {folder} has {tokenizer.vocabulary_size} tokens, its model {config.vocabulary}; write the "
            f"tokenizer of this model there: AutoTokenizer.from_pretrained(NAME).save_pretrained({str(folder)!r})"
        )
    parameters = read_weights(folder, config, device, dtype)
    return TextModel(parameters, config, tokenizer, Habits.of(folder, tokenizer))


def read_weights(
    folder: Path, config: DecoderConfig, device: str | None = None, dtype: DTypeLike | None = "f32"
) -> Parameters:
    """The parameters in a folder of `transformers`, tensor by tensor from files that are mapped into memory.

    Matrices that GPTQ or AWQ stored in fewer bits stay so.

    Arguments:
        folder: with model.safetensors, or the index of several files.
        config: of the model.
        device: where each is brought to as soon as it is read, so that the model is held once; None: arrays of NumPy.
        dtype: element type of the parameters; None: as the files have them. Then parameters that stay on the host are views of
            the files where they can be, and the files must not change while they live.

    Raises:
        WeightsUnreadable, WeightsMismatch, PCPError: the weights are absent, damaged or another model's.
        UnsupportedPacking: they are stored in fewer bits in a way that is not read.
    """
    if not any((folder / name).exists() for name in ("model.safetensors", "model.safetensors.index.json")):
        raise WeightsUnreadable(
            f"{folder} has no model.safetensors; write it with transformers: "
            f"AutoModelForCausalLM.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
        )
    tensors: dict[str, Any] = map_weights(folder)
    packed = settings_of(folder).get("quantization_config")
    if isinstance(packed, dict):
        tensors = unpacked(tensors, packed, str(folder / "config.json"))
    if device is None:
        return from_transformers(tensors, config, dtype)
    return from_transformers(tensors, config, dtype, _placed_on(device))


def _placed_on(device: str) -> Callable[[Any], Any]:
    target = backends.Target.of(device)

    def place(array: Any) -> Any:
        return target.place(np.ascontiguousarray(array), leaf_spec(array).spec)

    return place


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
