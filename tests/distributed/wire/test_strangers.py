"""What connects to a server and is no worker: it is cut off soon, and takes nothing from those who are."""

import asyncio
import contextlib
import gc
import random
import select
import socket
import ssl
import threading
from pathlib import Path

import pytest

from pcp.distributed.messages import Ready
from pcp.distributed.wire import ControlConnection, RefusalCode, RefusedByPeer, WireLimits, connect
from pcp.distributed.wire.identity.tls import BULK_PROTOCOL, CONTROL_PROTOCOL, SHEPHERD_NAME, client_context
from pcp.distributed.wire.sockets import BULK_PREAMBLE, CONTROL_PREAMBLE

from .loopback import LIMITS, Run, eventually, hello, open_descriptors, play

HASTY = WireLimits(handshake_seconds=0.3, close_seconds=0.2)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def garbage(rng: random.Random) -> bytes:
    start = rng.choice([b"", CONTROL_PREAMBLE, BULK_PREAMBLE, b"GET ", CONTROL_PREAMBLE + b"\x16\x03\x01"])
    return start + rng.randbytes(rng.choice([0, 1, 50, 3000]))


def test_two_hundred_garbage_connections(run: Run) -> None:
    async def story() -> None:
        server = await run.serve(limits=HASTY)
        address = f"127.0.0.1:{server.port}"
        rng = random.Random(23)
        async with await connect(address, run.worker(), hello(), limits=LIMITS):
            pass
        await eventually(lambda: server.open_connections == 0)
        before = open_descriptors()
        for _ in range(4):
            peers = []
            for _ in range(50):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                with contextlib.suppress(OSError):
                    writer.write(garbage(rng))
                    if rng.random() < 0.5:
                        writer.write_eof()
                peers.append((reader, writer))
            for reader, writer in peers:
                with contextlib.suppress(OSError):
                    await reader.read()
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
        await eventually(lambda: server.open_connections == 0)
        await eventually(lambda: open_descriptors() <= before)
        async with await connect(address, run.worker(), hello(), limits=LIMITS) as connection:
            await connection.send(Ready(1))
        assert sum(server.statistics.refused.values()) > 100
        await server.close()

    play(story())


def test_a_stranger_that_was_refused_does_not_wait_for_the_garbage_collector(run: Run) -> None:
    def held() -> int:
        return sum(isinstance(each, ControlConnection) for each in gc.get_objects())

    async def story() -> None:
        server = await run.serve(limits=HASTY)
        gc.collect()
        before = held()
        gc.disable()
        try:
            for last in (b"", b"not TLS, certainly not"):
                with socket.create_connection(("127.0.0.1", server.port)) as stranger:
                    stranger.sendall(CONTROL_PREAMBLE + last)
            await eventually(lambda: sum(server.statistics.refused.values()) == 2)
            await eventually(lambda: held() == before)
        finally:
            gc.enable()
        await server.close()

    play(story())


def tls_socket(run: Run, port: int, preamble: bytes, protocol: str) -> ssl.SSLSocket:
    raw = socket.create_connection(("127.0.0.1", port), 10)
    raw.sendall(preamble)
    return client_context(run.worker(), protocol).wrap_socket(raw, server_hostname=SHEPHERD_NAME)


def drip_until_closed(connection: socket.socket, data: bytes) -> bool:
    """Sends a byte now and then until the other side has closed; says whether it did before all was sent."""
    for position in range(len(data)):
        readable, _, _ = select.select([connection], [], [], 0.01)
        if readable:
            return True
        try:
            connection.sendall(data[position : position + 1])
        except OSError:
            return True
    return False


@pytest.mark.parametrize("preamble", [b"", b"PC", CONTROL_PREAMBLE, BULK_PREAMBLE])
@pytest.mark.parametrize("drip", [False, True])
def test_a_peer_that_is_slow_to_say_who_it_is(run: Run, preamble: bytes, drip: bool) -> None:
    def stranger(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), 10) as connection:
            connection.sendall(preamble)
            if drip and len(preamble) == 4:
                client_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)
                assert drip_until_closed(connection, client_hello)
            with contextlib.suppress(ConnectionError):
                while connection.recv(1000):  # a TLS alert, perhaps
                    pass

    async def story() -> None:
        server = await run.serve(limits=HASTY)
        await asyncio.to_thread(stranger, server.port)
        await eventually(lambda: server.open_connections == 0)
        assert sum(server.statistics.refused.values()) == 1
        await server.close()

    play(story())


def test_a_worker_that_never_says_hello(run: Run) -> None:
    def silent(port: int) -> None:
        with tls_socket(run, port, CONTROL_PREAMBLE, CONTROL_PROTOCOL) as connection:
            assert connection.recv(1000) == b""

    async def story() -> None:
        server = await run.serve(limits=HASTY)
        await asyncio.to_thread(silent, server.port)
        await eventually(lambda: server.open_connections == 0)
        assert server.statistics.refused == {"handshake timeout": 1}
        await server.close()

    play(story())


@pytest.mark.parametrize(
    ("preamble", "protocol"), [(CONTROL_PREAMBLE, BULK_PROTOCOL), (BULK_PREAMBLE, CONTROL_PROTOCOL)]
)
def test_the_purpose_is_checked_inside_tls(run: Run, preamble: bytes, protocol: str) -> None:
    def confused(port: int) -> None:
        with tls_socket(run, port, preamble, protocol) as connection, contextlib.suppress(ConnectionError):
            assert connection.recv(1000) == b""

    async def story() -> None:
        server = await run.serve()
        await asyncio.to_thread(confused, server.port)
        await eventually(lambda: server.open_connections == 0)
        assert server.statistics.refused == {"TlsFailure": 1}
        await server.close()

    play(story())


@pytest.mark.parametrize("preamble", [b"", BULK_PREAMBLE, CONTROL_PREAMBLE])
def test_strangers_are_few_and_keep_no_worker_out(run: Run, preamble: bytes) -> None:
    async def story() -> None:
        server = await run.serve(limits=WireLimits(strangers=8, close_seconds=0.2))
        threads, before = threading.active_count(), open_descriptors()
        crowd = []
        for _ in range(100):
            connection = socket.socket()
            connection.bind(("127.0.0.2", 0))
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(preamble)
            crowd.append(connection)
            await asyncio.sleep(0)
        await eventually(lambda: server.statistics.refused.get("crowded out", 0) == 92)
        assert server.open_connections == 8
        assert threading.active_count() == threads
        await eventually(lambda: open_descriptors() <= before + 100 + 8)
        async with await connect(f"127.0.0.1:{server.port}", run.worker(), hello()):
            assert server.statistics.refused == {"crowded out": 93}
        for connection in crowd:
            connection.close()
        await eventually(lambda: server.open_connections == 0)
        await server.close()

    play(story())


def test_one_key_has_few_control_connections(run: Run) -> None:
    async def story() -> None:
        limits = WireLimits(connections_per_worker=2, close_seconds=0.2)
        server = await run.serve(limits=limits)
        address, ada = f"127.0.0.1:{server.port}", run.worker("ada")
        async with await connect(address, ada, hello("ada")), await connect(address, ada, hello("ada")):
            with pytest.raises(
                RefusedByPeer, match="ada has 2 connections already; one key is for"
            ) as caught:
                await connect(address, ada, hello("ada"))
            assert caught.value.refusal.kind is RefusalCode.CAPACITY
            async with await connect(address, run.worker("bob"), hello("bob")):
                pass
            assert server.statistics.refused == {"capacity": 1}
        await eventually(lambda: server.open_connections == 0)
        async with await connect(address, ada, hello("ada")):
            pass
        await server.close()

    play(story())
