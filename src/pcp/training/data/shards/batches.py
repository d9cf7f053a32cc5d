"""The order of a corpus in shards: each epoch takes the shards in a random order, and the windows of each in a random order.

So every window comes once in an epoch, and a range of batches touches few shards. The price is that the windows of one batch
mostly lie in one shard, the same part of the text: batches of a small shard are more alike than those drawn from everywhere.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.training.data.batches import InvalidBatches, TinyCorpus, TokenArray, check_sizes
from pcp.training.data.shards.cache import ShardCache
from pcp.training.data.token_range import check_tokens


@dataclass(frozen=True, eq=False)
class ShardedBatches:
    """Windows of a sharded corpus; batch `i` is a function of the seed and `i` alone.

    Window w of a shard begins at token `w * context`. The windows of all epochs form one sequence, of which batch `i` is places
    `i * batch_size` and following. Orders come from Philox4x64-10 with key (seed, epoch).

    Raises:
        TinyCorpus: the shards do not fill one batch.
        InvalidBatches: a size or the seed is out of range.
    """

    cache: ShardCache
    batch_size: int
    context: int
    seed: int
    _orders: dict[tuple[int, int], npt.NDArray[np.int64]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_sizes(self.batch_size, self.context)
        if not 0 <= self.seed < 1 << 64:
            raise InvalidBatches(f"The seed of the data order is {self.seed}; expected 0 <= seed < 2^64.")
        if self._windows.sum() < self.batch_size:
            raise TinyCorpus(
                f"The training shards have {self._windows.sum()} windows of {self.context} tokens; a batch needs "
                f"{self.batch_size}. Give a longer text, larger shards, or make --batch or --context smaller."
            )

    @property
    def _windows(self) -> npt.NDArray[np.int64]:
        sizes = np.array([shard.tokens for shard in self.cache.index.training], np.int64)
        return np.maximum(sizes - 1, 0) // self.context

    @property
    def tokens_per_batch(self) -> int:
        """Tokens that one batch trains on."""
        return self.batch_size * self.context

    @property
    def shapes(self) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """Shape and element type of inputs and targets."""
        return (((self.batch_size, self.context), np.dtype(np.int32)),) * 2

    def places(self, index: int) -> list[tuple[int, int]]:
        """The shard and the window within it of each row of a batch.

        Arguments:
            index: 0 <= index, and `index * batch_size` below 2^63.
        """
        if not 0 <= index * self.batch_size < 1 << 63:
            raise InvalidBatches(f"Batch {index} was asked for; expected 0 <= index < 2^63 / batch size.")
        windows = self._windows
        total = int(windows.sum())
        found = []
        for position in range(index * self.batch_size, (index + 1) * self.batch_size):
            epoch, rest = divmod(position, total)
            order = self._order(epoch, 0, len(windows))
            ends = np.cumsum(windows[order])
            turn = int(np.searchsorted(ends, rest, side="right"))
            shard = int(order[turn])
            local = rest - int(ends[turn] - windows[shard])
            found.append((shard, int(self._order(epoch, shard + 1, int(windows[shard]))[local])))
        return found

    def batch(self, index: int) -> tuple[TokenArray, TokenArray]:
        """Inputs and targets, both i32[batch, context]; a target is the token after its input.

        Raises:
            InvalidBatches: the index is out of range.
            TokenOutOfRange: a token does not fit the vocabulary.
            PlaceUnreachable, ShardCorrupt, CacheTooSmall: a shard cannot be had; see `ShardCache`.
        """
        known = self.cache.index
        rows = np.empty((self.batch_size, self.context + 1), np.int32)
        for row, (shard, window) in zip(rows, self.places(index), strict=True):
            start = window * self.context
            tokens = self.cache.tokens(known.training[shard])[start : start + self.context + 1]
            check_tokens(tokens, known.vocabulary_size, f"batch {index}")
            row[:] = tokens
        return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])

    def _order(self, epoch: int, stream: int, count: int) -> npt.NDArray[np.int64]:
        if (epoch, stream) not in self._orders:
            if len(self._orders) >= 8:
                del self._orders[next(iter(self._orders))]
            key, counter = np.array([self.seed, epoch], np.uint64), np.array([0, 0, 0, stream], np.uint64)
            raw = np.random.Philox(key=key, counter=counter).random_raw(count)
            self._orders[epoch, stream] = np.argsort(raw, kind="stable")
        return self._orders[epoch, stream]
