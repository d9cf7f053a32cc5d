"""Shards that another process brings, because this one has neither a network nor a folder to write to."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pcp.training.data.shards.cache import AHEAD, mapped
from pcp.training.data.shards.index import Shard, ShardIndex

_Tokens = npt.NDArray[np.unsignedinteger]


class LentShards:
    """Stands for the `ShardCache` of a process that has one.

    Arguments:
        folder: of that cache.
        bring: has a shard brought there, and returns when it is; raises where it cannot be.
        expect: says which shard is used now, and which are needed next.
    """

    def __init__(
        self,
        index: ShardIndex,
        folder: Path,
        bring: Callable[[Shard], None],
        expect: Callable[[Sequence[Shard]], None],
    ) -> None:
        self.index, self._folder, self._bring, self._expect = index, folder, bring, expect
        self._mapped: dict[Shard, _Tokens] = {}
        self._expected: tuple[Shard, ...] = ()

    def tokens(self, shard: Shard) -> _Tokens:
        """The tokens of a shard, mapped from its file; a mapping in use outlives its eviction."""
        if shard not in self._mapped:
            self._bring(shard)
            self._mapped[shard] = mapped(self._folder, self.index, shard)
        return self._mapped[shard]

    def expect(self, present: Shard, following: Iterable[Shard]) -> None:
        """Say what is needed next, and let go of what is not."""
        expected = present, *itertools.islice(following, AHEAD)
        if expected != self._expected:
            self._expected = expected
            self._mapped = {shard: tokens for shard, tokens in self._mapped.items() if shard in expected}
            self._expect(expected)
