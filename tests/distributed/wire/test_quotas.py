"""What one worker may take of bulk connections, threads and memory: never what another worker needs."""

import asyncio
import select
import socket
import ssl
import threading

import pytest

from pcp.distributed.wire import FrameKind, TransferFailed, WireServer
from pcp.distributed.wire.bulk.messages import Begin, Fetch
from pcp.distributed.wire.codec import decode_transfer, encode_transfer
from pcp.distributed.wire.frames import Frame, FrameDecoder, encode_frame
from pcp.distributed.wire.identity.tls import BULK_PROTOCOL, SHEPHERD_NAME, client_context
from pcp.distributed.wire.sockets import BULK_PREAMBLE

from .loopback import Run, eventually
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
        assert sizes[0] < sizes[-1] <= 1 << 20
        assert sizes[0] >= 1 << 16
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
