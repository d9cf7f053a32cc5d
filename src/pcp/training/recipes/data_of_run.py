"""The data of a run: read once into the run's folder, and opened from there."""

import logging
from pathlib import Path

from pcp.ir.program_file import write_atomically
from pcp.training.data.array_file import SUFFIXES
from pcp.training.data.batches import TinyCorpus
from pcp.training.data.embedded_tokens import embedded_rows
from pcp.training.data.encoding import LEARNT, encoded, tokenizer_of
from pcp.training.data.kinds.kind import Gives
from pcp.training.data.kinds.source import find_source
from pcp.training.data.run_data import Data, SampleData, TextData
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
from pcp.training.data.token_file import TokenFile, write_token_stream
from pcp.training.data.token_range import TokenOutOfRange
from pcp.training.recipes.config import InvalidTrainingConfig, TrainingConfig
from pcp.training.recipes.loss_program import LossProgram
from pcp.training.run_folder import RunFolder

log = logging.getLogger("pcp.training.recipes.data_of_run")


def gives_tokens(data: str, field: str = "") -> bool:
    """Whether data are windows of tokens, and not samples in arrays.

    Raises:
        MissingCorpus, EmptyCorpus, NotAFile, UnknownKind, MixedKinds: see `find_source`.
    """
    if Path(data).suffix in SUFFIXES:
        return False  # what is not there is told when it is read
    return names_shards(data) or find_source(data, field).gives is not Gives.samples


def run_gives_tokens(folder: RunFolder, config: TrainingConfig) -> bool:
    """The same of a run, whose data need not be there any more when they have been read."""
    if folder.training_file.exists():
        return False
    kept = folder.token_file.exists() or folder.shard_index_file.exists()
    return kept or gives_tokens(config.data, config.field)


def data_of(folder: RunFolder, config: TrainingConfig, loss: LossProgram) -> Data:
    """What a loss from a file is trained on.

    Raises:
        InvalidTrainingConfig, TinyCorpus, TokenOutOfRange: a text does not fit the loss.
        UnreadableFile, WrongSamples, TooFewSamples: the samples cannot be had, or are not what the loss takes.
        PCPError: the data cannot be read; see `tokens_of`.
    """
    return _text(folder, config, loss) if run_gives_tokens(folder, config) else _samples(folder, config, loss)


def tokens_of(folder: RunFolder, config: TrainingConfig) -> TokenFile | ShardedTokens:
    """The tokens of a run's text, which are made when its folder lacks them.

    Raises:
        MissingCorpus, EmptyCorpus, NotAFile, UnknownKind, MixedKinds: see `find_source`.
        TokenizerUnreadable, MissingExtra: see `tokenizer_of`.
        CorpusNotText, RowUnreadable, FieldMissing, CannotCut: see `encoded`.
        TokenOutOfRange: a token number is not one of the tokenizer's.
    """
    if folder.shard_index_file.exists() or names_shards(config.data):
        return _sharded(folder, config)
    if not folder.tokenizer_file.exists():
        source = find_source(config.data, config.field)
        if source.gives is Gives.samples:
            raise InvalidTrainingConfig(
                f"data is {config.data}, {source.parts[0].kind.name}, but {config.model} takes a text or token numbers; a "
                "loss from a file takes samples, as in --model loss.pcp"
            )
        tokenizer = tokenizer_of(source, config.tokenizer, config.vocabulary)
        held_out = encoded(source, source.validation, tokenizer) if source.validation else None
        write_token_stream(
            folder.token_file,
            encoded(source, source.parts, tokenizer),
            held_out,
            tokenizer.vocabulary_size,
            source=config.data,
        )
        folder.write_tokenizer(tokenizer)
    return TokenFile.open(folder.token_file)


def _text(folder: RunFolder, config: TrainingConfig, loss: LossProgram) -> TextData:
    if loss.context is None:
        raise InvalidTrainingConfig(
            f"data is {config.data}, a text, but the batch of {config.model} is {loss.describe_batch()}, which is not tokens "
            "and targets; give --data an .npz or .safetensors file with an array for each, samples along the first axis"
        )
    tokens = tokens_of(folder, config)
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
            f"choose another --tokenizer ({', '.join(LEARNT)} with --vocabulary, or the tokenizer.json of the model), or "
            "export the loss with more"
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
