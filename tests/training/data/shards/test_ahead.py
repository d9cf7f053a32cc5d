"""Shards are fetched before batches need them: in their order, once each, within the limit, and what fails is tried again."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pcp.training.data.shards.batches import ShardedBatches
from pcp.training.data.shards.cache import ShardCache
from pcp.training.data.shards.index import ShardIndex
from pcp.training.data.shards.place import Place, PlaceUnreachable
from pcp.training.data.shards.write import write_shards


class Watched(Place):
    """A folder that tells what is read of it, and may go down."""

    def __init__(self, folder: Path, cache: Path) -> None:
        super().__init__(str(folder))
        self.cache, self.names, self.most = cache, list[str](), 0
        self.begun, self.down = threading.Condition(), False

    def read(self, name: str) -> Iterator[bytes]:
        with self.begun:
            self.names.append(name)
            self.begun.notify_all()
        for piece in [] if self.down else super().read(name):
            yield piece
            taken = sum(path.stat().st_size for path in self.cache.iterdir() if path.suffix == ".tokens")
            self.most = max(self.most, taken + len(piece))
        if self.down:
            raise PlaceUnreachable(f"cannot read {self.url}/{name}: it is down")

    def wait_for(self, names: list[str]) -> None:
        with self.begun:
            assert self.begun.wait_for(lambda: self.names[: len(names)] == names, 30), self.names


@pytest.fixture
def place(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "place", tmp_path / "cache")


@pytest.fixture
def index(tmp_path: Path, place: Watched) -> ShardIndex:
    text = tmp_path / "text"
    text.write_bytes(np.random.default_rng().bytes(1000))
    return write_shards(str(text), place, tokenizer="bytes", shard_tokens=64)


def batches(index: ShardIndex, place: Watched, limit: int) -> ShardedBatches:
    return ShardedBatches(ShardCache(index, [place], place.cache, limit), 4, 4, seed=5)


def shards_in_order(opened: ShardedBatches, count: int) -> list[str]:
    """The files of the shards that so many batches need, each where it is needed first."""
    training = opened.cache.index.training
    return list(dict.fromkeys(training[s].name for i in range(count) for s, _ in opened.places(i)))


def test_the_next_two_shards_are_fetched_while_a_batch_is_used(index: ShardIndex, place: Watched) -> None:
    opened = batches(index, place, 1 << 20)
    opened.batch(0)
    expected = shards_in_order(opened, 40)
    place.wait_for(expected[:3])
    for i in range(40):
        opened.batch(i)
    place.wait_for(expected)
    assert len(set(place.names)) == len(place.names), "a shard was read twice"


@pytest.mark.parametrize("room", [1, 2, 3])
def test_fetching_ahead_stays_within_the_limit_and_changes_no_batch(
    index: ShardIndex, place: Watched, room: int
) -> None:
    limit = room * 128 + 64
    opened = batches(index, place, limit)
    free = batches(index, Watched(Path(place.url), place.cache.with_name("free")), 1 << 20)
    for i in range(80):
        for found, wanted in zip(opened.batch(i), free.batch(i), strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert 128 <= place.most <= limit


def test_room_is_not_made_of_what_is_expected(index: ShardIndex, place: Watched) -> None:
    cache = ShardCache(index, [place], place.cache, 3 * 128)
    oldest, older, present, missing = index.training[:4]
    for shard in (oldest, older, present):
        cache.tokens(shard)
    cache.expect(present, [oldest, missing])
    place.wait_for([shard.name for shard in (oldest, older, present, missing)])
    for shard in (oldest, present, missing):
        cache.tokens(shard)
    assert len(place.names) == 4, "a shard that was here was read again"


def test_one_that_cannot_be_had_is_logged_and_tried_again(
    index: ShardIndex, place: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    opened = batches(index, place, 1 << 20)
    first, second = index.training[:2]
    opened.cache.tokens(first)
    place.down = True
    opened.cache.expect(first, [second])
    place.wait_for([first.name, second.name])
    with pytest.raises(PlaceUnreachable, match="it is down"):
        opened.cache.tokens(second)
    assert f"shard {second.name} is not fetched ahead: cannot read" in caplog.text
    place.down = False
    assert opened.cache.tokens(second).size == second.tokens
