"""A run on loopback for tests: an authority, a server with its store, and credentials for workers."""

import asyncio
import os
import select
import socket
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from pcp.distributed.messages import PROTOCOL_VERSION, Hello, Welcome
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.wire.bulk.permissions import Announcements
from pcp.distributed.wire.control import ControlConnection
from pcp.distributed.wire.identity.certificates import Authority
from pcp.distributed.wire.identity.credentials import Credentials
from pcp.distributed.wire.limits import WireLimits
from pcp.distributed.wire.server import WireServer

WELCOME = Welcome(4, 2, "run-1", 0.5, "{}")
LIMITS = WireLimits(
    connect_seconds=5.0, handshake_seconds=5.0, stall_seconds=5.0, idle_seconds=20.0, close_seconds=0.5
)


def hello(name: str = "ada", version: int = PROTOCOL_VERSION) -> Hello:
    return Hello(version, name, b"incarnation-1", ("cpu:0",), 1 << 30)


async def welcome_and_listen(connection: ControlConnection, _: Hello) -> None:
    """The simplest Shepherd: it welcomes, and hears the worker out."""
    await connection.send(WELCOME)
    async for _message in connection:
        pass


def play(story: Coroutine[Any, Any, None]) -> None:
    """Runs a test's story, which may not take long nor leave tasks behind."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(bounded())


class Run:
    """What a test needs of one run."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.create(folder / "authority")
        self.shepherd = self.authority.issue("shepherd", "shepherd", ["127.0.0.1"])
        self.store = BlobStore(folder / "shepherd")
        self.worker_store = BlobStore(folder / "worker")
        self.permissions = Announcements()

    def worker(self, name: str = "ada") -> Credentials:
        return self.authority.issue(name)

    async def serve(self, on_worker: Any = welcome_and_listen, limits: WireLimits = LIMITS) -> WireServer:
        return await WireServer.start(
            "127.0.0.1",
            0,
            self.shepherd,
            on_worker,
            self.store,
            self.permissions,
            revocations=self.authority.revocations,
            limits=limits,
        )


async def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Waits until something that happens elsewhere has happened."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


def open_descriptors() -> int:
    """How many file descriptors this process has."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


class Proxy:
    """A TCP relay that breaks, or falls silent, after some bytes of its first connections.

    Arguments:
        port: where to relay to, on loopback.
        budgets: bytes that pass, both ways together, before each connection breaks; later ones do not.
        silent: do not break: pass nothing more.
    """

    def __init__(self, port: int, budgets: list[int], *, silent: bool = False) -> None:
        self._target = port
        self._budgets = list(budgets)
        self._silent = silent
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.spent = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            budget = self._budgets.pop(0) if self._budgets else None
            with client, socket.create_connection(("127.0.0.1", self._target)) as server:
                self._relay(client, server, budget)

    def _relay(self, client: socket.socket, server: socket.socket, budget: int | None) -> None:
        other = {client: server, server: client}
        while not self._stop.is_set():
            readable, _, _ = select.select([client, server], [], [], 0.05)
            for source in readable:
                try:
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    other[source].sendall(data if budget is None else data[:budget])
                except OSError:
                    return
                if budget is not None:
                    budget -= len(data)
                    if budget <= 0:
                        self.spent.set()
                        if not self._silent:
                            return
                        # Nothing passes any more, until the client gives up.
                        while not self._stop.is_set() and client.fileno() >= 0:
                            if select.select([client], [], [], 0.05)[0] and not client.recv(1 << 16):
                                return
