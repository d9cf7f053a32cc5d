"""The order of a corpus in shards: each epoch takes the shards in a random order, and the windows of each in a random order.

So every window comes once in an epoch, and a range of batches touches few shards. The price is that the windows of one batch
mostly lie in one shard, the same part of the text: batches of a small shard are more alike than those drawn from everywhere.
"""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pcp.training.data.batches import (
    InvalidBatches,
    TinyCorpus,
    TokenArray,
    TokenBatches,
    inputs_and_targets,
    permutation,
)
from pcp.training.data.shards.index import Shard, ShardIndex
from pcp.training.data.token_range import check_tokens

_Numbers = npt.NDArray[np.int64]


class Shards(Protocol):
    """The shards of an index, wherever they come from: a `ShardCache`."""

    index: ShardIndex

    def tokens(self, shard: Shard) -> npt.NDArray[np.unsignedinteger]:
        """The tokens of a shard, brought here if it is not."""

    def expect(self, present: Shard, following: Iterable[Shard]) -> None:
        """Bring what follows, too; `following` may be endless."""


@dataclass(frozen=True, eq=False)
class ShardedBatches(TokenBatches):
    """Windows of a sharded corpus; batch `i` is a function of the seed and `i` alone.

    Window w of a shard begins at token `w * context`. The windows of all epochs form one sequence, of which batch `i` is places
    `i * batch_size` and following. In each epoch, permutation 0 orders the shards, and
    permutation s + 1 the windows of shard s.

    Raises:
        TinyCorpus: the shards do not fill one batch.
        InvalidBatches: a size or the seed is out of range.
    """

    cache: Shards
    batch_size: int
    context: int
    seed: int
    _epochs: dict[int, tuple[_Numbers, _Numbers]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._check()
        if self._total < self.batch_size:
            raise TinyCorpus(
                f"The training shards have {self._total} windows of {self.context} tokens; a batch needs "
                f"{self.batch_size}. Give a longer text, larger shards, or make --batch or --context smaller."
            )

    @functools.cached_property
    def _windows(self) -> _Numbers:
        sizes = np.array([shard.tokens for shard in self.cache.index.training], np.int64)
        return np.maximum(sizes - 1, 0) // self.context

    @functools.cached_property
    def _total(self) -> int:
        return int(self._windows.sum())

    def places(self, index: int) -> list[tuple[int, _Numbers]]:
        """The rows of a batch: shards by their numbers, and the windows that are taken of each, i64[n].

        Arguments:
            index: 0 <= index, and `index * batch_size` below 2^63.

        Raises:
            InvalidBatches: the index is out of range.
        """
        if not 0 <= index * self.batch_size < 1 << 63:
            raise InvalidBatches(f"Batch {index} was asked for; expected 0 <= index < 2^63 / batch size.")
        places = []
        position, wanted = index * self.batch_size, self.batch_size
        while wanted:
            epoch, turn, rest = self._find(position)
            shards, ends = self._shards(epoch)
            shard = int(shards[turn])
            count = int(self._windows[shard])
            first = rest - (int(ends[turn]) - count)
            windows = _permutation(count, self.seed, epoch, shard + 1)[first : first + wanted]
            places.append((shard, windows))
            position, wanted = position + len(windows), wanted - len(windows)
        return places

    def batch(self, index: int) -> tuple[TokenArray, TokenArray]:
        """Inputs and targets, both i32[batch, context]; a target is the token after its input.

        The shards of the batches that follow are fetched from here on, on a thread.

        Raises:
            InvalidBatches: the index is out of range.
            TokenOutOfRange: a token does not fit the vocabulary.
            PlaceUnreachable, ShardCorrupt, CacheTooSmall: a shard cannot be had; see `ShardCache`.
        """
        known = self.cache.index
        rows = []
        for shard, windows in self.places(index):
            tokens = self.cache.tokens(known.training[shard])
            rows.append(tokens[windows[:, None] * self.context + np.arange(self.context + 1)])
        self.cache.expect(known.training[shard], self._following(index))
        taken = rows[0] if len(rows) == 1 else np.concatenate(rows)
        check_tokens(taken, known.vocabulary_size, f"batch {index}")
        return inputs_and_targets(taken)

    def _following(self, index: int) -> Iterator[Shard]:
        """The shards that follow the one in which a batch ends, without end."""
        epoch, turn, _ = self._find((index + 1) * self.batch_size - 1)
        while True:
            shards, _ = self._shards(epoch)
            yield from (self.cache.index.training[each] for each in shards[turn + 1 :] if self._windows[each])
            epoch, turn = epoch + 1, -1

    def _find(self, position: int) -> tuple[int, int, int]:
        """The epoch of a place in the sequence of windows, the turn of its shard in that epoch, and the place in the epoch."""
        epoch, rest = divmod(position, self._total)
        return epoch, int(np.searchsorted(self._shards(epoch)[1], rest, side="right")), rest

    def _shards(self, epoch: int) -> tuple[_Numbers, _Numbers]:
        """The shards in the order of an epoch, and the windows until the end of each."""
        if epoch not in self._epochs:
            if len(self._epochs) >= 2:
                del self._epochs[next(iter(self._epochs))]
            order = permutation(len(self._windows), self.seed, epoch)
            self._epochs[epoch] = order, np.cumsum(self._windows[order])
        return self._epochs[epoch]


_permutation = functools.lru_cache(maxsize=4)(permutation)
