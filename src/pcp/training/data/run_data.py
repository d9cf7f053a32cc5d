"""The data of a run: a text as tokens, or samples; each a file that a Worker can be given, and batches drawn from it."""

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pcp.training.data.batches import Batches
from pcp.training.data.samples import SampleBatches, Samples
from pcp.training.data.shards.batches import ShardedBatches
from pcp.training.data.shards.sharded_tokens import ShardedTokens
from pcp.training.data.token_file import TokenFile

Shape = tuple[tuple[int, ...], np.dtype[Any]]
"""Sizes of the axes, and the element type, of an array."""


class DataKind(enum.StrEnum):
    """What a file of training data holds."""

    tokens = "tokens"
    samples = "samples"


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

    kind = DataKind.tokens

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

    @property
    def file(self) -> Path:
        """What a Worker needs of it."""
        return self.training.path

    def batches(self, size: int, seed: int) -> BatchSource:
        """Batches of that many samples."""
        return SampleBatches(self.training, size, seed)


Data = TextData | SampleData


def open_batches(
    kind: DataKind, path: Path, size: int, context: int, seed: int, vocabulary: int
) -> BatchSource:
    """The batches of a data file that was received, as its sender draws them.

    Arguments:
        size: windows or samples in a batch.
        context: tokens in a window of a text.
        vocabulary: every token of a text is smaller.

    Raises:
        TokenFileForeign, TokenFileCorrupt, TokenFileTruncated, SamplesCorrupt: it does not hold such data.
        TinyCorpus, TooFewSamples, InvalidBatches: it cannot fill such batches.
    """
    if kind is DataKind.samples:
        return SampleBatches(Samples.open(path), size, seed)
    return Batches(TokenFile.open(path).training, size, context, seed, vocabulary)
