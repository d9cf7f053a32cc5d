"""Connections to a Shepherd that are no worker's, or a worker's that means harm: many, of many kinds, from one process.

    python -m benchmarks.distributed.fleets.strangers HOST:PORT --connections 10000 [--key mallory.pem]

With a key some of them are made by its holder. Point it only at a Shepherd of your own.
"""

import argparse
import asyncio
import contextlib
import json
import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from pcp.distributed.messages import Blob, Heartbeat, Hello
from pcp.distributed.wire import PROTOCOL_VERSION, Credentials, FrameKind
from pcp.distributed.wire.bulk.messages import Fetch, Push
from pcp.distributed.wire.codec import encode_control, encode_transfer
from pcp.distributed.wire.frames import encode_frame
from pcp.distributed.wire.identity.certificates import SHEPHERD_NAME
from pcp.distributed.wire.identity.tls import BULK_PROTOCOL, CONTROL_PROTOCOL, client_context
from pcp.distributed.wire.sockets import BULK_PREAMBLE, CONTROL_PREAMBLE, parse_address

AT_ONCE = 800
HOLD_SECONDS = 0.3
SHARE_WITH_A_KEY = 0.01
LOOPBACK_SOURCES = [f"127.0.0.{number}" for number in range(2, 10)]
"""Where strangers on this machine come from: workers come from 127.0.0.1."""

Attack = Callable[[socket.socket, random.Random], Awaitable[None]]
KeyedAttack = Callable[[asyncio.StreamReader, asyncio.StreamWriter, random.Random], Awaitable[None]]


def client_hello() -> bytes:
    """What a TLS client without a certificate says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols([CONTROL_PROTOCOL])
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


CLIENT_HELLO = client_hello()


async def _say(connection: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(connection, data)


async def _hold(connection: socket.socket, seconds: float = HOLD_SECONDS) -> None:
    """Stays until the other side closes, or for some time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while await asyncio.get_running_loop().sock_recv(connection, 4096):
                pass


async def silent(connection: socket.socket, rng: random.Random) -> None:
    """Says nothing."""
    await _hold(connection, rng.choice([0.01, HOLD_SECONDS]))


async def half_a_preamble(connection: socket.socket, _: random.Random) -> None:
    """Says half of what it is for."""
    await _say(connection, BULK_PREAMBLE[:2])
    await _hold(connection)


async def bulk_without_a_key(connection: socket.socket, _: random.Random) -> None:
    """Asks for a bulk connection and never begins TLS."""
    await _say(connection, BULK_PREAMBLE)
    await _hold(connection)


async def half_a_handshake(connection: socket.socket, rng: random.Random) -> None:
    """Has the Shepherd make its part of the handshake, and stays."""
    await _say(connection, rng.choice([CONTROL_PREAMBLE, BULK_PREAMBLE]) + CLIENT_HELLO)
    await _hold(connection)


async def drip(connection: socket.socket, rng: random.Random) -> None:
    """Sends a handshake byte by byte."""
    data = rng.choice([CONTROL_PREAMBLE, BULK_PREAMBLE]) + CLIENT_HELLO
    for position in range(20):
        await _say(connection, data[position : position + 1])
        await asyncio.sleep(0.02)


async def large_lengths(connection: socket.socket, rng: random.Random) -> None:
    """Announces a TLS record of the largest length."""
    record = b"\x16\x03\x01\xff\xff" + rng.randbytes(rng.randint(0, 2000))
    await _say(connection, rng.choice([CONTROL_PREAMBLE, BULK_PREAMBLE]) + record)
    await _hold(connection)


async def garbage(connection: socket.socket, rng: random.Random) -> None:
    """Sends bytes that mean nothing."""
    start = rng.choice([b"", CONTROL_PREAMBLE, BULK_PREAMBLE, b"GET / HTTP/1.1\r\n\r\n"])
    await _say(connection, start + rng.randbytes(rng.randint(1, 3000)))
    await _hold(connection)


async def reset(connection: socket.socket, rng: random.Random) -> None:
    """Breaks the connection at once."""
    await _say(connection, rng.choice([b"P", CONTROL_PREAMBLE, BULK_PREAMBLE + CLIENT_HELLO]))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def flood_of_messages(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: random.Random
) -> None:
    """Sends heartbeats as fast as they are taken, and reads no answer."""
    beats = b"".join(encode_control(Heartbeat(number, 1, 0, 0, 0.0)) for number in range(1000))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * HOLD_SECONDS):
            while not reader.at_eof() and reader.exception() is None:
                writer.write(beats)
                await writer.drain()
                await asyncio.sleep(0)  # a broken connection is noticed between two turns of the loop


async def large_frames(_: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    """Announces frames far beyond their limits, or of kinds that do not belong here."""
    header = bytearray(encode_frame(rng.choice(list(FrameKind)), b"x"))[:16]
    header[8:12] = struct.pack("<I", rng.choice([1 << 20, 1 << 31, (1 << 32) - 1]))
    writer.write(bytes(header) + rng.randbytes(3000))
    await writer.drain()
    await asyncio.sleep(HOLD_SECONDS)


async def keyed_garbage(_: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random) -> None:
    """Sends bytes that are no frames."""
    writer.write(rng.randbytes(rng.randint(16, 5000)))
    await writer.drain()
    await asyncio.sleep(HOLD_SECONDS)


async def transfers_that_stall(
    _: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random
) -> None:
    """Asks for blobs with the largest numbers, offers one that nobody wants, and takes nothing."""
    blob = Blob(rng.randbytes(32), (1 << 62) + 1)
    writer.write(encode_transfer(Fetch(blob, 0, blob.size, 1 << 40, 1 << 40)))
    writer.write(encode_transfer(Push(blob, 0, blob.size, 1 << 40, 1 << 40)))
    await writer.drain()
    await asyncio.sleep(HOLD_SECONDS)


async def idle(_: asyncio.StreamReader, __: asyncio.StreamWriter, ___: random.Random) -> None:
    """Holds a connection."""
    await asyncio.sleep(3 * HOLD_SECONDS)


WITHOUT_A_KEY: list[Attack] = [
    silent,
    half_a_preamble,
    bulk_without_a_key,
    half_a_handshake,
    drip,
    large_lengths,
    garbage,
    reset,
]
WITH_A_KEY: list[tuple[bytes, KeyedAttack]] = [
    (CONTROL_PREAMBLE, flood_of_messages),
    (CONTROL_PREAMBLE, large_frames),
    (CONTROL_PREAMBLE, keyed_garbage),
    (BULK_PREAMBLE, large_frames),
    (BULK_PREAMBLE, keyed_garbage),
    (BULK_PREAMBLE, transfers_that_stall),
    (BULK_PREAMBLE, idle),
]


class Attackers:
    """Makes connections, some hundred at once.

    Arguments:
        address: of the Shepherd.
        key: credentials of a worker that means harm.
        seed: of what they do.
    """

    def __init__(self, address: str, key: Credentials | None, seed: int) -> None:
        self._target = parse_address(address)
        self._key = key
        self._rng = random.Random(seed)
        self._contexts = (
            {}
            if key is None
            else {
                CONTROL_PREAMBLE: client_context(key, CONTROL_PROTOCOL),
                BULK_PREAMBLE: client_context(key, BULK_PROTOCOL),
            }
        )
        self.made: Counter[str] = Counter()

    async def attack(self, connections: int) -> None:
        """Makes so many connections; returns when all are over."""
        places = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(connections):
                await places.acquire()
                task = tasks.create_task(self._one())
                task.add_done_callback(lambda _: places.release())

    async def _one(self) -> None:
        rng = random.Random(self._rng.random())
        host, port = self._target
        connection = socket.socket()
        connection.setblocking(False)
        try:
            if host.startswith("127."):
                connection.bind((rng.choice(LOOPBACK_SOURCES), 0))
            async with asyncio.timeout(10):
                await asyncio.get_running_loop().sock_connect(connection, (host, port))
                if self._key is not None and rng.random() < SHARE_WITH_A_KEY:
                    await self._keyed(connection, rng)
                else:
                    attack = rng.choice(WITHOUT_A_KEY)
                    self.made[attack.__name__] += 1
                    await attack(connection, rng)
        except (OSError, ssl.SSLError, TimeoutError, EOFError) as error:
            self.made[f"ended by {type(error).__name__}"] += 1
        finally:
            connection.close()

    async def _keyed(self, connection: socket.socket, rng: random.Random) -> None:
        preamble, attack = rng.choice(WITH_A_KEY)
        assert self._key is not None
        self.made[f"{attack.__name__} with a key"] += 1
        await _say(connection, preamble)
        # A descriptor of its own: a transport that is cancelled before it has begun reads on after `_one` closed the other.
        reader, writer = await asyncio.open_connection(
            sock=connection.dup(), ssl=self._contexts[preamble], server_hostname=SHEPHERD_NAME
        )
        try:
            if preamble == CONTROL_PREAMBLE:
                hello = Hello(PROTOCOL_VERSION, self._key.name, rng.randbytes(16), ("cpu:0",), 1 << 30)
                writer.write(encode_control(hello))
            await attack(reader, writer, rng)
        finally:
            writer.transport.abort()


def main() -> None:
    """Attacks, and prints what was made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--key", type=Path, default=None)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    key = Credentials.load_bundle(options.key) if options.key else None
    attackers = Attackers(options.address, key, options.seed)
    asyncio.run(attackers.attack(options.connections))
    print(json.dumps(attackers.made))


if __name__ == "__main__":
    main()
