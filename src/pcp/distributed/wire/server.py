"""The Shepherd's listening port: one for control and bulk connections, told apart by their first bytes.

A socket is accepted here, says in four plain bytes what it is for, and is handed on before TLS begins:
control connections stay on this event loop, bulk connections go to threads with blocking TLS, which is
several times faster. The purpose is agreed again inside TLS, so nobody in between can change it. Everything
that a stranger can reach has a deadline and a cap.
"""

import asyncio
import contextlib
import functools
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable

from pcp.distributed.messages import Hello
from pcp.distributed.wire.bulk.permissions import Permissions
from pcp.distributed.wire.bulk.responder import Storage
from pcp.distributed.wire.bulk.server import BulkServer
from pcp.distributed.wire.bulk.transfer import TransferSettings
from pcp.distributed.wire.connection import Side
from pcp.distributed.wire.control import ControlConnection, PeerNotAcceptable
from pcp.distributed.wire.identity.credentials import Credentials
from pcp.distributed.wire.identity.revocations import Revocations
from pcp.distributed.wire.identity.tls import server_context
from pcp.distributed.wire.limits import WireLimits
from pcp.distributed.wire.sockets import (
    BULK_PREAMBLE,
    CONTROL_PREAMBLE,
    PREAMBLE_BYTES,
    format_address,
    listen,
    tune,
)
from pcp.distributed.wire.traffic import Statistics, Traffic
from pcp.errors import PCPError

_log = logging.getLogger("pcp.wire.server")
_PAUSE_WHEN_OUT_OF_DESCRIPTORS_SECONDS = 0.2

OnWorker = Callable[[ControlConnection, Hello], Awaitable[None]]
"""Called in a task of its own for every worker that has proved who it is and said Hello.

It answers with `Welcome` (or `connection.refuse`), then receives until the connection ends. When it returns,
the connection is closed.
"""


class WireServer:
    """Accepts workers. Made by `start`, ended by `close`.

    Attributes:
        port: the port it listens on.
        statistics: what it has seen.
    """

    def __init__(
        self,
        listener: socket.socket,
        credentials: Credentials,
        on_worker: OnWorker,
        storage: Storage,
        permissions: Permissions,
        revocations: Revocations | None,
        limits: WireLimits,
        settings: TransferSettings | None,
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self.statistics = Statistics()
        self._listener = listener
        self._context = server_context(credentials)
        self._on_worker = on_worker
        self._revocations = revocations
        self._limits = limits
        self._bulk = BulkServer(
            self._context, storage, permissions, limits, self.statistics, revocations, settings
        )
        self._open: Counter[str] = Counter()  # connections by host, bulk included
        self._tasks: dict[
            asyncio.Task[None], socket.socket | None
        ] = {}  # with the sockets of those not begun
        self._accepting: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        host: str,
        port: int,
        credentials: Credentials,
        on_worker: OnWorker,
        storage: Storage,
        permissions: Permissions,
        *,
        revocations: Revocations | None = None,
        limits: WireLimits | None = None,
        settings: TransferSettings | None = None,
    ) -> "WireServer":
        """Listens, and serves from now on.

        Arguments:
            host: address to listen on; `0.0.0.0` for all.
            port: the port; 0 picks a free one.
            credentials: the Shepherd's.
            on_worker: see `OnWorker`.
            storage: blobs that workers fetch and push.
            permissions: which of them.
            revocations: certificates that are no longer valid.
            limits: bounds of time and number.
            settings: the largest chunk and window of transfers.

        Raises:
            PortInUse, CannotListen: the address cannot be listened on.
        """
        listener = listen(host, port)
        server = cls(
            listener,
            credentials,
            on_worker,
            storage,
            permissions,
            revocations,
            limits or WireLimits(),
            settings,
        )
        server._accepting = asyncio.create_task(server._accept(), name=f"accept on port {server.port}")
        return server

    @property
    def open_connections(self) -> int:
        """Connections that are open now, of both kinds."""
        return self._open.total()

    async def close(self) -> None:
        """Stops listening and ends every connection; say Goodbye to the workers before."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        self._listener.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(self._bulk.close)

    async def _accept(self) -> None:
        while True:
            try:
                await _readable(self._listener)
                # Not `loop.sock_accept`: cancelled at the wrong moment it would lose a socket that it has accepted.
                connection, address = self._listener.accept()
                connection.setblocking(False)
            except (BlockingIOError, ConnectionAbortedError):  # the peer went away meanwhile
                continue
            except OSError as error:
                _log.error("cannot accept connections: %s; trying again", error)
                await asyncio.sleep(_PAUSE_WHEN_OUT_OF_DESCRIPTORS_SECONDS)
                continue
            host = str(address[0])
            if (
                self._open.total() >= self._limits.connections
                or self._open[host] >= self._limits.connections_per_address
            ):
                self._refused(
                    format_address(address), "capacity", f"{self._open[host]} connections of {host} are open"
                )
                connection.close()
                continue
            self._open[host] += 1
            task = asyncio.create_task(self._serve(connection, format_address(address), host))
            self._tasks[task] = connection
            task.add_done_callback(functools.partial(self._served, host))

    def _served(self, host: str, task: asyncio.Task[None]) -> None:
        unserved = self._tasks.pop(task)
        if unserved is not None:  # the task was cancelled before it began
            unserved.close()
            self._ended(host)

    async def _serve(self, connection: socket.socket, address: str, host: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        handed_over = False
        try:
            deadline = asyncio.get_running_loop().time() + self._limits.handshake_seconds
            tune(connection)
            async with asyncio.timeout_at(deadline):
                preamble = await _receive_exactly(connection, PREAMBLE_BYTES)
            if preamble == CONTROL_PREAMBLE:
                await self._serve_control(connection, address, deadline)
            elif preamble == BULK_PREAMBLE:
                handed_over = self._bulk.take(connection, address, self._ended_elsewhere(host))
                if not handed_over:
                    self._refused(address, "capacity", "too many bulk connections are open")
            else:
                self._refused(address, "preamble", f"it began with {preamble!r}")
        except TimeoutError:
            self._refused(
                address, "handshake timeout", f"no handshake in {self._limits.handshake_seconds} seconds"
            )
        except OSError as error:
            _log.info("the connection of %s broke: %s", address, error)
        finally:
            if not handed_over:
                connection.close()
                self._ended(host)

    async def _serve_control(self, raw: socket.socket, address: str, deadline: float) -> None:
        connection = ControlConnection(
            raw,
            self._context,
            Side.SHEPHERD,
            address,
            self._limits,
            Traffic(self.statistics.traffic),
            self._revocations,
        )
        try:
            try:
                async with asyncio.timeout_at(deadline):
                    await connection.handshake()
                    hello = await connection.receive()
            except PeerNotAcceptable as error:
                self._refused(address, error.refusal.kind.name, str(error))
                return
            except PCPError as error:
                self._refused(address, type(error).__name__, str(error))
                return
            if isinstance(hello, Hello):
                self.statistics.count_accepted("control")
                await self._run_worker(connection, hello)
        finally:
            await connection.close()

    async def _run_worker(self, connection: ControlConnection, hello: Hello) -> None:
        try:
            await self._on_worker(connection, hello)
        except PeerNotAcceptable as error:
            self._refused(connection.address, error.refusal.kind.name, f"{hello.worker}: {error}")
        except PCPError as error:
            _log.warning("worker %s (%s) left: %s", hello.worker, connection.address, error)
        except Exception:
            _log.exception("serving worker %s (%s) failed", hello.worker, connection.address)

    def _refused(self, address: str, reason: str, detail: str) -> None:
        self.statistics.count_refused(reason)
        _log.warning("refused %s (%s): %s", address, reason, detail)

    def _ended(self, host: str) -> None:
        self._open[host] -= 1
        if self._open[host] <= 0:
            del self._open[host]

    def _ended_elsewhere(self, host: str) -> Callable[[], None]:
        loop = asyncio.get_running_loop()

        def ended() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed first
                loop.call_soon_threadsafe(self._ended, host)

        return ended


async def _readable(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(listener, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(listener)


async def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < count:
        piece = await loop.sock_recv(connection, count - len(data))
        if not piece:
            break
        data += piece
    return data
