"""Shards that a Worker brings for the process in which its programs run."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.distributed.job import Job
from pcp.distributed.messages import Blob, FailureKind
from pcp.distributed.wire import Authority, BlobMissing, BlobStore, StoreFull, Traffic
from pcp.distributed.worker.offer import EVERYTHING, Offer, ProgramStopped
from pcp.distributed.worker.programs.training_process import TrainingProcess
from pcp.distributed.worker.training.shards import ShardLender, ShardRefused, blob_of_shard, shards_of
from pcp.distributed.worker.ways import wire
from pcp.distributed.worker.ways.wire import WireWay
from pcp.training.data.run_data import DataKind, open_batches
from pcp.training.data.shards.batches import ShardedBatches
from pcp.training.data.shards.cache import ShardCache, ShardCorrupt
from pcp.training.data.shards.index import INDEX_NAME, Shard, ShardIndex, ShardIndexCorrupt
from pcp.training.data.shards.lent import LentShards
from pcp.training.data.shards.place import MissingDriver, Place, PlaceUnreachable
from pcp.training.data.shards.write import write_shards
from pcp.training.data.token_range import TokenOutOfRange
from tests.distributed.worker.test_training_process import started, train


class World:
    """A folder with shards, a Shepherd that lends them, and a Worker's store."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, folder / "place"
        text = folder / "text"
        text.write_bytes(np.random.default_rng().bytes(1000))
        self.index = write_shards(str(text), Place(str(self.place)), tokenizer="bytes", shard_tokens=64)
        self.shepherd, self.store = BlobStore(folder / "shepherd"), BlobStore(folder / "worker")
        self.shepherd.lend(
            {blob_of_shard(self.index, each): self.place / each.name for each in self.index.training}
        )
        self.fetched: list[Blob] = []

    def fetch(self, blob: Blob, store: BlobStore) -> None:
        """Stand for a BulkClient."""
        self.fetched.append(blob)
        with self.shepherd.open(blob) as source:
            store.put(source.read(0, blob.size))

    def job(self, place: str = "", data: bytes = b"") -> Job:
        content = data or (self.place / INDEX_NAME).read_bytes()
        return Job({}, self.store.put(content), 4, 4, 5, 256, DataKind.shards, place)

    def opened(self, job: Job, place: str = "", limit: int = 1 << 20) -> ShardCache:
        found = shards_of(job, self.store, self, limit, place)
        assert found is not None
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_they_come_from_the_shepherd_one_by_one_and_leave_nothing_in_the_store(world: World) -> None:
    cache = world.opened(world.job())
    shard = world.index.training[3]
    text = (world.folder / "text").read_bytes()
    assert cache.tokens(shard).tolist() == list(text[3 * 64 : 4 * 64])
    assert world.fetched == [blob_of_shard(world.index, shard)]
    assert not world.store.has(world.fetched[0])


def test_the_users_place_is_asked_first_and_the_shepherd_where_it_fails(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    cache = world.opened(world.job(), str(world.place))
    first, second, third = world.index.training[:3]
    cache.tokens(first)
    assert not world.fetched
    content = (world.place / second.name).read_bytes()
    (world.place / second.name).write_bytes(b"x" + content[1:])
    world.shepherd.open = _missing  # type: ignore[method-assign]  # as if it were not there any more
    with pytest.raises(PlaceUnreachable, match="cannot fetch shard"):
        cache.tokens(second)
    assert "shards come from the Shepherd from now on" in caplog.text
    assert "its index says 128 with" in caplog.text
    caplog.clear()
    # Both have failed once; the Shepherd is asked first now, and the place, which is well, after it.
    assert cache.tokens(third).size == 64
    assert f"shards come from {world.place} from now on" in caplog.text


def _missing(blob: Blob) -> Any:
    raise BlobMissing(f"blob {blob.digest.hex()[:16]} is not here")


def test_a_corrupt_shard_of_the_only_source_is_refused(world: World) -> None:
    shard = world.index.training[0]
    cache = ShardCache(world.index, [Place(str(world.place))], world.folder / "other", 1 << 20)
    (world.place / shard.name).write_bytes(b"y" * 128)
    with pytest.raises(ShardCorrupt, match="Write the shards anew"):
        cache.tokens(shard)


@pytest.mark.parametrize("place", ["file:///etc", "/etc", "memory://corpus"])
def test_a_run_does_not_choose_files_of_this_machine(
    world: World, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    world.opened(world.job(place)).tokens(world.index.training[0])
    assert len(world.fetched) == 1
    assert f"shards do not come from {place}, which the run names: only s3://, gs://" in caplog.text
    assert "give --data to read them from elsewhere" in caplog.text


def test_without_the_driver_of_the_runs_place_the_shepherd_is_asked(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(url: str) -> Place:
        raise MissingDriver(f"cannot open {url}: no driver.")

    monkeypatch.setattr("pcp.distributed.worker.training.shards.Place", refused)
    world.opened(world.job("s3://bucket/corpus")).tokens(world.index.training[0])
    assert len(world.fetched) == 1
    assert "shards do not come from s3://bucket/corpus: cannot open" in caplog.text


def test_a_place_is_said_to_be_of_no_use_where_the_data_are_no_shards(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job({}, world.store.put(b"tokens"), 1, 1, 1, 1)
    assert shards_of(job, world.store, world, 1) is None
    assert not caplog.text
    assert shards_of(job, world.store, world, 1, str(world.place)) is None
    assert f"nothing is read from {world.place} (--data): the data of this run are no shards" in caplog.text


def test_a_changed_index_is_refused(world: World) -> None:
    content = json.loads((world.place / INDEX_NAME).read_bytes())
    content["training"][0]["digest"] = "../../../../etc/passwd"
    with pytest.raises(ShardIndexCorrupt, match="no SHA-256 in hex"):
        world.opened(world.job(data=json.dumps(content).encode()))


def test_an_index_of_larger_tokens_than_the_run_has_is_refused(world: World) -> None:
    def shards(_: ShardIndex) -> Any:
        raise AssertionError

    with pytest.raises(TokenOutOfRange, match="has 256 tokens; the run was described with 255"):
        open_batches(DataKind.shards, world.place / INDEX_NAME, 4, 4, 5, 255, shards)


def lent(world: World, lender: ShardLender) -> LentShards:
    def bring(shard: Shard) -> None:
        assert lender.bring(shard.digest, lambda: False) == ""

    def expect(shards: Any) -> None:
        lender.expect(shard.digest for shard in shards)

    return LentShards(world.index, lender.folder, bring, expect)


def test_batches_are_those_of_a_process_with_a_cache_whatever_the_limit(world: World) -> None:
    own = ShardedBatches(world.opened(world.job()), 4, 4, seed=5)
    small = ShardCache(world.index, [Place(str(world.place))], world.folder / "small", 2 * 128)
    others = ShardedBatches(lent(world, ShardLender(small)), 4, 4, seed=5)
    for index in range(300):
        for one, other in zip(own.batch(index), others.batch(index), strict=True):
            np.testing.assert_array_equal(one, other)
        assert len(list(small.folder.glob("*.tokens"))) <= 2


def test_what_is_not_in_the_index_is_refused(world: World) -> None:
    lender = ShardLender(world.opened(world.job()))
    for digest in ("0" * 64, "../" * 20, world.index.validation.digest):
        with pytest.raises(ShardRefused, match="is not in the index of the run"):
            lender.bring(digest, lambda: False)
        with pytest.raises(ShardRefused, match="is not in the index of the run"):
            lender.expect([digest])


def test_who_gives_up_does_not_wait_for_a_shard(world: World) -> None:
    waiting = threading.Event()

    def fetch(*_: object) -> None:
        waiting.wait(30)
        raise StoreFull("there is no room")

    world.fetch = fetch  # type: ignore[method-assign]  # a slow line
    lender = ShardLender(world.opened(world.job()))
    asked: list[int] = []

    def aborted() -> bool:
        asked.append(1)
        return len(asked) > 1

    shard = world.index.training[0]
    assert lender.bring(shard.digest, aborted) is None
    waiting.set()
    said = lender.bring(shard.digest, lambda: False)
    assert said is not None
    assert "cannot fetch shard" in said
    assert "there is no room" in said
    lender.close()


def test_the_process_of_programs_asks_for_shards_and_is_ended_where_it_lies(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: Callable[[str], str] = lambda digest: (  # noqa: E731  # a line of a script
        f'say(\'{{"number": 1}}\')\nread()\nsay(\'{{"shard": "{digest}"}}\')\nread()\nsay(\'{{"number": 2, "error": "x", '
        '"reason": "answered"}\')\ntime.sleep(30)'
    )
    shard = world.index.training[0]
    for digest, error in ((shard.digest, "answered"), ("7" * 64, "lies: shard '7777")):
        lender = ShardLender(world.opened(world.job()))
        given = lambda *arguments, lender=lender, **named: TrainingProcess(  # noqa: E731  # stands for it
            *arguments, **named, shards=lender
        )
        monkeypatch.setattr("tests.distributed.worker.test_training_process.TrainingProcess", given)
        process = started(monkeypatch, tmp_path, answers(digest))
        with pytest.raises(Exception, match=error) as raised:
            train(process)
        if isinstance(raised.value, ProgramStopped):
            assert raised.value.why is FailureKind.CRASH
    assert (world.folder / "worker-shards" / shard.name).exists()


def test_shards_take_half_of_what_is_offered() -> None:
    offer = Offer(20_000)
    assert (offer.shard_bytes, offer.without_shards.disk_bytes) == (10_000, 10_000)
    assert EVERYTHING.shard_bytes == 8 << 30


def test_what_shards_may_take_is_taken_from_the_store(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "TrainingProcess", lambda *arguments: arguments[4])
    way = WireWay("127.0.0.1:1", Authority.create(world.folder / "keys").issue("ada"))
    asyncio.run(way.open(world.store))
    way.carriers(Traffic())
    rest = way.trainer(
        world.job(), world.store, "cpu:0", lambda: False, Offer(20_000), world.folder, lambda *_: None
    )
    assert rest == Offer(10_000)
    assert world.store.maximum_total_bytes == 10_000


def test_lent_files_are_neither_removed_nor_written(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shard = world.index.training[0]
    blob, file = blob_of_shard(world.index, shard), world.place / shard.name
    content = file.read_bytes()
    assert world.shepherd.get(blob) == content
    world.shepherd.remove(blob.digest)
    world.shepherd.keep_only([])
    assert file.exists()
    file.unlink()
    with pytest.raises(BlobMissing):
        world.shepherd.open(blob)
    with world.shepherd.begin(
        blob, "mallory"
    ) as partial:  # what a peer pushes stays in the store's own folder
        partial.write(content)
        partial.finish()
    assert not file.exists()
