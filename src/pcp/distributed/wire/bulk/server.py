"""The Shepherd's side of bulk connections: one thread each, blocking TLS, the responder machine."""

import contextlib
import logging
import socket
import ssl
import threading
from collections.abc import Callable

from pcp.distributed.wire.bulk.framed import FramedSocket, interrupt, linger
from pcp.distributed.wire.bulk.permissions import Permissions
from pcp.distributed.wire.bulk.responder import Storage, TransferResponder
from pcp.distributed.wire.bulk.transfer import TransferSettings
from pcp.distributed.wire.codec import encode_refusal
from pcp.distributed.wire.control import ConnectionLost
from pcp.distributed.wire.identity.revocations import Revocations
from pcp.distributed.wire.identity.tls import (
    BULK_PROTOCOL,
    CertificateRefused,
    Peer,
    check_not_revoked,
    check_protocol,
    explain,
    peer_of,
)
from pcp.distributed.wire.limits import WireLimits
from pcp.distributed.wire.refusal import Refusal, RefusalCode
from pcp.distributed.wire.traffic import Statistics, Traffic
from pcp.errors import PCPError

_log = logging.getLogger("pcp.wire.bulk")


class BulkServer:
    """Serves accepted sockets, each in a thread, until it is closed.

    Arguments:
        context: TLS of the Shepherd.
        storage: where blobs are.
        permissions: who may move which of them.
        limits: bounds of time and number.
        statistics: where connections, refusals and bytes are counted.
        revocations: certificates that are no longer valid.
        settings: the largest chunk and window to agree to.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        storage: Storage,
        permissions: Permissions,
        limits: WireLimits,
        statistics: Statistics,
        revocations: Revocations | None = None,
        settings: TransferSettings | None = None,
    ) -> None:
        self._context = context
        self._storage = storage
        self._permissions = permissions
        self._limits = limits
        self._statistics = statistics
        self._revocations = revocations
        self._settings = settings
        self._lock = threading.Lock()
        self._threads: dict[threading.Thread, socket.socket] = {}
        self._closed = False

    def take(self, connection: socket.socket, address: str, on_end: Callable[[], None]) -> bool:
        """Takes over an accepted socket.

        Arguments:
            connection: the socket; it will be closed here.
            address: of the other side.
            on_end: called, in the connection's thread, when it is closed.

        Returns:
            False when there are too many already; then the socket is still the caller's.
        """
        with self._lock:
            if self._closed or len(self._threads) >= self._limits.bulk_connections:
                return False
            thread = threading.Thread(
                target=self._run, args=(connection, address, on_end), name=f"bulk {address}", daemon=True
            )
            self._threads[thread] = connection
        thread.start()
        return True

    def close(self) -> None:
        """Breaks all connections and waits for their threads; partial blobs stay for a resume."""
        with self._lock:
            self._closed = True
            threads = dict(self._threads)
        for connection in threads.values():
            interrupt(connection)
        for thread in threads:
            thread.join(self._limits.close_seconds + 1.0)

    def _run(self, connection: socket.socket, address: str, on_end: Callable[[], None]) -> None:
        try:
            self._serve(connection, address)
        except ConnectionLost as error:
            _log.info("bulk connection ended: %s", error)
        except PCPError as error:
            self._statistics.count_refused(type(error).__name__)
            _log.warning("bulk connection of %s refused: %s", address, error)
        except OSError as error:
            _log.info("bulk connection of %s broke: %s", address, error)
        except Exception:
            _log.exception("bulk connection of %s failed", address)
        finally:
            connection.close()
            with self._lock:
                self._threads.pop(threading.current_thread(), None)
            on_end()

    def _serve(self, connection: socket.socket, address: str) -> None:
        connection.settimeout(self._limits.handshake_seconds)
        secure = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            self._threads[threading.current_thread()] = secure
        try:
            peer = self._handshake(secure, address)
            framed = FramedSocket(secure, address, Traffic(self._statistics.traffic))
            try:
                check_not_revoked(peer, self._revocations)
            except CertificateRefused as error:
                with contextlib.suppress(ConnectionLost):
                    framed.send(encode_refusal(Refusal(RefusalCode.CERTIFICATE, str(error))))
                raise
            self._statistics.count_accepted("bulk")
            self._answer(framed, peer.name)
        finally:
            linger(secure, self._limits.close_seconds)

    def _handshake(self, secure: ssl.SSLSocket, address: str) -> Peer:
        try:
            secure.do_handshake()  # the socket's timeout bounds all of it, not each of its bytes
        except OSError as error:
            raise explain(error, address, server_side=True) from error
        check_protocol(secure.selected_alpn_protocol(), BULK_PROTOCOL)
        return peer_of(secure.getpeercert())

    def _answer(self, framed: FramedSocket, peer: str) -> None:
        responder = TransferResponder(peer, self._storage, self._permissions, self._settings)
        try:
            while not responder.finished:
                data = responder.next_frame()
                if data is not None:
                    framed.send(data)
                    continue
                framed.set_timeout(
                    self._limits.idle_seconds if responder.idle else self._limits.stall_seconds
                )
                responder.receive(framed.receive())
        finally:
            responder.close()
            for refusal in responder.refusals:
                self._statistics.count_refused(refusal.kind.name)
