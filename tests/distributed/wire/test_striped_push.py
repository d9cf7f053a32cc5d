"""One blob pushed over several connections: it arrives whole, whichever of them break, and nothing can be written over."""

import asyncio
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from pcp.distributed.messages import Blob
from pcp.distributed.wire import (
    BlobStore,
    DigestMismatch,
    FrameKind,
    StoreError,
    StripedPusher,
    TransferFailed,
    TransferRefused,
    WireServer,
    blob_of,
)
from pcp.distributed.wire.blob_files import PartialReplaced

from .loopback import Proxy, Run
from .striping import BLOB, CONTENT, PIECE, clients_of
from .test_bulk import play


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path)
    run.worker_store.put(CONTENT)
    run.permissions.allow_push("ada", BLOB.size)
    return run


def pusher_of(run: Run, addresses: list[str], **options: Any) -> StripedPusher:
    return StripedPusher(clients_of(run, addresses, **options), piece_bytes=PIECE)


def sent(pusher: StripedPusher) -> list[int]:
    return [client.traffic.sent.get(FrameKind.CHUNK, 0) for client in pusher._clients]


def test_every_connection_pushes_a_part(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        pusher = pusher_of(run, [address] * 3)
        await asyncio.to_thread(pusher.push, BLOB, run.worker_store)
        assert run.store.get(BLOB) == CONTENT
        assert server.statistics.accepted == {"bulk": 3}
        assert BLOB.size < sum(sent(pusher)) < 1.01 * BLOB.size  # nothing twice; the allowance sufficed, too
        assert server.statistics.refused == {}
        await asyncio.to_thread(pusher.push, BLOB, run.worker_store)  # it is there already
        assert sum(sent(pusher)) < 1.01 * BLOB.size
        pusher.close()
        assert [path.name for path in run.store.folder.iterdir()] == [BLOB.digest.hex()]

    play(story, run)


def test_a_push_goes_on_where_its_connections_broke(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        with Proxy(server.port, [270_000, 150_000, 90_000]) as proxy:
            pusher = pusher_of(run, [proxy.address, address], maximum_attempts=3)
            await asyncio.to_thread(pusher.push, BLOB, run.worker_store)
            assert sum(sent(pusher)) < 1.3 * BLOB.size
            pusher.close()
        assert run.store.get(BLOB) == CONTENT

    play(story, run)


def test_a_connection_that_cannot_be_made_leaves_its_pieces_to_the_others(run: Run) -> None:
    async def story(_: WireServer, address: str) -> None:
        pusher = pusher_of(run, ["127.0.0.1:1", address], maximum_attempts=2)
        await asyncio.to_thread(pusher.push, BLOB, run.worker_store)
        assert run.store.get(BLOB) == CONTENT
        pusher.close()

    play(story, run)


def test_a_push_ends_when_every_connection_has_failed(run: Run) -> None:
    pusher = pusher_of(run, ["127.0.0.1:1"] * 2, maximum_attempts=2)
    with pytest.raises(TransferFailed, match=r"could not push blob .* to 127.0.0.1:1 in 2 attempts"):
        pusher.push(BLOB, run.worker_store)
    pusher.close()


def test_pieces_are_held_to_the_allowance_of_the_whole(run: Run) -> None:
    async def story(_: WireServer, address: str) -> None:
        run.permissions.allow_push("ada", BLOB.size - 1)
        pusher = pusher_of(run, [address] * 2)
        with pytest.raises(TransferRefused, match="ada may push 3299999 bytes and offers a blob of 3300000"):
            await asyncio.to_thread(pusher.push, BLOB, run.worker_store)
        pusher.close()
        assert list(run.store.folder.iterdir()) == []

    play(story, run)


def test_wrong_content_is_refused_and_removed(run: Run) -> None:
    async def story(_: WireServer, address: str) -> None:
        run.worker_store.path(BLOB.digest).write_bytes(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
        pusher = pusher_of(run, [address] * 2)
        with pytest.raises(TransferRefused, match="have the digest"):
            await asyncio.to_thread(pusher.push, BLOB, run.worker_store)
        pusher.close()
        assert not run.store.has(BLOB)

    play(story, run)


SMALL = CONTENT[:1000]
WHOLE = blob_of(SMALL)


def test_pieces_in_any_order_make_a_blob(tmp_path: Path) -> None:
    rng = random.Random(7)
    for seed in range(20):
        content = rng.randbytes(1000)
        store, blob = BlobStore(tmp_path / str(seed)), blob_of(content)
        cuts = [0, *sorted(rng.sample(range(1, 1000), 5)), 1000]
        pieces = [store.begin_piece(blob, "ada", first, last) for first, last in itertools.pairwise(cuts)]
        rng.shuffle(pieces)
        for piece in pieces:
            while piece.offset < piece.stop:
                piece.write(content[piece.offset : min(piece.stop, piece.offset + 70)])
            piece.finish()
        assert [piece.was_last for piece in pieces] == [False] * 5 + [True]
        for piece in pieces:
            piece.close()
        assert store.get(blob) == content
        assert store.total_bytes == 1000


def test_what_is_here_cannot_be_written_over(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    keeper = store.begin_piece(WHOLE, "ada", 900, 1000)
    early, ahead = store.begin_piece(WHOLE, "ada", 0, 300), store.begin_piece(WHOLE, "ada", 500, 700)
    slow = store.begin_piece(WHOLE, "ada", 300, 500)
    for piece in (early, ahead):
        piece.write(SMALL[piece.offset : piece.stop])
        piece.finish()
        piece.close()
    assert (store.begin_piece(WHOLE, "ada", 0, 300).offset, early.whole.offset) == (300, 300)
    assert store.begin_piece(WHOLE, "ada", 500, 700).offset == 700
    with pytest.raises(StoreError, match=r"bytes 600 to 800 of blob .* overlap others that are here"):
        store.begin_piece(WHOLE, "ada", 600, 800)
    assert store.begin_piece(WHOLE, "ada", 300, 500).offset == 300  # its peer has come back
    with pytest.raises(PartialReplaced, match="a newer transfer"):
        slow.write(b"x")
    keeper.close()


def test_what_is_behind_a_gap_stays_for_pieces_and_is_lost_to_a_whole_transfer(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    for first, last in ((0, 200), (400, 600)):
        piece = store.begin_piece(WHOLE, "ada", first, last)
        piece.write(SMALL[first:last])
        piece.finish()
        piece.close()
    again = store.begin_piece(WHOLE, "ada", 400, 600)
    assert again.offset == 600
    again.close()
    with store.begin(WHOLE, "ada") as partial:
        assert partial.offset == 200
        assert partial.path.stat().st_size == 200
        partial.write(SMALL[200:])
        partial.finish()
    assert store.get(WHOLE) == SMALL


def test_a_whole_transfer_ends_one_in_pieces(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)
    first, last = store.begin_piece(WHOLE, "ada", 0, 100), store.begin_piece(WHOLE, "ada", 900, 1000)
    for piece in (last, first):
        piece.write(SMALL[piece.offset : piece.stop])
    last.finish()
    with store.begin(WHOLE, "ada") as partial:
        with pytest.raises(PartialReplaced):
            first.finish()
        first.close()
        last.close()
        partial.write(SMALL[partial.offset :])
        partial.finish()
    assert store.get(WHOLE) == SMALL


def test_wrong_pieces_are_removed_and_pushed_anew(tmp_path: Path) -> None:
    store, blob = BlobStore(tmp_path), Blob(bytes(32), 20)
    pieces = [store.begin_piece(blob, "ada", 0, 10), store.begin_piece(blob, "ada", 10, 20)]
    for piece in pieces:
        piece.write(bytes(10))
    pieces[1].finish()
    with pytest.raises(DigestMismatch, match="they were removed"):
        pieces[0].finish()
    assert store.begin_piece(blob, "ada", 10, 20).offset == 10
    for piece in pieces:
        piece.close()
