"""A run on loopback for tests: an authority, a server with its store, and credentials for workers."""

from pathlib import Path
from typing import Any

from pcp.distributed.messages import Hello, Welcome
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.wire.certificates import Authority
from pcp.distributed.wire.control import ControlConnection
from pcp.distributed.wire.credentials import Credentials
from pcp.distributed.wire.limits import WireLimits
from pcp.distributed.wire.permissions import Announcements
from pcp.distributed.wire.server import WireServer

WELCOME = Welcome(4, 2, "run-1", 0.5, "{}")
LIMITS = WireLimits(
    connect_seconds=5.0, handshake_seconds=5.0, stall_seconds=5.0, idle_seconds=20.0, close_seconds=0.5
)


def hello(name: str = "ada", version: int = 1) -> Hello:
    return Hello(version, name, b"incarnation-1", ("cpu:0",), 1 << 30)


async def welcome_and_listen(connection: ControlConnection, _: Hello) -> None:
    """The simplest Shepherd: it welcomes, and hears the worker out."""
    await connection.send(WELCOME)
    async for _message in connection:
        pass


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
