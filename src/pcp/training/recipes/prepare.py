"""From the settings of a run to its recipe: the model and the data are read once, and kept in the run's folder."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.ir.program_file import write_atomically
from pcp.models.diffusion.published import IMAGE_MODELS
from pcp.models.published import CONFIGURATIONS, configuration
from pcp.training.data.kinds.source import DEFAULT_CORPUS
from pcp.training.data.pictures import read_pictures
from pcp.training.data.validation import validation_windows
from pcp.training.recipes.adapted_loss import read_adapted
from pcp.training.recipes.config import InvalidTrainingConfig, TrainingConfig
from pcp.training.recipes.conversation_recipe import ConversationRecipe
from pcp.training.recipes.data_of_run import (
    answers_of,
    data_of,
    gives_tokens,
    gives_tokens_by_name,
    keep,
    run_gives_tokens,
    samples_of,
    tokens_of,
)
from pcp.training.recipes.decoder_recipe import DecoderRecipe
from pcp.training.recipes.image_recipe import ImageRecipe
from pcp.training.recipes.imported_recipe import ImportedRecipe
from pcp.training.recipes.loss_program import LossProgram, read_loss
from pcp.training.recipes.model_folder import configured_for_folder, holds_transformers_model
from pcp.training.recipes.recipe import Recipe
from pcp.training.recipes.written_model import write_adapter_of, write_model
from pcp.training.recipes.written_pipeline import write_pipeline
from pcp.training.run_folder import RunFolder, load_state


class ModelNotBrought(PCPError):
    """A run whose model lies in a folder, and whose program was not made of it yet."""


def names_a_file(model: str) -> bool:
    """Whether a model is a loss in a file, and not a configuration that PCP knows by name."""
    path = Path(model)
    return model not in {**CONFIGURATIONS, **IMAGE_MODELS} and bool(
        path.suffix or len(path.parts) > 1 or path.exists()
    )


def configured(settings: Mapping[str, Any]) -> TrainingConfig:
    """The settings of a new run, with the numbers that follow from others: the warm-up, and the batch of a loss from a file.

    Arguments:
        settings: those that were given; the others have their defaults.

    Raises:
        InvalidTrainingConfig: a setting is wrong, or not the one that the loss was made for.
        PCPError: the loss or its weights cannot be read; see `read_loss`.
    """
    config = _configured(settings)
    return config.replaced(warmup_steps=config.warmup)


def _configured(settings: Mapping[str, Any]) -> TrainingConfig:
    model, accumulate = settings.get("model"), settings.get("accumulate", 1)
    if settings.get("lora") and not (isinstance(model, str) and holds_transformers_model(Path(model))):
        raise InvalidTrainingConfig(
            f"lora is {settings['lora']!r}, but model is {model or TrainingConfig().model}, which is no folder that "
            "transformers wrote; give one, or adapt a program in Python: pcp.lora(program, rank=8)"
        )
    if settings.get("dropout") and not (isinstance(model, str) and holds_transformers_model(Path(model))):
        raise InvalidTrainingConfig(
            f"dropout was asked for, but model is {model or TrainingConfig().model}, which is no folder that transformers "
            "wrote; leave it out: a loss from a file has the dropout that it was exported with, and PCP's own models have none"
        )
    if not isinstance(model, str) or not names_a_file(model):
        defaults = IMAGE_MODELS[model].training if model in IMAGE_MODELS else {}
        config = TrainingConfig().replaced(**{**defaults, **settings})
        if config.weights:
            raise InvalidTrainingConfig(
                f"weights is {config.weights}, but {config.model} begins with random ones; give weights only with a loss from "
                "a file, as in --model loss.pcp"
            )
        return config
    config = TrainingConfig()
    data, field = settings.get("data", config.data), settings.get("field", config.field)
    of_tokens = gives_tokens(str(data), str(field))
    if holds_transformers_model(Path(model)):
        return configured_for_folder(settings, of_tokens)
    parts = accumulate if type(accumulate) is int else 1
    # Any seed will do where only the size of the batch is asked for.
    size = _read_loss(Path(model), settings.get("weights", ""), of_tokens, 0).batch_size
    config = TrainingConfig().replaced(**({"batch": size * parts} | dict(settings)))
    for step, batch in config.batches:
        if batch % size:
            raise InvalidTrainingConfig(
                f"batch is {batch} from step {step} on, but {model} is a program for {size} samples; give multiples of these"
            )
    if config.batches and "accumulate" not in settings:
        return config.replaced(accumulate=config.batch // size)
    if config.batch != size * parts:
        raise InvalidTrainingConfig(
            f"batch is {config.batch}, but {model} is a program for {size} samples"
            + (f", {parts} times a step" if parts > 1 else "")
            + f"; leave batch out, or set it to {size * parts}, or export the loss again with other shapes"
        )
    return config


def prepare(folder: RunFolder) -> Recipe:
    """Read the model and the data of a run into its folder, or find them there, and put together what is trained.

    Raises:
        MissingCorpus, EmptyCorpus, TinyCorpus: the text cannot be had or is too small.
        NotAFile, CorpusNotText: it is no text.
        InvalidConfiguration: the model has no such name.
        UnreadableFile, WrongSamples, TooFewSamples: the samples cannot be had, or are not what the loss takes.
        PCPError: the loss or its weights are not what can be trained; see `read_loss`.
    """
    config = folder.config()
    if folder.loss_file.exists() or names_a_file(config.model):
        return _imported(folder, config)
    if config.model in IMAGE_MODELS:
        return _of_images(folder, config)
    model = configuration(config.model)
    if not gives_tokens_by_name(folder, config):
        answers = answers_of(folder, config, model.context)
        model = dataclasses.replace(model, vocabulary=folder.tokenizer().vocabulary_size)
        conversations = ConversationRecipe(config, model, answers)
        _ = conversations.batches
        return conversations
    tokens = tokens_of(folder, config)
    recipe = DecoderRecipe(config, dataclasses.replace(model, vocabulary=tokens.vocabulary_size), tokens)
    _ = recipe.batches  # refuses a corpus that is too small before anything is compiled
    next(validation_windows(tokens.validation, model.context, recipe.evaluation_batch))
    if config.groups:
        _ = recipe.step  # refuses groups that have no parameter
    return recipe


def write_trained_weights(folder: RunFolder, recipe: Recipe) -> Path | None:
    """Write the parameters of the newest checkpoint under the names that the weights of a loss from a file were given by; of a
    model from a folder, as a folder that transformers loads.

    Returns:
        The file or the folder, or None for a model that PCP knows by name.

    Raises:
        CheckpointNotFound, CheckpointCorrupt, CheckpointTruncated: there is no checkpoint that can be read.
    """
    if isinstance(recipe, ImageRecipe):
        return write_pipeline(folder, recipe, folder.model_folder)
    if not isinstance(recipe, ImportedRecipe):
        return None
    if folder.source_folder.exists():
        if folder.lora_file.exists():
            write_adapter_of(folder, folder.adapter_folder)
        return write_model(folder, folder.model_folder)
    _, state, _ = load_state(folder)
    recipe.imported.write_weights(folder.trained_file, state["params"], state.get("buffers"))
    return folder.trained_file


def _of_images(folder: RunFolder, config: TrainingConfig) -> ImageRecipe:
    if not folder.training_file.exists():
        if config.data == DEFAULT_CORPUS:
            raise InvalidTrainingConfig(
                f"{config.model} learns to make images, and no data was given; give --data a folder of image files, or an .npz "
                "file with an array of them"
            )
        keep(
            folder,
            read_pictures(config.data, config.size),
            None,
            config.batch // config.accumulate,
            config.seed,
        )
    recipe = ImageRecipe(config, samples_of(folder))
    _ = recipe.described, recipe.batches, recipe.step
    return recipe


def _imported(folder: RunFolder, config: TrainingConfig) -> ImportedRecipe:
    of_tokens = run_gives_tokens(folder, config)
    if not folder.loss_file.exists():
        if Path(config.model).is_dir():
            raise ModelNotBrought(
                f"{config.model} is a folder, and the program of a model in it is not made yet: pcp train and pcp shepherd do; "
                "in Python, call pcp.importers.training_folder.bring_model(folder) before prepare(folder). A folder with a "
                "model has a config.json that transformers wrote"
            )
        original = _read_loss(Path(config.model), config.weights, of_tokens, config.seed)
        original.write_weights(folder.weights_file, original.parameters, original.buffers)
        write_atomically(folder.loss_file, Path(config.model).read_bytes())
    loss = _read_kept(folder, folder.loss_file, of_tokens, config)
    if folder.evaluation_file.exists():
        other = _read_kept(folder, folder.evaluation_file, of_tokens, config)
        loss = dataclasses.replace(loss, evaluation=other.program)
    recipe = ImportedRecipe(config, loss, data_of(folder, config, loss))
    _ = recipe.batches, recipe.step  # refuse what cannot be trained before anything is compiled
    return recipe


def _read_kept(folder: RunFolder, file: Path, of_tokens: bool, config: TrainingConfig) -> LossProgram:
    """A loss that stands in the folder of a run, with the weights that it begins with."""
    if folder.held_file.exists():
        return read_adapted(file, folder.weights_file, folder.held_file)
    return _read_loss(file, str(folder.weights_file), of_tokens, config.seed)


def _read_loss(path: Path, weights: str, tokens: bool, seed: int) -> LossProgram:
    return read_loss(path, Path(weights) if weights else None, tokens=tokens, seed=seed)
