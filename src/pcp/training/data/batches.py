"""The deterministic order of the training data: batch `i` is a function of the seed and `i` alone.

So a range of batches can be leased to any worker, and a resumed run goes on with the batch it would have had.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError
from pcp.training.data.token_range import check_tokens

TokenArray = npt.NDArray[np.int32]


class TinyCorpus(PCPError):
    """A corpus, or a part of it, is too small for the batches asked for."""


class InvalidBatches(PCPError):
    """Batches are asked for that cannot exist: no sequences, no positions, a negative index."""


class TokenBatches:
    """What batches of token windows have in common, wherever the tokens lie."""

    batch_size: int
    context: int
    seed: int

    def _check(self) -> None:
        check_sizes(self.batch_size, self.context)
        if not 0 <= self.seed < 1 << 64:
            raise InvalidBatches(f"The seed of the data order is {self.seed}; expected 0 <= seed < 2^64.")

    @property
    def tokens_per_batch(self) -> int:
        """Tokens that one batch trains on."""
        return self.batch_size * self.context

    @property
    def shapes(self) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """Shape and element type of inputs and targets."""
        return (((self.batch_size, self.context), np.dtype(np.int32)),) * 2


@dataclass(frozen=True, eq=False)
class Batches(TokenBatches):
    """Random windows of a token vector.

    Window starts come from the counter-based generator Philox4x64-10, whose key is (seed, index). Its raw
    output is used, which NumPy keeps stable between versions; the choice among n starts is `raw mod n`,
    biased by less than n / 2^64.

    Arguments:
        tokens: the training part, a vector of integers; may be mapped from a file.
        batch_size: sequences in a batch.
        context: positions in a sequence.
        seed: 0 <= seed < 2^64.
        vocabulary_size: where given, each batch is checked against it.

    Raises:
        TinyCorpus: the tokens do not fill one batch.
        InvalidBatches: a size or the seed is out of range.

    Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011, section 3.3.
    """

    tokens: npt.NDArray[np.integer]
    batch_size: int
    context: int
    seed: int
    vocabulary_size: int | None = None

    def __post_init__(self) -> None:
        self._check()
        needed = self.batch_size * self.context + 1
        if self.tokens.size < needed:
            raise TinyCorpus(
                f"The training part has {self.tokens.size} tokens; batch {self.batch_size} x context "
                f"{self.context} needs at least {needed}. Give a longer text, or make --batch or --context smaller."
            )

    def batch(self, index: int) -> tuple[TokenArray, TokenArray]:
        """Make one batch.

        Arguments:
            index: 0 <= index < 2^64, in any order.

        Returns:
            Inputs and targets, both i32[batch, context]; a target is the token after its input.

        Raises:
            InvalidBatches: the index is out of range.
            TokenOutOfRange: a token does not fit the vocabulary.
        """
        if not 0 <= index < 1 << 64:
            raise InvalidBatches(f"Batch {index} was asked for; expected 0 <= index < 2^64.")
        generator = np.random.Philox(key=np.array([self.seed, index], np.uint64))
        starts = generator.random_raw(self.batch_size) % np.uint64(self.tokens.size - self.context)
        windows = self.tokens[starts.astype(np.int64)[:, None] + np.arange(self.context + 1)]
        if self.vocabulary_size is not None:
            check_tokens(windows, self.vocabulary_size, f"batch {index}")
        return inputs_and_targets(windows)


def inputs_and_targets(windows: npt.NDArray[np.integer]) -> tuple[TokenArray, TokenArray]:
    """Windows [batch, context + 1] of tokens without their last, and without their first; both i32[batch, context]."""
    windows = windows.astype(np.int32, copy=False)
    return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])


def permutation(count: int, seed: int, epoch: int, stream: int = 0) -> npt.NDArray[np.int64]:
    """A random order of so many things: those of other seeds, epochs and streams are independent.

    It sorts the raw output of Philox4x64-10, which NumPy keeps stable between versions, with key (seed, epoch); the stream is
    the highest word of its counter.
    """
    generator = np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=[0, 0, 0, stream])
    return np.argsort(generator.random_raw(count), kind="stable")


def check_sizes(batch: int, context: int) -> None:
    """Refuse batches without sequences or positions; raises InvalidBatches."""
    if batch < 1 or context < 1:
        raise InvalidBatches(
            f"Batches of {batch} sequences of {context} positions were asked for; both must be >= 1."
        )
