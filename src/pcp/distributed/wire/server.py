"""The Shepherd's listening port: one for control and bulk connections, told apart by their first bytes.

A connection is a stranger's (`doorway.py`) until its peer has proved who it is. Then control connections stay on this
event loop, and bulk connections go to the threads of `BulkServer`. The purpose is agreed again inside TLS, so nobody
in between can change it.
"""

import asyncio
import logging
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable

from pcp.distributed.messages import Hello
from pcp.distributed.wire.bulk.handshake import handshake, linger, say_refusal
from pcp.distributed.wire.bulk.permissions import Permissions
from pcp.distributed.wire.bulk.responder import Storage
from pcp.distributed.wire.bulk.server import BulkServer
from pcp.distributed.wire.bulk.transfer import TransferSettings
from pcp.distributed.wire.connection import Side
from pcp.distributed.wire.connection_errors import PeerNotAcceptable
from pcp.distributed.wire.control import ControlConnection
from pcp.distributed.wire.doorway import Doorway, Stranger
from pcp.distributed.wire.identity.credentials import Credentials
from pcp.distributed.wire.identity.revocations import Revocations
from pcp.distributed.wire.identity.tls import CertificateRefused, check_not_revoked, server_context
from pcp.distributed.wire.limits import WireLimits
from pcp.distributed.wire.refusal import Refusal, RefusalCode
from pcp.distributed.wire.refusal_log import Refused
from pcp.distributed.wire.sockets import CONTROL_PREAMBLE, listen, room_for_descriptors
from pcp.distributed.wire.system_calls import give_memory_back
from pcp.distributed.wire.traffic import Statistics, Traffic
from pcp.errors import PCPError

_log = logging.getLogger("pcp.wire.server")
_OTHER_DESCRIPTORS = 128
"""What a Shepherd has open besides connections: blobs, logs, pipes."""
_HOUSEKEEPING_SECONDS = 1.0
_CROWD = 100
"""Connections that have gone since there were most of them: what they held is given back to the system."""

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
        on_refused: Callable[[Refused], None] | None,
    ) -> None:
        self.port: int = listener.getsockname()[1]
        self.statistics = Statistics(on_refused)
        self._context = server_context(credentials)
        self._on_worker = on_worker
        self._revocations = revocations
        self._limits = limits
        self._bulk = BulkServer(storage, permissions, limits, self.statistics, settings)
        self._control: Counter[str] = Counter()  # connections of workers, by name
        others = limits.strangers + _OTHER_DESCRIPTORS
        self._connections = min(
            limits.connections, room_for_descriptors(limits.connections + others) - others
        )
        self._doorway = Doorway(listener, limits, self._serve, self._refused)
        self._housekeeper = asyncio.create_task(self._keep_house(), name=f"housekeeping of port {self.port}")

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
        on_refused: Callable[[Refused], None] | None = None,
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
            on_refused: told of refusals, each kind once a minute, in any thread.

        Raises:
            PortInUse, CannotListen: the address cannot be listened on.
        """
        return cls(
            listen(host, port),
            credentials,
            on_worker,
            storage,
            permissions,
            revocations,
            limits or WireLimits(),
            settings,
            on_refused,
        )

    @property
    def open_connections(self) -> int:
        """Connections that are open now: of strangers, and of workers, of both kinds."""
        return len(self._doorway) + self._of_workers

    @property
    def _of_workers(self) -> int:
        return self._control.total() + len(self._bulk)

    async def close(self) -> None:
        """Stops listening and ends every connection; say Goodbye to the workers before."""
        self._housekeeper.cancel()
        await asyncio.gather(self._housekeeper, return_exceptions=True)
        await self._doorway.close()
        await asyncio.to_thread(self._bulk.close)

    async def _serve(self, stranger: Stranger) -> None:
        if stranger.preamble == CONTROL_PREAMBLE:
            await self._serve_control(stranger)
        else:
            await self._serve_bulk(stranger)

    async def _serve_control(self, stranger: Stranger) -> None:
        assert stranger.socket is not None
        connection = ControlConnection(
            stranger.socket,
            self._context,
            Side.SHEPHERD,
            stranger.address,
            self._limits,
            Traffic(self.statistics.traffic),
            self._revocations,
            self._refused,
        )
        try:
            try:
                await connection.handshake()
                hello = await connection.receive()
            except PeerNotAcceptable as error:
                self._refused(stranger.address, error.refusal.kind.name, str(error))
                return
            except PCPError as error:
                self._refused(stranger.address, type(error).__name__, str(error))
                # The connection keeps the error, whose trace keeps the connection: until the next full collection.
                error.__traceback__ = error.__cause__ = error.__context__ = None
                return
            if not isinstance(hello, Hello):
                return
            if full := self._full(connection.peer.name, self._control[connection.peer.name]):
                self._refused(stranger.address, "capacity", full)
                await connection.refuse(RefusalCode.CAPACITY, full)
                return
            self._doorway.proved(stranger)
            await self._run_worker(connection, hello)
        finally:
            if stranger.dismissed:
                connection.abort()
            await connection.close()

    async def _run_worker(self, connection: ControlConnection, hello: Hello) -> None:
        self.statistics.count_accepted("control")
        self._control[hello.worker] += 1
        try:
            await self._on_worker(connection, hello)
        except PeerNotAcceptable as error:
            self._refused(connection.address, error.refusal.kind.name, f"{hello.worker}: {error}")
        except PCPError as error:
            _log.warning("worker %s (%s) left: %s", hello.worker, connection.address, error)
        except Exception:
            _log.exception("serving worker %s (%s) failed", hello.worker, connection.address)
        finally:
            try:
                await connection.close()
            finally:  # before Python 3.11.3 a timeout in what a cancelled task cleans up cancels it again
                self._control -= Counter([hello.worker])

    async def _serve_bulk(self, stranger: Stranger) -> None:
        assert stranger.socket is not None
        refusal = None
        try:
            channel, peer = await handshake(stranger.socket, self._context, stranger.address)
            if full := self._full(peer.name):
                refusal = Refusal(RefusalCode.CAPACITY, full)
            try:
                check_not_revoked(peer, self._revocations)
            except CertificateRefused as error:
                refusal = Refusal(RefusalCode.CERTIFICATE, str(error))
        except PCPError as error:
            self._refused(stranger.address, type(error).__name__, str(error))
        else:
            if refusal is None:
                self.statistics.count_accepted("bulk")
                stranger.socket = None
                self._bulk.take(channel, peer.name, stranger.address)
                return
            kind = "capacity" if refusal.kind is RefusalCode.CAPACITY else "CertificateRefused"
            self._refused(stranger.address, kind, refusal.reason)
            say_refusal(channel, refusal)
        await linger(stranger.socket, self._limits.close_seconds)

    def _full(self, worker: str, own: int = 0) -> str:
        """Why a worker cannot have another connection; empty where it can."""
        if own >= self._limits.connections_per_worker:
            return f"{worker} has {own} connections already; one key is for one worker"
        if self._of_workers >= self._connections and not self._bulk.make_room():
            return f"all {self._connections} connections of this Shepherd are in use; try again later"
        return ""

    def _refused(self, address: str, kind: str, detail: str) -> None:
        self.statistics.count_refused(kind, f"{address}: {detail}")

    async def _keep_house(self) -> None:
        most = 0
        while True:
            await asyncio.sleep(_HOUSEKEEPING_SECONDS)
            self.statistics.refusals.flush()
            most = max(most, self.open_connections)
            if most - self.open_connections >= _CROWD:
                most = self.open_connections
                threading.Thread(target=give_memory_back, name="give memory back", daemon=True).start()
