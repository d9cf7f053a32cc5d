"""The data of a run: read once into the run's folder, and opened from there."""

import itertools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcp.ir.program_file import write_atomically
from pcp.ir.tree import flatten
from pcp.training.data.array_file import SUFFIXES
from pcp.training.data.batches import TinyCorpus
from pcp.training.data.chat.conversations import IGNORED, Rows, encoded_conversations, moved
from pcp.training.data.chat.messages import field_of_messages, messages_of
from pcp.training.data.chat.template import PLAIN, plain_template, template_in
from pcp.training.data.embedded_tokens import embedded_rows
from pcp.training.data.encoding import LEARNT, encoded, learnt_or_read, tokenizer_in, tokenizer_of
from pcp.training.data.image_samples import ImageSamples
from pcp.training.data.kinds.kind import Gives
from pcp.training.data.kinds.source import DEFAULT_CORPUS, find_source
from pcp.training.data.kinds.table import IMAGES
from pcp.training.data.kinds.token_arrays import holds_a_vector
from pcp.training.data.run_data import Data, SampleData, TextData
from pcp.training.data.sample_arguments import arrays_of_batch
from pcp.training.data.samples import Samples, TooFewSamples, split
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
from pcp.training.recipes.shifted_labels import leaves_out, moves_labels
from pcp.training.run_folder import RunFolder

Array = np.ndarray[Any, Any]

log = logging.getLogger("pcp.training.recipes.data_of_run")


def gives_tokens(data: str, field: str = "") -> bool:
    """Whether data are text, conversations or token numbers, and not samples in arrays.

    Raises:
        MissingCorpus, EmptyCorpus, NotAFile, UnknownKind, MixedKinds: see `find_source`.
    """
    if Path(data).suffix in SUFFIXES:
        return False  # what is not there is told when it is read
    return names_shards(data) or find_source(data, field).gives is not Gives.samples


def run_gives_tokens(folder: RunFolder, config: TrainingConfig) -> bool:
    """Whether a run trains on windows of tokens, and not on samples, which conversations are.

    Its data need not be there any more when they have been read.
    """
    if folder.training_file.exists():
        return False
    if folder.token_file.exists() or folder.shard_index_file.exists():
        return True
    return gives_tokens(config.data, config.field) and not gives_messages(config.data, config.field)


def gives_tokens_by_name(folder: RunFolder, config: TrainingConfig) -> bool:
    """The same where the model is one by name, to which a vector in an `.npz` file is token numbers."""
    gives_tokens = run_gives_tokens(folder, config)
    return gives_tokens or (not folder.training_file.exists() and holds_a_vector(Path(config.data)))


def gives_messages(data: str, field: str = "") -> bool:
    """Whether data are conversations, whose first record shows it.

    Raises:
        MissingCorpus, EmptyCorpus, NotAFile, UnknownKind, MixedKinds: see `find_source`.
        RowUnreadable: the first record is none.
    """
    if names_shards(data) or data == DEFAULT_CORPUS:
        return False
    source = find_source(data, field)
    if source.gives is not Gives.records:
        return False
    return any(
        field_of_messages(record, field) for _, record in itertools.islice(source.records(source.parts), 1)
    )


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
    _check_vocabulary(config, loss, tokens.vocabulary_size)
    windows = (tokens.validation.size - 1) // loss.context
    if windows < loss.batch_size:
        raise TinyCorpus(
            f"The validation part has {windows} windows of {loss.context} tokens; {config.model} takes {loss.batch_size} at "
            "once. Give a longer text, or, for a model from a folder, a smaller --batch."
        )
    return TextData(tokens, loss.context)


def _check_vocabulary(config: TrainingConfig, loss: LossProgram, size: int) -> None:
    """Refuse a tokenizer of more tokens than a loss embeds, which would clamp them silently."""
    rows = embedded_rows(loss.program, loss.leading)
    if rows is None:
        log.warning(
            "%s does not show the size of its vocabulary, so nothing checks that the %d tokens of the tokenizer fit it",
            config.model,
            size,
        )
    elif size > rows:
        raise TokenOutOfRange(
            f"the tokenizer {config.tokenizer!r} has {size} tokens, but {config.model} embeds {rows}; "
            f"choose another --tokenizer ({', '.join(LEARNT)} with --vocabulary, or the tokenizer.json of the model), or "
            "export the loss with more"
        )


def _samples(folder: RunFolder, config: TrainingConfig, loss: LossProgram) -> SampleData:
    if not folder.training_file.exists():
        if Path(config.data).suffix in SUFFIXES:
            keep(folder, arrays_of_batch(Path(config.data), loss), None, loss.batch_size, config.seed)
        elif gives_messages(config.data, config.field):
            keep(folder, *_conversations(folder, config, loss), loss.batch_size, config.seed)
        else:
            _keep_images(folder, config, loss)
    return samples_of(folder)


def samples_of(folder: RunFolder) -> SampleData:
    """The samples that `keep` left in the folder of a run."""
    return SampleData(Samples.open(folder.training_file), Samples.open(folder.validation_file))


def keep(
    folder: RunFolder, arrays: Sequence[Array], held_out: Sequence[Array] | None, batch: int, seed: int
) -> None:
    """Keep samples in the folder of a run, those for validation apart.

    Arguments:
        held_out: the samples for validation; None: a tenth of the others, drawn by the seed.
        batch: samples of a micro-batch.

    Raises:
        TooFewSamples: they do not fill a batch for training and one for validation.
    """
    if held_out is not None:
        if len(held_out[0]) < batch:
            raise TooFewSamples(
                f"there are {len(held_out[0])} samples for validation, and a batch takes {batch} of them"
            )
        Samples.write(folder.validation_file, held_out)
        Samples.write(folder.training_file, arrays)
        return
    training, validation = split(len(arrays[0]), batch, seed)
    Samples.write(folder.validation_file, arrays, validation)
    Samples.write(folder.training_file, arrays, training)


def _keep_images(folder: RunFolder, config: TrainingConfig, loss: LossProgram) -> None:
    source = find_source(config.data)
    if source.parts[0].kind is not IMAGES:
        raise InvalidTrainingConfig(
            f"data is {config.data}, several files of samples in arrays; give one, with an array for each argument of the batch"
        )
    images = ImageSamples.of(source, loss)
    training, validation = source.parts, source.validation
    if not validation:
        chosen = split(len(training), loss.batch_size, config.seed)
        training, validation = (tuple(source.parts[number] for number in rows) for rows in chosen)
    elif len(validation) < loss.batch_size:
        raise TooFewSamples(
            f"{config.data} has {len(validation)} images for validation; {config.model} takes {loss.batch_size} at once"
        )
    for file, parts in ((folder.validation_file, validation), (folder.training_file, training)):
        Samples.write_parts(file, images.shapes, len(parts), images.read(parts))


def _conversations(
    folder: RunFolder, config: TrainingConfig, loss: LossProgram
) -> tuple[list[Array], list[Array] | None]:
    """Tokens and labels for a loss that leaves out labels of -100."""
    if loss.context is None:
        raise InvalidTrainingConfig(
            f"data is {config.data}, messages, but the batch of {config.model} is {loss.describe_batch()}, which is not tokens "
            "and labels"
        )
    if loss.buffers is not None:
        raise InvalidTrainingConfig(
            f"data is {config.data}, messages, but {config.model} changes a state beside its parameters; expected a loss that "
            "does not, as a model in evaluation mode"
        )
    held = [] if loss.held is None else flatten(loss.held)[0]
    weights = [*flatten(loss.parameters)[0], *held]
    places = loss.leading, loss.leading + 1
    if not leaves_out(loss.program, weights, *places):
        raise InvalidTrainingConfig(
            f"data is {config.data}, messages, of which only the answers are learnt: the other labels are {IGNORED}, which "
            f"{config.model} does not leave out. Export it with a loss that does, as torch.nn.functional.cross_entropy does"
        )
    learnt, held_out = conversations_of(folder, config, loss.context)
    _check_vocabulary(config, loss, folder.tokenizer().vocabulary_size)
    moves = moves_labels(loss.program, [*weights, None, None], *places)
    dtypes = [entry.spec.dtype.numpy for entry in loss.batch]

    def taken(rows: tuple[Rows, Rows]) -> list[Array]:
        ordered = rows if moves else moved(*rows)
        return [array.astype(dtype) for array, dtype in zip(ordered, dtypes, strict=True)]

    return taken(learnt), held_out and taken(held_out)


def answers_of(folder: RunFolder, config: TrainingConfig, context: int) -> SampleData:
    """Conversations as tokens and targets, both i32[samples, context], for a model by name; -100 where none is learnt.

    Raises:
        InvalidTrainingConfig: the data are samples of something else.
        PCPError: see `conversations_of`.
    """
    if not folder.training_file.exists():
        if not gives_tokens(config.data, config.field):
            raise InvalidTrainingConfig(
                f"data is {config.data}, samples in arrays or images, but {config.model} takes text, messages or numbers; a "
                "loss from a file takes samples, as in --model loss.pcp"
            )
        learnt, held_out = conversations_of(folder, config, context)
        size = config.batch // config.accumulate
        keep(folder, moved(*learnt), held_out and moved(*held_out), size, config.seed)
    return samples_of(folder)


def conversations_of(
    folder: RunFolder, config: TrainingConfig, context: int
) -> tuple[tuple[Rows, Rows], tuple[Rows, Rows] | None]:
    """The conversations of a run as rows of tokens and labels, as for a loss that moves its labels itself.

    The tokenizer is kept in the folder of the run.

    Returns:
        Those that are trained on, and those of files whose names say validation, where there are some.

    Raises:
        NoChatTemplate, ChatTemplateUnreadable: see `template_in`.
        PCPError: the data or the tokenizer cannot be read; see `find_source`, `tokenizer_of`, `encoded_conversations`.
    """
    source = find_source(config.data, config.field)
    records = source.parts + source.validation
    if config.tokenizer in LEARNT:
        template = plain_template()
        if config.chat_template not in ("", PLAIN):
            template = template_in(Path(config.chat_template), config.chat_template)
        texts = (
            piece.text
            for place, record in source.records(records)
            for pieces in template.pieces(messages_of(record, config.field, place))
            for piece in pieces
        )
        tokenizer = learnt_or_read(texts, config.tokenizer, config.vocabulary)
    else:
        template = template_in(Path(config.tokenizer), config.chat_template)
        tokenizer = tokenizer_in(Path(config.tokenizer))
    learnt, *held_out = (
        encoded_conversations(source.records(parts), config.field, template, tokenizer, context)
        for parts in (source.parts, source.validation)
        if parts
    )
    folder.write_tokenizer(tokenizer)
    return learnt, held_out[0] if held_out else None


def _sharded(folder: RunFolder, config: TrainingConfig) -> ShardedTokens:
    if not folder.shard_index_file.exists():
        fetched = fetch_index(config.data)
        folder.write_tokenizer(tokenizer_from_json(fetched.tokenizer))
        write_atomically(folder.shard_index_file, fetched.to_json().encode())
    index = ShardIndex.from_json(folder.shard_index_file.read_bytes(), str(folder.shard_index_file))
    place = Place(config.data)
    cache = ShardCache(index, [place], folder.shard_folder, CACHE_BYTES)
    return ShardedTokens(cache, folder.shard_index_file, place)
