"""The data of a run: a text as tokens, or samples; each a file that a Worker can be given, and batches drawn from it."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pcp.training.data.batches import Batches
from pcp.training.data.samples import SampleBatches, Samples
from pcp.training.data.shards.batches import ShardedBatches, Shards
from pcp.training.data.shards.index import ShardIndex
from pcp.training.data.shards.sharded_tokens import ShardedTokens
from pcp.training.data.token_file import TokenFile
from pcp.training.data.token_range import TokenOutOfRange

Shape = tuple[tuple[int, ...], np.dtype[Any]]
"""Sizes of the axes, and the element type, of an array."""


class DataKind(enum.StrEnum):
    """What a file of training data holds."""

    tokens = "tokens"
    samples = "samples"
    shards = "shards"  # the index of tokens in shards


class BatchSource(Protocol):
    """Training batches by their numbers: batch `i` is a function of the seed and `i` alone."""

    @property
    def tokens_per_batch(self) -> int:
        """What a batch counts for in rates and weights."""

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shape and element type of each array of a batch."""

    def batch(self, index: int) -> tuple[np.ndarray[Any, Any], ...]:
        """The arrays of one batch."""


@dataclass(frozen=True)
class TextData:
    """A text: a batch is windows of tokens, and of the tokens that follow each.

    Arguments:
        tokens: the corpus as numbers.
        context: tokens in a window.
    """

    tokens: TokenFile | ShardedTokens
    context: int

    @property
    def kind(self) -> DataKind:
        """What the file holds."""
        return DataKind.shards if isinstance(self.tokens, ShardedTokens) else DataKind.tokens

    @property
    def place(self) -> str:
        """The URL where the data lies, for whom it is too much for a file; empty where nobody but this machine knows."""
        if isinstance(self.tokens, ShardedTokens) and not self.tokens.place.is_folder:
            return self.tokens.place.url
        return ""

    @property
    def shards(self) -> list[tuple[str, int, Path]]:
        """What Workers are given besides, one by one: digest, bytes and file of each."""
        return self.tokens.files if isinstance(self.tokens, ShardedTokens) else []

    @property
    def file(self) -> Path:
        """What a Worker needs of it."""
        return self.tokens.path

    @property
    def vocabulary(self) -> int:
        """Every token is smaller."""
        return self.tokens.vocabulary_size

    def batches(self, size: int, seed: int) -> BatchSource:
        """Batches of that many windows."""
        if isinstance(self.tokens, ShardedTokens):
            return ShardedBatches(self.tokens.cache, size, self.context, seed)
        return Batches(self.tokens.training, size, self.context, seed, self.vocabulary)


@dataclass(frozen=True)
class SampleData:
    """Arrays whose first axes count samples.

    Arguments:
        validation: samples that are not; whole batches of them.
    """

    training: Samples
    validation: Samples

    kind = DataKind.samples
    context = vocabulary = 0
    place = ""

    @property
    def shards(self) -> list[tuple[str, int, Path]]:
        """None."""
        return []

    @property
    def file(self) -> Path:
        """What a Worker needs of it."""
        return self.training.path

    def batches(self, size: int, seed: int) -> BatchSource:
        """Batches of that many samples."""
        return SampleBatches(self.training, size, seed)


Data = TextData | SampleData


def open_batches(
    kind: DataKind,
    path: Path,
    size: int,
    context: int,
    seed: int,
    vocabulary: int,
    shards: Callable[[ShardIndex], Shards],
) -> BatchSource:
    """The batches of a data file that was received, as its sender draws them.

    Arguments:
        size: windows or samples in a batch.
        context: tokens in a window of a text.
        vocabulary: every token of a text is smaller.
        shards: brings those of an index.

    Raises:
        ShardIndexCorrupt, TokenOutOfRange: it is no index, or one of larger tokens.
        TokenFileForeign, TokenFileCorrupt, TokenFileTruncated, SamplesCorrupt: it does not hold such data.
        TinyCorpus, TooFewSamples, InvalidBatches: it cannot fill such batches.
    """
    if kind is DataKind.samples:
        return SampleBatches(Samples.open(path), size, seed)
    if kind is DataKind.shards:
        index = ShardIndex.from_json(path.read_bytes(), str(path))
        if index.vocabulary_size > vocabulary:
            raise TokenOutOfRange(
                f"the index of shards has {index.vocabulary_size} tokens; the run was described with {vocabulary}"
            )
        return ShardedBatches(shards(index), size, context, seed)
    return Batches(TokenFile.open(path).training, size, context, seed, vocabulary)
