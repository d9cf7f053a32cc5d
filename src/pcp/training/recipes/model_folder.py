"""A model in a folder that `save_pretrained` of the library transformers wrote, as what a run begins with.

PyTorch and transformers are needed once, to make the program: `pcp.importers.training_folder` writes it and the weights into
the folder of the run. From there on a run of such a model is that of any loss from a file.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcp.training.recipes.adapters import LoraSettings
from pcp.training.recipes.config import InvalidTrainingConfig, TrainingConfig

LONGEST_CONTEXT = 512
"""Tokens in a window where none are asked for: what fits in memory beside most models."""

FINE_TUNING: dict[str, Any] = {
    "batch": 8,
    "learning_rate": 5e-5,
    "final_learning_rate": 5e-6,
    "weight_decay": 0.01,
    "beta2": 0.999,
}
"""Defaults of a run that goes on with weights that were trained before."""

LOW_RANK: dict[str, Any] = {"learning_rate": 2e-4, "final_learning_rate": 2e-5, "weight_decay": 0.0}
"""Those of them that are others where low-rank matrices are trained, which begin with nothing."""

DTYPES = ("f32", "bf16")
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "n_ctx")


def settings_of(folder: Path) -> dict[str, Any]:
    """The config.json of a folder; empty where there is none, or it is no JSON object."""
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def holds_transformers_model(folder: Path) -> bool:
    """Whether a folder's config.json is one that `transformers` wrote."""
    settings = settings_of(folder)
    return "model_type" in settings or "architectures" in settings


def configured_for_folder(settings: Mapping[str, Any], of_tokens: bool) -> TrainingConfig:
    """The settings of a run that begins with a model in a folder, where those that were not given are of fine-tuning.

    Arguments:
        settings: those that were given; `model` is the folder.
        of_tokens: whether the data is windows of tokens, and not samples in arrays.

    Raises:
        InvalidTrainingConfig: a setting is wrong, or not one for such a model.
    """
    path = Path(settings["model"])
    defaults = FINE_TUNING | (LOW_RANK if settings.get("lora") else {})
    if of_tokens and settings.get("tokenizer") is None:
        defaults["tokenizer"] = str(path)
    config = TrainingConfig().replaced(**(defaults | dict(settings)))
    if config.weights:
        raise InvalidTrainingConfig(
            f"weights is {config.weights}, but {path} holds its own; leave it out, or give the file of a loss as model"
        )
    if config.dtype and config.dtype not in DTYPES:
        raise InvalidTrainingConfig(f"dtype is {config.dtype!r}; expected one of {', '.join(DTYPES)}")
    if config.lora:
        LoraSettings.parse(config.lora)
    if not of_tokens:
        return config
    longest = _longest(settings_of(path))
    context = config.context or min(longest or LONGEST_CONTEXT, LONGEST_CONTEXT)
    if longest is not None and context > longest:
        raise InvalidTrainingConfig(
            f"context is {context}, but the model in {path} knows {longest} positions; give at most so many"
        )
    return config.replaced(context=context)


def _longest(settings: Mapping[str, Any]) -> int | None:
    """How many tokens a model can be given, where its settings say so."""
    inner = settings.get("text_config")
    for held in (settings, inner if isinstance(inner, dict) else {}):
        for name in _POSITIONS:
            if type(held.get(name)) is int and held[name] > 0:
                return int(held[name])
    return None
