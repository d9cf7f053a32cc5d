"""From the settings of a run to its recipe: the model and the data are read once, and kept in the run's folder."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pcp.ir.program_file import write_atomically
from pcp.models.decoder import CONFIGURATIONS, configuration
from pcp.training.data.array_file import SUFFIXES
from pcp.training.data.batches import TinyCorpus
from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.corpus import Corpus, load_corpus
from pcp.training.data.embedded_tokens import embedded_rows
from pcp.training.data.kinds.plain_text import refuse_other_kinds
from pcp.training.data.run_data import SampleData, TextData
from pcp.training.data.sample_arguments import arrays_of_batch
from pcp.training.data.samples import Samples, split
from pcp.training.data.saved_tokenizer import tokenizer_from_json
from pcp.training.data.shards.cache import ShardCache
from pcp.training.data.shards.index import ShardIndex
from pcp.training.data.shards.place import Place
from pcp.training.data.shards.sharded_tokens import (
    CACHE_BYTES,
    ShardedTokens,
    fetch_index,
    names_shards,
)
from pcp.training.data.token_file import TokenFile, write_token_file
from pcp.training.data.token_range import TokenOutOfRange
from pcp.training.data.tokenizer import ByteTokenizer, CharacterTokenizer, Tokenizer, Tokens
from pcp.training.data.validation import validation_windows
from pcp.training.recipes.config import InvalidTrainingConfig, TrainingConfig
from pcp.training.recipes.decoder_recipe import DecoderRecipe
from pcp.training.recipes.imported_recipe import ImportedRecipe
from pcp.training.recipes.loss_program import LossProgram, read_loss
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder, load_state

log = logging.getLogger("pcp.training.recipes.prepare")

TOKENIZERS: dict[str, Callable[[Corpus, int], Tokenizer]] = {
    "characters": lambda corpus, _: CharacterTokenizer.of_text(corpus.text),
    "bytes": lambda *_: ByteTokenizer(),
    "bpe": lambda corpus, vocabulary: BytePairTokenizer.train(corpus.text, vocabulary),
}
"""How each tokenizer that a run may name is made, from the corpus and the vocabulary wanted."""


def names_a_file(model: str) -> bool:
    """Whether a model is a loss in a file, and not a configuration that PCP knows by name."""
    path = Path(model)
    return model not in CONFIGURATIONS and bool(path.suffix or len(path.parts) > 1 or path.exists())


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
    if not isinstance(model, str) or not names_a_file(model):
        config = TrainingConfig().replaced(**settings)
        if config.weights:
            raise InvalidTrainingConfig(
                f"weights is {config.weights}, but {config.model} begins with random ones; give weights only with a loss from "
                "a file, as in --model loss.pcp"
            )
        return config
    data = settings.get("data")
    if isinstance(data, str) and _is_text(data):
        with contextlib.suppress(OSError):  # what is not there is told when it is read
            refuse_other_kinds(Path(data))
    parts = accumulate if type(accumulate) is int else 1
    # Any seed will do where only the size of the batch is asked for.
    size = _read_loss(Path(model), settings.get("weights", ""), str(settings.get("data", "")), 0).batch_size
    config = TrainingConfig().replaced(**({"batch": size * parts} | dict(settings)))
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
    model = configuration(config.model)
    tokens = _tokens(folder, config)
    recipe = DecoderRecipe(config, dataclasses.replace(model, vocabulary=tokens.vocabulary_size), tokens)
    _ = recipe.batches  # refuses a corpus that is too small before anything is compiled
    next(validation_windows(tokens.validation, model.context, recipe.evaluation_batch))
    return recipe


def write_trained_weights(folder: RunFolder, recipe: Recipe) -> Path | None:
    """Write the parameters of the newest checkpoint under the names that the weights of a loss from a file were given by.

    Returns:
        The file, or None for a model that PCP knows by name.

    Raises:
        CheckpointNotFound, CheckpointCorrupt, CheckpointTruncated: there is no checkpoint that can be read.
    """
    if not isinstance(recipe, ImportedRecipe):
        return None
    _, state, _ = load_state(folder)
    recipe.imported.write_weights(folder.trained_file, state["params"])
    return folder.trained_file


def _imported(folder: RunFolder, config: TrainingConfig) -> ImportedRecipe:
    if not folder.loss_file.exists():
        original = _read_loss(Path(config.model), config.weights, config.data, config.seed)
        original.write_weights(folder.weights_file, original.parameters)
        write_atomically(folder.loss_file, Path(config.model).read_bytes())
    loss = _read_loss(folder.loss_file, str(folder.weights_file), config.data, config.seed)
    data = _text(folder, config, loss) if _is_text(config.data) else _samples(folder, config, loss)
    recipe = ImportedRecipe(config, loss, data)
    _ = recipe.batches, recipe.step  # refuse what cannot be trained before anything is compiled
    return recipe


def _read_loss(path: Path, weights: str, data: str, seed: int) -> LossProgram:
    return read_loss(path, Path(weights) if weights else None, tokens=_is_text(data), seed=seed)


def _is_text(data: str) -> bool:
    return Path(data).suffix not in SUFFIXES


def _text(folder: RunFolder, config: TrainingConfig, loss: LossProgram) -> TextData:
    if loss.context is None:
        raise InvalidTrainingConfig(
            f"data is {config.data}, a text, but the batch of {config.model} is {loss.describe_batch()}, which is not tokens "
            "and targets; give --data an .npz or .safetensors file with an array for each, samples along the first axis"
        )
    tokens = _tokens(folder, config)
    rows = embedded_rows(loss.program, len(loss.weight_names))
    if rows is None:
        log.warning(
            "%s does not show the size of its vocabulary, so nothing checks that the %d tokens of the tokenizer fit it",
            config.model,
            tokens.vocabulary_size,
        )
    elif tokens.vocabulary_size > rows:
        raise TokenOutOfRange(
            f"the tokenizer {config.tokenizer!r} has {tokens.vocabulary_size} tokens, but {config.model} embeds {rows}; "
            "choose another --tokenizer (characters, bytes, bpe with --vocabulary), or export the loss with more"
        )
    windows = (tokens.validation.size - 1) // loss.context
    if windows < loss.batch_size:
        raise TinyCorpus(
            f"The validation part has {windows} windows of {loss.context} tokens; {config.model} takes {loss.batch_size} at "
            "once. Give a longer text."
        )
    return TextData(tokens, loss.context)


def _samples(folder: RunFolder, config: TrainingConfig, loss: LossProgram) -> SampleData:
    if not folder.training_file.exists():
        arrays = arrays_of_batch(Path(config.data), loss)
        training, validation = split(arrays, loss.batch_size, config.seed)
        Samples.write(folder.validation_file, validation)
        Samples.write(folder.training_file, training)
    return SampleData(Samples.open(folder.training_file), Samples.open(folder.validation_file))


def _sharded(folder: RunFolder, config: TrainingConfig) -> ShardedTokens:
    if not folder.shard_index_file.exists():
        fetched = fetch_index(config.data)
        folder.write_tokenizer(tokenizer_from_json(fetched.tokenizer))
        write_atomically(folder.shard_index_file, fetched.to_json().encode())
    index = ShardIndex.from_json(folder.shard_index_file.read_bytes(), str(folder.shard_index_file))
    place = Place(config.data)
    cache = ShardCache(index, [place], folder.shard_folder, CACHE_BYTES)
    return ShardedTokens(cache, folder.shard_index_file, place)


def _tokens(folder: RunFolder, config: TrainingConfig) -> TokenFile | ShardedTokens:
    if folder.shard_index_file.exists() or names_shards(config.data):
        return _sharded(folder, config)
    if not folder.tokenizer_file.exists():
        corpus = load_corpus(config.data)
        tokenizer = _tokenizer(config, corpus)
        write_token_file(folder.token_file, _encoded(corpus, tokenizer), tokenizer.vocabulary_size)
        folder.write_tokenizer(tokenizer)
    return TokenFile.open(folder.token_file)


def _tokenizer(config: TrainingConfig, corpus: Corpus) -> Tokenizer:
    make = TOKENIZERS.get(config.tokenizer)
    if make is None:
        raise InvalidTrainingConfig(
            f"tokenizer is {config.tokenizer!r}; expected one of {', '.join(TOKENIZERS)}"
        )
    return make(corpus, config.vocabulary)


def _encoded(corpus: Corpus, tokenizer: Tokenizer) -> Tokens:
    # Bytes need not be text.
    return (
        tokenizer.encode_bytes(corpus.data)
        if isinstance(tokenizer, ByteTokenizer)
        else tokenizer.encode(corpus.text)
    )
