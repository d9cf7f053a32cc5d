"""The tokens of a run whose corpus lies in shards."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pcp.training.data.shards.cache import ShardCache
from pcp.training.data.shards.index import INDEX_NAME, ShardIndex
from pcp.training.data.shards.place import Place

CACHE_BYTES = 8 << 30
"""What the shards of a run may take of the disk together."""


@dataclass(frozen=True, eq=False)
class ShardedTokens:
    """A sharded corpus, opened; stands where a TokenFile stands.

    Arguments:
        cache: of this process.
        path: the file of the index, which is what a Worker needs first.
        place: where all shards lie.
    """

    cache: ShardCache
    path: Path
    place: Place

    @property
    def vocabulary_size(self) -> int:
        """Every token is smaller."""
        return self.cache.index.vocabulary_size

    @property
    def validation(self) -> npt.NDArray[np.unsignedinteger]:
        """The validation part, mapped from its shard."""
        return self.cache.tokens(self.cache.index.validation)

    @property
    def files(self) -> list[tuple[str, int, Path]]:
        """Digest, bytes and file of each shard that is trained on, where they lie in a folder of this machine."""
        index, folder = self.cache.index, Path(self.place.url)
        if not self.place.is_folder:
            return []
        return [(shard.digest, index.size(shard), folder / shard.name) for shard in index.training]


def names_shards(data: str) -> bool:
    """Whether a run's data are shards: a URL, or a folder with an index."""
    return "://" in data or (Path(data) / INDEX_NAME).is_file()


def fetch_index(data: str) -> ShardIndex:
    """Read the index of a place.

    Raises:
        MissingExtra, MissingDriver, PlaceUnreachable: the place cannot be read.
        ShardIndexCorrupt: it holds another thing.
    """
    place = Place(data)
    return ShardIndex.from_json(b"".join(place.read(INDEX_NAME)), f"{place.url}/{INDEX_NAME}")
