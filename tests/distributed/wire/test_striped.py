"""One blob over several connections: it arrives whole, whichever of them break, and goes on behind what is there."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from pcp.distributed.messages import Blob
from pcp.distributed.wire import (
    DigestMismatch,
    FrameKind,
    StoreFull,
    StripedFetcher,
    TransferCancelled,
    TransferFailed,
    TransferRefused,
    WireServer,
)
from pcp.distributed.wire.partial_blob import PartialBlob

from .loopback import Proxy, Run, eventually
from .striping import BLOB, CONTENT, PIECE, clients_of
from .test_bulk import play


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path)
    run.store.put(CONTENT)
    run.permissions.announce([BLOB])
    return run


def fetcher_of(run: Run, addresses: list[str], **options: Any) -> StripedFetcher:
    clients = clients_of(run, addresses)
    return StripedFetcher(clients, piece_bytes=PIECE, backoff_seconds=(0.001, 0.01), **options)


def received(fetcher: StripedFetcher) -> list[int]:
    return [client.traffic.received.get(FrameKind.CHUNK, 0) for client in fetcher._clients]


def test_every_connection_brings_a_part(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        fetcher = fetcher_of(run, [address] * 4)
        await asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store)
        assert run.worker_store.get(BLOB) == CONTENT
        assert server.statistics.accepted == {"bulk": 4}
        assert BLOB.size < sum(received(fetcher)) < 1.01 * BLOB.size  # nothing twice; chunks have heads
        await asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store)  # it is there already
        assert sum(received(fetcher)) < 1.01 * BLOB.size
        fetcher.close()

    play(story, run)


@pytest.mark.parametrize(("near", "used"), [(60.0, 1), (1e-9, 4)])
def test_over_a_short_way_one_connection_brings_all(run: Run, near: float, used: int) -> None:
    async def story(server: WireServer, address: str) -> None:
        fetcher = fetcher_of(run, [address] * 4, near_seconds=near)
        await asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store)
        assert run.worker_store.get(BLOB) == CONTENT
        assert server.statistics.accepted == {"bulk": used}
        fetcher.close()

    play(story, run)


def test_a_way_that_cannot_be_measured_is_left_to_the_other_connections(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        fetcher = fetcher_of(run, ["127.0.0.1:1", address, address], near_seconds=60.0)
        await asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store)
        assert run.worker_store.get(BLOB) == CONTENT
        assert server.statistics.accepted == {"bulk": 2}
        fetcher.close()

    play(story, run)


def test_others_go_on_with_the_rest_of_a_piece_whose_connection_breaks(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        with Proxy(server.port, [70_000] * 3) as proxy:
            fetcher = fetcher_of(run, [proxy.address, address], maximum_attempts=2)
            await asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store)
            assert sum(received(fetcher)) < 1.2 * BLOB.size
            fetcher.close()
        assert run.worker_store.get(BLOB) == CONTENT

    play(story, run)


def test_a_connection_that_cannot_be_made_leaves_its_pieces_to_the_others(run: Run) -> None:
    async def story(_: WireServer, address: str) -> None:
        fetcher = fetcher_of(run, ["127.0.0.1:1", address], maximum_attempts=2)
        await asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store)
        assert run.worker_store.get(BLOB) == CONTENT
        fetcher.close()

    play(story, run)


def test_a_fetch_ends_when_every_connection_has_failed(run: Run) -> None:
    async def story(_: WireServer, __: str) -> None:
        fetcher = fetcher_of(run, ["127.0.0.1:1"] * 2, maximum_attempts=3)
        with pytest.raises(TransferFailed, match=r"could not fetch blob .* from 127.0.0.1:1 in 3 attempts"):
            await asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store)
        fetcher.close()

    play(story, run)


def test_a_fetch_goes_on_behind_what_another_brought(run: Run) -> None:
    async def story(_: WireServer, address: str) -> None:
        with run.worker_store.begin(BLOB, "fetch") as partial:
            partial.write(CONTENT[:2_500_000])
        fetcher = fetcher_of(run, [address] * 3)
        await asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store)
        assert run.worker_store.get(BLOB) == CONTENT
        assert sum(received(fetcher)) < 1.01 * (BLOB.size - 2_500_000)
        fetcher.close()

    play(story, run)


def test_what_is_refused_is_not_asked_for_again(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        fetcher = fetcher_of(run, [address] * 2)
        unknown = Blob(bytes(32), BLOB.size)
        with pytest.raises(TransferRefused, match="refused the fetch of blob 0000000000000000"):
            await asyncio.to_thread(fetcher.fetch, unknown, run.worker_store)
        await eventually(lambda: server.statistics.refused.get("NOT_ANNOUNCED", 0) >= 2)
        assert set(server.statistics.refused) == {"NOT_ANNOUNCED"}
        fetcher.close()

    play(story, run)


def test_wrong_content_is_fetched_twice_and_then_reported(run: Run) -> None:
    async def story(_: WireServer, address: str) -> None:
        run.store.path(BLOB.digest).write_bytes(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
        fetcher = fetcher_of(run, [address] * 2)
        with pytest.raises(DigestMismatch, match="have the digest"):
            await asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store)
        assert sum(received(fetcher)) > 2 * BLOB.size
        assert not run.worker_store.has(BLOB)
        fetcher.close()

    play(story, run)


def test_a_full_disk_ends_every_connection_of_a_fetch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_: WireServer, address: str) -> None:
        def full(_: PartialBlob, data: memoryview) -> None:
            raise StoreFull(f"no room for {len(data)} bytes")

        monkeypatch.setattr(PartialBlob, "write", full)
        fetcher = fetcher_of(run, [address] * 3)
        with pytest.raises(StoreFull, match="no room for 32768 bytes"):
            await asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("stripe")]
        fetcher.close()

    play(story, run)


def test_a_striped_fetch_can_be_cancelled_from_outside(run: Run) -> None:
    async def story(server: WireServer, _: str) -> None:
        with Proxy(server.port, [100_000], silent=True) as proxy:
            fetcher = fetcher_of(run, [proxy.address, "127.0.0.1:1"], maximum_attempts=2)
            transfer = asyncio.create_task(asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store))
            await asyncio.to_thread(proxy.spent.wait, 10)
            await asyncio.to_thread(fetcher.close)
            with pytest.raises(TransferCancelled, match="was asked to stop before"):
                await transfer

    play(story, run, stall_seconds=0.3)


def test_no_more_is_held_in_memory_than_pieces_ahead(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcp.distributed.wire.bulk.striped.PIECES_AHEAD", 3)
    write = PartialBlob.write

    async def story(_: WireServer, address: str) -> None:
        def stuck_write(partial: PartialBlob, data: memoryview) -> None:
            stuck.wait(10)
            write(partial, data)

        monkeypatch.setattr(PartialBlob, "write", stuck_write)
        stuck = threading.Event()
        fetcher = fetcher_of(run, [address] * 3)
        transfer = asyncio.create_task(asyncio.to_thread(fetcher.fetch, BLOB, run.worker_store))
        try:
            await eventually(lambda: sum(received(fetcher)) > 3 * PIECE)  # chunks have heads
            await asyncio.sleep(0.05)
            assert sum(received(fetcher)) < 4.1 * PIECE  # the first chunk is being written
        finally:
            stuck.set()
        await transfer
        assert run.worker_store.get(BLOB) == CONTENT
        fetcher.close()

    play(story, run)
