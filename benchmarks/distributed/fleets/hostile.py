"""Workers beside a crowd of strangers: are they served throughout, and is everything given back afterwards?

    python -m benchmarks.distributed.fleets.hostile --connections 200000

A Shepherd's wire server runs in this process; some workers and the strangers (`strangers.py`) are child processes.
The workers send heartbeats, fetch a blob again and again, and connect anew now and then.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pcp.distributed.messages import Blob, Goodbye, Heartbeat, HeartbeatReply, Hello, Welcome
from pcp.distributed.wire import (
    PROTOCOL_VERSION,
    Announcements,
    Authority,
    BlobStore,
    BulkClient,
    ControlConnection,
    Credentials,
    WireServer,
    connect,
)
from pcp.errors import PCPError

WORKERS = ("ada", "grace", "edsger")
BLOB_BYTES = 1 << 20
BEAT_SECONDS = 0.05
NEWCOMER_SECONDS = 0.5
KEPT_MEGABYTES = 15
"""Memory that the Shepherd may hold more than before, once the strangers have gone."""


@dataclass(slots=True)
class Served:
    """What the workers saw.

    Arguments:
        beats: seconds from each heartbeat to its answer.
        fetches: seconds of each fetch of a blob.
        joins: seconds from each new connection to its welcome.
        reconnects: bulk connections that broke.
        failures: what went wrong otherwise.
    """

    beats: list[float] = field(default_factory=list)
    fetches: list[float] = field(default_factory=list)
    joins: list[float] = field(default_factory=list)
    reconnects: int = 0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Held:
    """What this process holds."""

    descriptors: int
    threads: int
    megabytes: float

    @staticmethod
    def now() -> "Held":
        """Counts it."""
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        resident = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        return Held(len(os.listdir("/proc/self/fd")), threading.active_count(), resident)

    def is_back_at(self, before: "Held") -> bool:
        """Whether it holds no more than before, but for `KEPT_MEGABYTES`."""
        return (
            self.descriptors <= before.descriptors
            and self.threads <= before.threads
            and self.megabytes < before.megabytes + KEPT_MEGABYTES
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it."""

    served: Served
    refused: dict[str, int]
    made: dict[str, int]
    before: Held
    after: Held
    seconds: float
    processor_seconds: float


async def measure(folder: Path, connections: int) -> Outcome:
    """Serves workers while strangers come.

    Arguments:
        folder: an empty one.
        connections: of strangers.
    """
    authority = Authority.create(folder / "authority")
    store, permissions = BlobStore(folder / "shepherd"), Announcements()
    blob = store.put(os.urandom(BLOB_BYTES))
    permissions.announce([blob])

    async def on_worker(connection: ControlConnection, _: Hello) -> None:
        await connection.send(Welcome(1, 1, "hostile", 1.0, "{}", (blob,)))
        async for message in connection:
            if isinstance(message, Heartbeat):
                connection.post(HeartbeatReply(message.sequence))

    for name in (*WORKERS, "mallory"):
        authority.issue(name).save_bundle(folder / f"{name}.pem")
    server = await WireServer.start(
        "127.0.0.1", 0, authority.issue("shepherd", "shepherd"), on_worker, store, permissions
    )
    address = f"127.0.0.1:{server.port}"
    try:
        workers = await _child("hostile", "--workers-of", address, "--folder", str(folder))
        async with asyncio.timeout(60):
            while server.statistics.accepted.get("bulk", 0) < len(WORKERS):
                await asyncio.sleep(0.05)
        before, began, used = Held.now(), time.monotonic(), time.process_time()
        key = str(folder / "mallory.pem")
        try:
            strangers = await _child("strangers", address, "--connections", str(connections), "--key", key)
            made = await _output(strangers, connections)
        finally:
            seconds, processor = time.monotonic() - began, time.process_time() - used
            async with asyncio.timeout(30):
                while server.open_connections > 2 * len(WORKERS) + 1:
                    await asyncio.sleep(0.05)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    while not (after := Held.now()).is_back_at(before):
                        await asyncio.sleep(0.05)
            served = Served(**await _output(workers))
    finally:
        await server.close()
    return Outcome(served, server.statistics.refused, made, before, after, seconds, processor)


async def _child(module: str, *arguments: str) -> asyncio.subprocess.Process:
    root = Path(__file__).parents[3]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"benchmarks.distributed.fleets.{module}", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=root,
    )


async def _output(process: asyncio.subprocess.Process, connections: int = 0) -> Any:
    """Closes a child's input, and reads what it prints at its end, which may take longer after many connections."""
    try:
        printed, _ = await asyncio.wait_for(process.communicate(b""), 300 + connections / 30)
    except BaseException:
        process.kill()
        raise
    return json.loads(printed)


async def be_workers(address: str, folder: Path) -> Served:
    """Works until standard input is closed."""
    served, over = Served(), asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)
    keys = {name: Credentials.load_bundle(folder / f"{name}.pem") for name in WORKERS}
    async with asyncio.TaskGroup() as tasks:
        for name, key in keys.items():
            tasks.create_task(_noted(served, f"heartbeats of {name}", _beat(address, key, served, over)))
            fetching = asyncio.to_thread(_fetch, address, key, folder / name, served, over)
            tasks.create_task(_noted(served, f"fetches of {name}", fetching))
        tasks.create_task(_noted(served, "newcomers", _join(address, keys["grace"], served, over)))
    return served


async def _noted(served: Served, what: str, work: Any) -> None:
    try:
        await work
    except (PCPError, OSError, TimeoutError) as error:
        served.failures.append(f"{what}: {error!r}")


async def _beat(address: str, key: Credentials, served: Served, over: asyncio.Event) -> None:
    hello = Hello(PROTOCOL_VERSION, key.name, os.urandom(16), ("cpu:0",), 1 << 30)
    async with await connect(address, key, hello) as connection:
        sequence = 0
        while not over.is_set():
            sequence += 1
            began = time.monotonic()
            connection.post(Heartbeat(sequence, 1, 0, 0, 0.0))
            if await connection.receive() != HeartbeatReply(sequence):
                raise ConnectionError("a heartbeat was not answered")
            served.beats.append(time.monotonic() - began)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), BEAT_SECONDS)
        await connection.close(Goodbye(False, "done"))


def _fetch(address: str, key: Credentials, folder: Path, served: Served, over: asyncio.Event) -> None:
    store, blob = BlobStore(folder), _offered(address, key)
    with BulkClient(address, key) as client:
        while not over.is_set():
            store.remove(blob.digest)
            began = time.monotonic()
            client.fetch(blob, store)
            served.fetches.append(time.monotonic() - began)
            time.sleep(BEAT_SECONDS)
        served.reconnects += client.reconnects


def _offered(address: str, key: Credentials) -> Blob:
    async def ask() -> Blob:
        hello = Hello(PROTOCOL_VERSION, key.name, os.urandom(16), ("cpu:0",), 1 << 30)
        async with await connect(address, key, hello) as connection:
            assert isinstance(connection.answer, Welcome)
            await connection.close(Goodbye(False, "only looking"))
            return connection.answer.blobs[0]

    return asyncio.run(ask())


async def _join(address: str, key: Credentials, served: Served, over: asyncio.Event) -> None:
    while not over.is_set():
        began = time.monotonic()
        hello = Hello(PROTOCOL_VERSION, key.name, os.urandom(16), ("cpu:0",), 1 << 30)
        async with await connect(address, key, hello) as connection:
            served.joins.append(time.monotonic() - began)
            await connection.close(Goodbye(False, "only looking"))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), NEWCOMER_SECONDS)


def percentiles(seconds: list[float]) -> str:
    """The median, the 99th percentile and the largest, in milliseconds."""
    ordered = sorted(seconds)
    picked = [ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1]]
    return ", ".join(f"{each * 1e3:.1f}" for each in picked) + " ms (median, 99th percentile, largest)"


def main() -> None:
    """Measures and prints; or works as a child process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--workers-of", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.workers_of:
        print(json.dumps(asdict(asyncio.run(be_workers(options.workers_of, options.folder)))))
        return
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(measure(Path(folder), options.connections))
    served = outcome.served
    print(f"{options.connections} strangers in {outcome.seconds:.1f} s: {outcome.made}")
    print(f"refused: {outcome.refused}")
    for name in ("beats", "fetches", "joins"):
        print(f"{name} ({len(getattr(served, name))}): {percentiles(getattr(served, name))}")
    print(f"reconnects of bulk connections: {served.reconnects}; failures: {served.failures}")
    share = outcome.processor_seconds / outcome.seconds
    per = outcome.processor_seconds / options.connections
    print(f"the Shepherd's processor: {share:.0%} of a core, {per * 1e6:.0f} us a stranger")
    print(f"before: {outcome.before}\nafter:  {outcome.after}")


if __name__ == "__main__":
    main()
