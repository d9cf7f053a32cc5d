"""Bulk connections on loopback: whole blobs arrive, whatever breaks on the way."""

import asyncio
import dataclasses
import gc
import random
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pcp.distributed.messages import Blob
from pcp.distributed.wire import (
    Backoff,
    BlobMissing,
    BulkClient,
    CertificateRefused,
    DigestMismatch,
    FrameKind,
    RefusalCode,
    StoreFull,
    TransferCancelled,
    TransferFailed,
    TransferRefused,
    TransferSettings,
    WireServer,
    blob_of,
)
from pcp.distributed.wire.bulk import client as bulk_client
from pcp.distributed.wire.identity.tls import BULK_PROTOCOL, SHEPHERD_NAME, client_context
from pcp.distributed.wire.partial_blob import PartialBlob
from pcp.distributed.wire.sockets import BULK_PREAMBLE

from .loopback import LIMITS, Proxy, Run, eventually, open_descriptors

CONTENT = random.Random(9).randbytes(20_000_000)
BLOB = blob_of(CONTENT)
SMALL = CONTENT[:50_000]
WINDOW = TransferSettings(chunk_bytes=1 << 18, window_bytes=1 << 20)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def client_of(run: Run, address: str, **options: Any) -> BulkClient:
    options = {"settings": WINDOW, "limits": LIMITS, "backoff": Backoff(0.001, 0.01)} | options
    return BulkClient(address, options.pop("credentials", None) or run.worker(), **options)


def play(story: Callable[[WireServer, str], Coroutine[Any, Any, None]], run: Run, **limits: Any) -> None:
    """Runs a test's story with a server; nothing may be left of it."""

    async def bounded() -> None:
        server = await run.serve(limits=dataclasses.replace(LIMITS, **limits))
        try:
            async with asyncio.timeout(40):
                await story(server, f"127.0.0.1:{server.port}")
        finally:
            await server.close()
        await asyncio.sleep(0)  # connections that threads ended are counted by the loop
        assert server.open_connections == 0

    gc.collect()  # what an earlier test left open must not be closed, or counted, in this one
    threads, descriptors = threading.active_count(), open_descriptors()
    with asyncio.Runner() as runner:
        runner.run(bounded())
    assert threading.active_count() == threads
    gc.collect()
    assert open_descriptors() <= descriptors


def test_fetch_and_push(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        blob = run.store.put(SMALL)
        run.permissions.announce([blob])
        run.permissions.allow_push("ada", 100_000)
        with client_of(run, address) as client:
            await asyncio.to_thread(client.fetch, blob, run.worker_store)
            assert run.worker_store.get(blob) == SMALL
            own = run.worker_store.put(SMALL[::-1])
            await asyncio.to_thread(client.push, own, run.worker_store)
            assert run.store.get(own) == SMALL[::-1]
            await asyncio.to_thread(client.push, own, run.worker_store)  # it is there already
            await asyncio.to_thread(client.fetch, blob, run.worker_store)
            assert client.reconnects == 0
            assert client.traffic.received[FrameKind.CHUNK] == len(SMALL) + 24
            assert client.traffic.sent[FrameKind.CHUNK] == len(SMALL) + 24
            await eventually(lambda: server.statistics.traffic.sent == client.traffic.received)
            assert server.statistics.traffic.received == client.traffic.sent
        assert server.statistics.accepted == {"bulk": 1}
        assert server.statistics.refused == {}

    play(story, run)


@pytest.mark.parametrize("direction", ["fetch", "push"])
def test_a_transfer_that_breaks_in_the_middle_goes_on_there(run: Run, direction: str) -> None:
    async def story(server: WireServer, _: str) -> None:
        (run.store if direction == "fetch" else run.worker_store).put(CONTENT)
        run.permissions.announce([BLOB])
        run.permissions.allow_push("ada", BLOB.size)
        budgets = [6_000_000, 5_000_000, 4_000_000, 3_000_000]
        with Proxy(server.port, budgets) as proxy:
            # Attempts that bring something do not count.
            with client_of(run, proxy.address, maximum_attempts=2) as client:
                await asyncio.to_thread(getattr(client, direction), BLOB, run.worker_store)
            assert client.reconnects == 4
        assert (run.worker_store if direction == "fetch" else run.store).get(BLOB) == CONTENT
        moved = client.traffic.received if direction == "fetch" else client.traffic.sent
        headers = 24 * (BLOB.size // WINDOW.chunk_bytes + 20)
        lost = moved[FrameKind.CHUNK] - BLOB.size
        assert 0 <= lost <= 4 * (WINDOW.window_bytes + WINDOW.chunk_bytes) + headers
        assert server.statistics.accepted == {"bulk": 5}

    play(story, run)


@pytest.mark.parametrize("direction", ["fetch", "push"])
def test_a_peer_that_falls_silent_is_left_and_tried_again(run: Run, direction: str) -> None:
    async def story(server: WireServer, _: str) -> None:
        (run.store if direction == "fetch" else run.worker_store).put(CONTENT)
        run.permissions.announce([BLOB])
        run.permissions.allow_push("ada", BLOB.size)
        limits = dataclasses.replace(LIMITS, stall_seconds=0.3)
        with (
            Proxy(server.port, [9_000_000], silent=True) as proxy,
            client_of(run, proxy.address, limits=limits) as client,
        ):
            await asyncio.to_thread(getattr(client, direction), BLOB, run.worker_store)
            assert client.reconnects >= 1
        assert (run.worker_store if direction == "fetch" else run.store).has(BLOB)

    play(story, run, stall_seconds=0.3)


def test_a_transfer_can_be_cancelled_from_outside(run: Run) -> None:
    async def story(server: WireServer, _: str) -> None:
        run.store.put(CONTENT)
        run.permissions.announce([BLOB])
        with Proxy(server.port, [9_000_000], silent=True) as proxy:
            client = client_of(run, proxy.address)
            transfer = asyncio.create_task(asyncio.to_thread(client.fetch, BLOB, run.worker_store))
            await asyncio.to_thread(proxy.spent.wait, 10)
            await asyncio.to_thread(client.close)
            with pytest.raises(TransferCancelled, match="was asked to stop before it could fetch blob"):
                await transfer
            with pytest.raises(TransferCancelled):
                client.fetch(BLOB, run.worker_store)

    play(story, run, stall_seconds=0.3)


def test_cancelling_while_a_connection_is_made(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_: WireServer, address: str) -> None:
        run.store.put(CONTENT)
        run.permissions.announce([BLOB])
        client = client_of(run, address)
        connect = bulk_client.connect

        def cancelled_meanwhile(*arguments: Any) -> socket.socket:
            connection = connect(*arguments)
            client._cancelled.set()  # `close` found no socket to interrupt yet
            return connection

        monkeypatch.setattr(bulk_client, "connect", cancelled_meanwhile)
        with pytest.raises(TransferCancelled):
            await asyncio.to_thread(client.fetch, BLOB, run.worker_store)
        client.close()

    play(story, run)


def test_a_store_that_fills_up_in_the_middle_of_a_push(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write = PartialBlob.write

    def full(partial: PartialBlob, data: memoryview) -> None:
        if partial.offset > 3_000_000:
            raise StoreFull("no room in /a/secret/folder")
        write(partial, data)

    async def story(server: WireServer, address: str) -> None:
        run.worker_store.put(CONTENT)
        run.permissions.allow_push("ada", BLOB.size)
        monkeypatch.setattr(PartialBlob, "write", full)
        with client_of(run, address, settings=TransferSettings()) as client:
            with pytest.raises(
                TransferRefused, match=r"refused the push of .*: the store has no room"
            ) as caught:
                await asyncio.to_thread(client.push, BLOB, run.worker_store)
            assert client.reconnects == 0
        assert caught.value.refusal.kind is RefusalCode.STORE_FULL
        await eventually(lambda: server.statistics.refused == {"STORE_FULL": 1})

    for _ in range(3):
        play(story, run)
        monkeypatch.undo()


def test_several_streams_at_once(run: Run) -> None:
    async def story(_: WireServer, address: str) -> None:
        parts = [
            run.store.put(CONTENT[start : start + 2_500_000]) for start in range(0, len(CONTENT), 2_500_000)
        ]
        run.permissions.announce(parts)
        clients = [client_of(run, address) for _ in range(4)]
        fetches = [
            asyncio.to_thread(clients[index % 4].fetch, part, run.worker_store)
            for index, part in enumerate(parts)
        ]
        await asyncio.gather(*fetches)
        assert b"".join(run.worker_store.get(part) for part in parts) == CONTENT
        for client in clients:
            client.close()

    play(story, run)


def test_two_clients_that_fetch_the_same_blob_into_one_store(run: Run) -> None:
    async def story(_: WireServer, address: str) -> None:
        run.store.put(CONTENT)
        run.permissions.announce([BLOB])
        with client_of(run, address) as first, client_of(run, address) as second:
            await asyncio.gather(
                asyncio.to_thread(first.fetch, BLOB, run.worker_store, "first"),
                asyncio.to_thread(second.fetch, BLOB, run.worker_store, "second"),
            )
        assert run.worker_store.get(BLOB) == CONTENT

    play(story, run)


def test_wrong_bytes_are_noticed_on_both_ways(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        blob = run.store.put(SMALL)
        run.store.path(blob.digest).write_bytes(SMALL[:-1] + b"!")
        run.permissions.announce([blob])
        own = run.worker_store.put(SMALL[::-1])
        run.worker_store.path(own.digest).write_bytes(SMALL)
        run.permissions.allow_push("ada", 100_000)
        with client_of(run, address) as client:
            with pytest.raises(DigestMismatch, match="they were removed, fetch them again"):
                await asyncio.to_thread(client.fetch, blob, run.worker_store)
            with pytest.raises(TransferRefused, match=r"the push of blob .* have the digest") as caught:
                await asyncio.to_thread(client.push, own, run.worker_store)
            assert client.reconnects == 2  # each was tried once more, from the beginning
        assert caught.value.refusal.kind is RefusalCode.CORRUPT
        assert not run.worker_store.has(blob)
        assert not run.store.has(own)
        await eventually(lambda: server.statistics.refused.get("CORRUPT") == 2)

    play(story, run)


def test_blobs_that_may_not_be_moved(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        blob, own = run.store.put(SMALL), run.worker_store.put(SMALL[::-1])
        with client_of(run, address) as client:
            with pytest.raises(TransferRefused, match="is not announced to ada"):
                await asyncio.to_thread(client.fetch, blob, run.worker_store)
            with pytest.raises(TransferRefused, match="ada was not asked for a blob"):
                await asyncio.to_thread(client.push, own, run.worker_store)
            run.permissions.allow_push("ada", 49_999)
            with pytest.raises(TransferRefused, match="ada may push 49999 bytes and offers a blob of 50000"):
                await asyncio.to_thread(client.push, own, run.worker_store)
            with pytest.raises(BlobMissing, match="is not in"):
                await asyncio.to_thread(client.push, Blob(bytes(32), 5), run.worker_store)
            assert client.reconnects == 0
        await eventually(lambda: server.statistics.refused == {"NOT_ANNOUNCED": 2, "TOO_LARGE": 1})

    play(story, run)


def test_certificates_that_are_not_accepted(run: Run, tmp_path: Path) -> None:
    async def story(server: WireServer, address: str) -> None:
        blob = run.store.put(SMALL)
        run.permissions.announce([blob])
        stranger = Run(tmp_path / "other").worker()
        half = dataclasses.replace(stranger, authority=run.shepherd.authority)
        revoked = run.worker("mallory")
        run.authority.revoke("mallory")
        for credentials, text in [
            (stranger, r"is not acceptable: .* the key file belongs to another run"),
            (half, r"does not accept this side's certificate .*use a key file made by the authority"),
            (revoked, r"refused this certificate: the certificate of mallory .* was revoked"),
        ]:
            with client_of(run, address, credentials=credentials) as client:
                with pytest.raises(CertificateRefused, match=text):
                    await asyncio.to_thread(client.fetch, blob, run.worker_store)
                assert client.reconnects == 0
        await eventually(lambda: server.statistics.refused == {"CertificateRefused": 3})

    play(story, run)


def test_a_server_that_is_not_there(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with client_of(run, address, maximum_attempts=3) as client:
        with pytest.raises(TransferFailed, match=r"could not fetch blob .* in 3 attempts; .* reach a"):
            client.fetch(BLOB, run.worker_store)
        assert client.reconnects == 2


def test_an_idle_connection_is_closed_and_made_again(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        blobs = [run.store.put(SMALL), run.store.put(SMALL[::-1])]
        run.permissions.announce(blobs)
        with client_of(run, address) as client:
            await asyncio.to_thread(client.fetch, blobs[0], run.worker_store)
            await eventually(lambda: server.open_connections == 0)
            await asyncio.to_thread(client.fetch, blobs[1], run.worker_store)
            assert client.reconnects == 0  # nothing failed: it was seen before anything was asked
        assert server.statistics.accepted == {"bulk": 2}

    play(story, run, idle_seconds=0.1, close_seconds=0.1)


def test_garbage_from_a_worker_with_a_good_certificate(run: Run) -> None:
    def send_garbage(port: int, data: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", port), 10) as raw:
            raw.sendall(BULK_PREAMBLE)
            context = client_context(worker, BULK_PROTOCOL)
            with context.wrap_socket(raw, server_hostname=SHEPHERD_NAME) as connection:
                connection.sendall(data)
                answer = b""
                try:
                    while piece := connection.recv(1 << 16):
                        answer += piece
                except (ConnectionError, ssl.SSLError):
                    pass
                return answer

    worker = run.worker()

    async def story(server: WireServer, address: str) -> None:
        rng = random.Random(31)
        for _ in range(30):
            await asyncio.to_thread(send_garbage, server.port, rng.randbytes(rng.randint(16, 3000)))
        await eventually(lambda: server.open_connections == 0)
        assert server.statistics.refused == {"FrameError": 30}
        blob = run.store.put(SMALL)
        run.permissions.announce([blob])
        with client_of(run, address) as client:
            await asyncio.to_thread(client.fetch, blob, run.worker_store)

    play(story, run, close_seconds=0.1)


def test_closing_the_server_breaks_transfers_that_can_be_resumed(run: Run) -> None:
    async def story(server: WireServer, _: str) -> None:
        run.worker_store.put(CONTENT)
        run.permissions.allow_push("ada", BLOB.size)
        with Proxy(server.port, [9_000_000], silent=True) as proxy:
            client = client_of(
                run, proxy.address, maximum_attempts=1, limits=dataclasses.replace(LIMITS, stall_seconds=0.3)
            )
            push = asyncio.create_task(asyncio.to_thread(client.push, BLOB, run.worker_store))
            await asyncio.to_thread(proxy.spent.wait, 10)
            await server.close()
            with pytest.raises(TransferFailed, match="could not push blob"):
                await push
            client.close()
        with run.store.begin(BLOB, "ada") as partial:
            assert 5_000_000 < partial.offset < 9_000_000

    play(story, run)


def test_waiting_times_grow_and_are_bounded() -> None:
    backoff = Backoff(1.0, 8.0, rng=random.Random(1))
    waits = [backoff.next() for _ in range(100)]
    for attempt, seconds in enumerate(waits):
        bound = min(8.0, 2.0**attempt)
        assert bound / 2 <= seconds <= bound
    backoff.reset()
    assert backoff.next() <= 1.0
