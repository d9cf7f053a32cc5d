"""How fast a blob is fetched, beside TLS sockets that move as many bytes and forget them.

    python -m benchmarks wire [--megabytes 500] [--repeats 5] [--connections 4]

Two tables: on loopback, and over an emulated line (`emulated_line`: 1 Gbit/s, 50 ms there and back). The rows alternate.
The sender is a child process. PCP's rows include writing the blob to a file and checking its digest. Rates depend on the
machine and on what else it does, so each row also says how much processor time this end took.
"""

import argparse
import asyncio
import json
import multiprocessing
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

from benchmarks.distributed.emulated_line import emulated_line
from pcp.distributed.messages import Blob, Hello
from pcp.distributed.wire import (
    Announcements,
    Authority,
    BlobStore,
    BulkClient,
    ControlConnection,
    Credentials,
    StripedFetcher,
    WireServer,
)
from pcp.distributed.wire.identity.certificates import SHEPHERD_NAME
from pcp.distributed.wire.identity.tls import BULK_PROTOCOL, client_context, server_context
from pcp.distributed.worker.ways.wire import FETCH_CONNECTIONS, NEAR_SECONDS

PIECE = 1 << 18


def serve_sockets(pipe: Connection, credentials: Credentials) -> None:
    """Sends each connection as many bytes as it asks for."""
    context = server_context(credentials)
    piece = bytes(PIECE)

    def serve(raw: socket.socket) -> None:
        with context.wrap_socket(raw, server_side=True) as connection:
            for _ in range(int.from_bytes(connection.recv(8), "little") // PIECE):
                connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(16) as pool:
        pipe.send(listener.getsockname()[1])
        while True:
            pool.submit(serve, listener.accept()[0])


def serve_blobs(pipe: Connection, folder: str, blob: Blob) -> None:
    """A Shepherd's wire server that gives this blob."""

    async def on_worker(connection: ControlConnection, hello: Hello) -> None:
        raise NotImplementedError(f"{hello} on {connection}: only bulk connections are measured")

    async def serve() -> None:
        permissions = Announcements()
        permissions.announce([blob])
        shepherd = Authority.load(f"{folder}/authority").issue("shepherd", "shepherd")
        store = BlobStore(f"{folder}/shepherd")
        server = await WireServer.start("127.0.0.1", 0, shepherd, on_worker, store, permissions)
        pipe.send(server.port)
        await asyncio.Event().wait()

    asyncio.run(serve())


def fetch_by_sockets(port: int, size: int, credentials: Credentials, connections: int) -> None:
    """Receives that many bytes over TLS sockets."""
    context = client_context(credentials, BULK_PROTOCOL)

    def receive(_: int) -> None:
        raw = socket.create_connection(("127.0.0.1", port))
        buffer = bytearray(PIECE)
        with context.wrap_socket(raw, server_hostname=SHEPHERD_NAME) as connection:
            connection.sendall((size // connections).to_bytes(8, "little"))
            while connection.recv_into(buffer):
                pass

    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(receive, range(connections)))


def fetch_blob(
    port: int, blob: Blob, store: BlobStore, credentials: Credentials, connections: int, near: float = 0.0
) -> None:
    """Fetches a blob over new connections."""
    clients = [BulkClient(f"127.0.0.1:{port}", credentials) for _ in range(connections)]
    fetcher = StripedFetcher(clients, near_seconds=near)
    try:
        fetcher.fetch(blob, store)
    finally:
        fetcher.close()


def measure(
    title: str,
    size: int,
    repeats: int,
    rows: Mapping[str, Callable[[], None]],
    forget: Callable[[], None],
    as_json: bool,
) -> None:
    """Runs the rows alternately and prints them: median rate and range, processor time, ratio to the first row.

    What an earlier row has brought is forgotten just before each, out of its time.
    """
    rates: dict[str, list[float]] = {name: [] for name in rows}
    cpu = dict.fromkeys(rows, 0.0)
    for _ in range(repeats):
        for name, run in rows.items():
            forget()
            wall, used = time.perf_counter(), time.process_time()
            run()
            rates[name].append(size / 1e6 / (time.perf_counter() - wall))
            cpu[name] += time.process_time() - used
    first = rates[next(iter(rows))]
    if not as_json:
        print(
            f"\n| {title} | MB/s | from .. to | processor s/GB here | of the first row |\n|---|---|---|---|---|"
        )
    for name, measured in rates.items():
        ratio = statistics.median(one / other for one, other in zip(measured, first, strict=True))
        seconds = cpu[name] / (repeats * size / 1e9)
        median, low, high = statistics.median(measured), min(measured), max(measured)
        if as_json:
            row = {"line": title, "row": name, "mb_per_second": measured, "cpu_seconds_per_gb": seconds}
            print(json.dumps(row), flush=True)
        else:
            print(
                f"| {name} | {median:.0f} | {low:.0f} .. {high:.0f} | {seconds:.2f} | {ratio:.2f} |",
                flush=True,
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark."""
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--connections", type=int, default=4, help="for one blob")
    parser.add_argument("--gbit", type=float, default=1.0, help="rate of the emulated line")
    parser.add_argument("--round-trip-ms", type=float, default=50.0, help="of the emulated line")


def run(options: argparse.Namespace) -> None:
    """Measures every row."""
    context = multiprocessing.get_context("spawn")
    several = options.connections

    def child(target: Callable[..., None], *arguments: object) -> int:
        here, there = context.Pipe()
        context.Process(target=target, args=(there, *arguments), daemon=True).start()
        port: int = here.recv()
        return port

    with tempfile.TemporaryDirectory() as folder:
        authority = Authority.create(f"{folder}/authority")
        worker = authority.issue("bench")
        size = options.megabytes * 1_000_000 // (PIECE * several) * PIECE * several
        there, here = BlobStore(f"{folder}/shepherd"), BlobStore(f"{folder}/worker")
        blob = there.put(bytes(size))
        sockets = child(serve_sockets, authority.issue("shepherd", "shepherd"))
        blobs = child(serve_blobs, folder, blob)
        rate, round_trip = options.gbit * 1e9 / 8, options.round_trip_ms / 1e3

        def forget() -> None:
            here.remove(blob.digest)

        def rows(by_socket: int, by_blob: int) -> dict[str, Callable[[], None]]:
            return {
                "a TLS socket": lambda: fetch_by_sockets(by_socket, size, worker, 1),
                f"{several} TLS sockets": lambda: fetch_by_sockets(by_socket, size, worker, several),
                "a blob, 1 connection": lambda: fetch_blob(by_blob, blob, here, worker, 1),
                f"a blob, {several} connections": lambda: fetch_blob(by_blob, blob, here, worker, several),
                "a blob, as a Worker fetches it": lambda: fetch_blob(
                    by_blob, blob, here, worker, FETCH_CONNECTIONS, NEAR_SECONDS
                ),
            }

        measure("loopback", size, options.repeats, rows(sockets, blobs), forget, options.json)

        line = f"{options.gbit:g} Gbit/s ({rate / 1e6:.0f} MB/s), {options.round_trip_ms:g} ms"
        far = rows(emulated_line(sockets, rate, round_trip), emulated_line(blobs, rate, round_trip))
        measure(line, size, options.repeats, far, forget, options.json)
