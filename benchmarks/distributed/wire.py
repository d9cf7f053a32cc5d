"""How fast blobs move on loopback: plain sockets, TLS sockets, and PCP's bulk connections, one row each.

    python -m benchmarks.distributed.wire [--megabytes 500] [--repeats 3]

The other end is a child process. Nothing is asserted: rates depend on the machine and on what else it
does, so each row also says how much CPU time this end took. PCP's rows include writing the blob to disk and
checking its digest; the sockets' rows move bytes and forget them.
"""

import argparse
import asyncio
import multiprocessing
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

from pcp.distributed.messages import Blob, Hello
from pcp.distributed.wire import (
    Announcements,
    Authority,
    BlobStore,
    BulkClient,
    ControlConnection,
    Credentials,
    TransferSettings,
    WireServer,
)
from pcp.distributed.wire.identity.certificates import SHEPHERD_NAME
from pcp.distributed.wire.identity.tls import BULK_PROTOCOL, client_context, server_context

PIECE = 1 << 20


def serve_sockets(pipe: Connection, credentials: Credentials | None) -> None:
    """Takes connections and forgets what they bring; answers one byte at the end of each."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pipe.send(listener.getsockname()[1])
        context = None if credentials is None else server_context(credentials)
        buffer = bytearray(PIECE)
        while True:
            connection, _ = listener.accept()
            if context is not None:
                connection = context.wrap_socket(connection, server_side=True)
            with connection:
                rest = int.from_bytes(connection.recv(8), "little")
                while rest > 0:
                    rest -= connection.recv_into(buffer)
                connection.sendall(b"!")


def serve_blobs(pipe: Connection, folder: str, blobs: list[Blob]) -> None:
    """A Shepherd's wire server that gives these blobs and takes any."""

    async def on_worker(connection: ControlConnection, hello: Hello) -> None:
        raise NotImplementedError(f"{hello} on {connection}: only bulk connections are measured")

    async def serve() -> None:
        permissions = Announcements()
        permissions.announce(blobs)
        permissions.allow_push("bench", 1 << 50)
        shepherd = Authority.load(f"{folder}/authority").issue("shepherd", "shepherd")
        store = BlobStore(f"{folder}/shepherd")
        server = await WireServer.start("127.0.0.1", 0, shepherd, on_worker, store, permissions)
        pipe.send(server.port)
        await asyncio.Event().wait()

    asyncio.run(serve())


def move_by_socket(port: int, size: int, credentials: Credentials | None) -> None:
    """Sends that many bytes and waits until they have been taken."""
    connection: socket.socket = socket.create_connection(("127.0.0.1", port))
    if credentials is not None:
        context: ssl.SSLContext = client_context(credentials, BULK_PROTOCOL)
        connection = context.wrap_socket(connection, server_hostname=SHEPHERD_NAME)
    piece = bytes(PIECE)
    with connection:
        connection.sendall(size.to_bytes(8, "little"))
        for _ in range(size // PIECE):
            connection.sendall(piece)
        connection.recv(1)


def measure(name: str, megabytes: float, repeats: int, run: Callable[[], None]) -> None:
    """Prints the median rate and its range, and the CPU time of this process."""
    rates, cpu_start = [], time.process_time()
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        rates.append(megabytes / (time.perf_counter() - start))
    cpu = (time.process_time() - cpu_start) / (repeats * megabytes)
    spread = f"({min(rates):.0f} to {max(rates):.0f})"
    print(
        f"{name:28} {statistics.median(rates):7.0f} MB/s {spread:>16} {cpu * 1e3:7.2f} CPU s/GB", flush=True
    )


def main() -> None:
    """Measures every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")

    def child(target: Callable[..., None], *arguments: object) -> int:
        here, there = context.Pipe()
        context.Process(target=target, args=(there, *arguments), daemon=True).start()
        port: int = here.recv()
        return port

    with tempfile.TemporaryDirectory() as folder:
        authority = Authority.create(f"{folder}/authority")
        worker = authority.issue("bench")
        size = options.megabytes * 1_000_000 // PIECE * PIECE
        plain = child(serve_sockets, None)
        measure("plain socket", size / 1e6, options.repeats, lambda: move_by_socket(plain, size, None))
        secure = child(serve_sockets, authority.issue("shepherd", "shepherd"))
        measure("TLS socket", size / 1e6, options.repeats, lambda: move_by_socket(secure, size, worker))

        there, here = BlobStore(f"{folder}/shepherd"), BlobStore(f"{folder}/worker")
        parts = [there.put(bytes([index]) * (size // 4)) for index in range(4)]
        whole = there.put(bytes(size))
        address = f"127.0.0.1:{child(serve_blobs, folder, [whole, *parts])}"
        for chunk in (1 << 18, 1 << 20, 4 << 20):
            with BulkClient(address, worker, settings=TransferSettings(chunk, 16 << 20)) as client:

                def fetch(client: BulkClient = client) -> None:
                    here.remove(whole.digest)
                    client.fetch(whole, here)

                measure(f"fetch, {chunk >> 10} KiB chunks", size / 1e6, options.repeats, fetch)

                def push(client: BulkClient = client) -> None:
                    Path(there.path(whole.digest)).unlink(missing_ok=True)
                    client.push(whole, here)

                measure(f"push, {chunk >> 10} KiB chunks", size / 1e6, options.repeats, push)

        clients = [BulkClient(address, worker) for _ in parts]

        def fetch_parts() -> None:
            for part in parts:
                here.remove(part.digest)
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(lambda client, part: client.fetch(part, here), clients, parts))

        measure("fetch, 4 blobs, 4 streams", size / 1e6, options.repeats, fetch_parts)
        for client in clients:
            client.close()


if __name__ == "__main__":
    main()
