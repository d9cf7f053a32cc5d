"""What one worker may take of bulk connections, threads and memory: never what another worker needs."""

import asyncio
import select
import socket
import ssl
import threading

import pytest

from pcp.distributed.messages import Blob, Hello, Ready, States
from pcp.distributed.wire import (
    ControlConnection,
    FrameKind,
    TransferFailed,
    WireLimits,
    WireServer,
    connect,
)
from pcp.distributed.wire.bulk.chunks import Source
from pcp.distributed.wire.bulk.messages import Begin, Fetch
from pcp.distributed.wire.codec import decode_transfer, encode_transfer
from pcp.distributed.wire.frames import Frame, FrameDecoder, encode_frame
from pcp.distributed.wire.identity.tls import BULK_PROTOCOL, SHEPHERD_NAME, client_context
from pcp.distributed.wire.sockets import BULK_PREAMBLE

from .loopback import WELCOME, Run, eventually, hello
from .test_bulk import BLOB, CONTENT, SMALL, client_of, play
from .test_bulk import run as run


def held(run: Run, port: int, name: str, count: int) -> list[ssl.SSLSocket]:
    """Bulk connections of one key that say nothing."""
    context = client_context(run.worker(name), BULK_PROTOCOL)
    connections = []
    for _ in range(count):
        raw = socket.create_connection(("127.0.0.1", port), 10)
        raw.sendall(BULK_PREAMBLE)
        connections.append(context.wrap_socket(raw, server_hostname=SHEPHERD_NAME))
    return connections


def ended(connections: list[ssl.SSLSocket]) -> int:
    """How many of them the Shepherd has closed."""
    return sum(bool(select.select([each], [], [], 0)[0]) for each in connections)


def test_idle_workers_keep_nobody_out(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        blob = run.store.put(SMALL)
        run.permissions.announce([blob])
        threads = threading.active_count()
        idle = await asyncio.to_thread(
            lambda: [each for number in range(40) for each in held(run, server.port, f"w{number}", 1)]
        )
        await eventually(lambda: server.open_connections == 40)
        assert threading.active_count() <= threads + 2 + 1 + 2  # transfers, the watch, and `to_thread`
        with client_of(run, address) as client:
            await asyncio.to_thread(client.fetch, blob, run.worker_store)
            assert client.reconnects == 0
        assert server.statistics.refused == {}
        for each in idle:
            each.close()

    play(story, run, transfer_threads=2)


def test_the_longest_idle_connection_makes_room(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        blob = run.store.put(SMALL)
        run.permissions.announce([blob])
        first = await asyncio.to_thread(held, run, server.port, "first", 1)
        await eventually(lambda: server.open_connections == 1)
        second = await asyncio.to_thread(held, run, server.port, "second", 1)
        with client_of(run, address) as client:
            await asyncio.to_thread(client.fetch, blob, run.worker_store)
            assert client.reconnects == 0
        assert (ended(first), ended(second)) == (1, 0)
        assert server.statistics.refused == {}
        for each in (*first, *second):
            each.close()

    play(story, run, connections=2)


def test_where_all_connections_are_busy_one_more_has_to_wait(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        run.store.put(CONTENT)
        run.permissions.announce([BLOB])
        (busy,) = await asyncio.to_thread(held, run, server.port, "busy", 1)
        busy.sendall(encode_transfer(Fetch(BLOB, 0, BLOB.size, 64 << 20, 1 << 20)))  # and takes nothing
        await eventually(lambda: FrameKind.CHUNK in server.statistics.traffic.sent)
        with (
            client_of(run, address, maximum_attempts=2) as client,
            pytest.raises(TransferFailed, match=r"in 2 attempts.*all 1 connections of this Shepherd are"),
        ):
            await asyncio.to_thread(client.fetch, BLOB, run.worker_store)
        assert server.statistics.refused == {"capacity": 2}
        busy.close()

    play(story, run, connections=1)


def test_a_transfer_that_only_begins_keeps_its_connection(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    begins, others_were_refused, opens = threading.Event(), threading.Event(), run.store.open

    def opens_late(blob: Blob) -> Source:
        begins.set()
        assert others_were_refused.wait(10)
        return opens(blob)

    async def story(server: WireServer, address: str) -> None:
        run.store.put(CONTENT)
        run.permissions.announce([BLOB])
        (first,) = await asyncio.to_thread(held, run, server.port, "first", 1)
        monkeypatch.setattr(run.store, "open", opens_late)
        first.sendall(encode_transfer(Fetch(BLOB, 0, BLOB.size, 64 << 20, 1 << 20)))
        assert await asyncio.to_thread(begins.wait, 10)
        with (
            client_of(run, address, maximum_attempts=2) as client,
            pytest.raises(TransferFailed, match="all 1 connections of this Shepherd are in use"),
        ):
            await asyncio.to_thread(client.fetch, BLOB, run.worker_store)
        others_were_refused.set()
        assert isinstance(decode_transfer(await asyncio.to_thread(read_frame, first)), Begin)
        first.close()

    play(story, run, connections=1)


def test_one_key_takes_connections_from_itself_only(run: Run) -> None:
    async def story(server: WireServer, _: str) -> None:
        blob = run.store.put(SMALL)
        run.permissions.announce([blob])
        (other,) = await asyncio.to_thread(held, run, server.port, "grace", 1)
        greedy = await asyncio.to_thread(held, run, server.port, "mallory", 30)
        await eventually(lambda: ended(greedy) == 27)
        await eventually(lambda: server.open_connections == 4)
        assert ended([other]) == 0
        assert ended(greedy[-3:]) == 0  # the newest stay: a worker that comes back is let in
        assert server.statistics.refused == {"connections of one worker": 27}
        for each in (other, *greedy):
            each.close()

    play(story, run, connections_per_worker=3)


def test_a_transfer_among_many_is_cut_smaller(run: Run) -> None:
    async def story(server: WireServer, _: str) -> None:
        run.store.put(CONTENT)
        run.permissions.announce([BLOB])
        stalled = await asyncio.to_thread(held, run, server.port, "busy", 4)
        for each in stalled:
            each.sendall(encode_transfer(Fetch(BLOB, 0, BLOB.size, 64 << 20, 4 << 20)))
        begins = []
        for each in stalled:
            frame = await asyncio.to_thread(read_frame, each)
            begins.append(decode_transfer(frame))
        sizes = sorted(begin.chunk_bytes for begin in begins if isinstance(begin, Begin))
        assert sizes[0] == (1 << 20) // 4  # of the last to begin
        assert sizes[-1] <= 1 << 20
        for each in stalled:
            each.close()

    play(story, run, transfer_bytes=1 << 20)


def read_frame(connection: ssl.SSLSocket) -> Frame:
    decoder = FrameDecoder()
    while True:
        frame = decoder.advance(connection.recv_into(decoder.space()))
        if frame is not None:
            return frame


def test_nothing_is_held_for_a_chunk_that_nobody_asked_for(run: Run) -> None:
    async def story(server: WireServer, _: str) -> None:
        (connection,) = await asyncio.to_thread(held, run, server.port, "mallory", 1)
        connection.sendall(encode_frame(FrameKind.CHUNK, bytes(1 << 20))[:16])
        await eventually(lambda: server.open_connections == 0)
        assert server.statistics.refused == {"FrameError": 1}
        connection.close()

    play(story, run, close_seconds=0.1)


@pytest.mark.parametrize("size", [10, 20_000])
def test_a_flood_of_messages_waits_and_others_do_not(run: Run, size: int) -> None:
    heard = {"mallory": 0, "ada": 0}

    async def on_worker(connection: ControlConnection, said: Hello) -> None:
        await connection.send(WELCOME)
        async for _ in connection:
            heard[said.worker] += 1

    async def story() -> None:
        limits = WireLimits(messages_per_second=50, close_seconds=0.2)
        server = await run.serve(on_worker, limits)
        address = f"127.0.0.1:{server.port}"
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with (
            await connect(address, run.worker("mallory"), hello("mallory")) as flood,
            await connect(address, run.worker(), hello()) as honest,
        ):
            count = 3_000_000 // (size + 100)  # what a connection may have on the way
            for _ in range(count):
                flood.post(States(1, (BLOB,) * (size // 48)))
            for _ in range(50):
                await honest.send(Ready(1))
            await eventually(lambda: heard["ada"] == 50)
            await eventually(lambda: server.statistics.refused.get("slowed", 0) > 0)
            await asyncio.sleep(0.3)
            charge = max(1, size / 4096)
            # The burst, the rate, and what one read may bring beyond them.
            allowed = (100 + 50 * (loop.time() - began)) / charge + (1 << 16) / max(size, 64) + 1
            assert 0 < heard["mallory"] < allowed < count
            assert server.statistics.refused.keys() == {"slowed"}
        await server.close()

    asyncio.run(story())
