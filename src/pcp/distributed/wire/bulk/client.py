"""A worker's side of bulk connections: blocking calls that bring a blob over, whatever breaks meanwhile."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable

from pcp.distributed.messages import Blob
from pcp.distributed.wire.backoff import Backoff
from pcp.distributed.wire.blob_files import DigestMismatch, PartialReplaced
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.wire.bulk.channel import encrypted, interrupt
from pcp.distributed.wire.bulk.chunks import TransferError, TransferRefused
from pcp.distributed.wire.bulk.framed import FramedChannel
from pcp.distributed.wire.bulk.transfer import (
    FetchRequester,
    Piece,
    PiecesRequester,
    PushRequester,
    TransferSettings,
)
from pcp.distributed.wire.connection_errors import ConnectionLost
from pcp.distributed.wire.identity.certificates import SHEPHERD_NAME, WORKER_NAME
from pcp.distributed.wire.identity.credentials import Credentials
from pcp.distributed.wire.identity.tls import (
    BULK_PROTOCOL,
    CertificateRefused,
    check_protocol,
    client_context,
    explain,
)
from pcp.distributed.wire.limits import WireLimits
from pcp.distributed.wire.refusal import RETRYABLE, RefusalCode
from pcp.distributed.wire.sockets import (
    BULK_PREAMBLE,
    Unreachable,
    connect,
    parse_address,
    tune,
    unreachable,
)
from pcp.distributed.wire.traffic import Traffic
from pcp.errors import PCPError

_log = logging.getLogger("pcp.wire.bulk")


class TransferFailed(TransferError):
    """A blob could not be moved, however often it was tried."""


class TransferCancelled(TransferError):
    """The client was closed while it moved a blob."""


class BulkClient:
    """Fetches blobs from the Shepherd and pushes blobs to it, one at a time.

    It keeps one connection and makes a new one whenever it breaks; a transfer goes on where it ended.
    `StripedFetcher` fetches over several at once.

    Arguments:
        address: the Shepherd's, `HOST:PORT`; the same port as for control.
        credentials: this worker's.
        worker: name of the worker that listens at the address; None for the Shepherd.
        settings: how blobs are cut.
        limits: how long to wait.
        traffic: a count to add this client's bytes to.
        maximum_attempts: attempts in a row that may bring nothing before a transfer fails.
        backoff: waiting times between them.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        *,
        worker: str | None = None,
        settings: TransferSettings | None = None,
        limits: WireLimits | None = None,
        traffic: Traffic | None = None,
        maximum_attempts: int = 8,
        backoff: Backoff | None = None,
    ) -> None:
        self.address = address
        self.traffic = Traffic(traffic)
        self.reconnects = 0
        self._target = parse_address(address)
        self._worker = worker
        self._context = client_context(credentials, BULK_PROTOCOL)
        self._settings = settings or TransferSettings()
        self._limits = limits or WireLimits()
        self._maximum_attempts = maximum_attempts
        self._backoff = backoff or Backoff()
        self._one_at_a_time = threading.Lock()
        self._connection: FramedChannel | None = None
        self._socket: socket.socket | None = None  # what `close` interrupts
        self._cancelled = threading.Event()
        self._taken = 0  # bytes of the current blob that the receiver is known to have
        self._handshake_seconds: float | None = None

    def handshake_seconds(self) -> float | None:
        """What the handshake took, at least a way there and back; None where no connection can be made now."""
        with self._one_at_a_time, contextlib.suppress(PCPError):
            if self._connection is None and not self._cancelled.is_set():
                self._connection = self._connect()
        return self._handshake_seconds

    def fetch(self, blob: Blob, store: BlobStore, owner: str = "fetch") -> None:
        """Brings a blob into a store; what is there already is not asked for again.

        Arguments:
            blob: what to fetch.
            store: where to.
            owner: name of the partial file, for several clients that fetch the same blob into one store.

        Raises:
            TransferRefused: the Shepherd does not give it.
            TransferFailed: it could not be brought over in the attempts that are allowed.
            CertificateRefused: one side does not accept the other's certificate.
            StoreError: there is no room for it, or what arrives is wrong twice.
            TransferCancelled: `close` was called.
        """

        def attempt() -> None:
            if not store.has(blob):
                with store.begin(blob, owner) as sink:
                    self._drive(FetchRequester(blob, sink, self._settings))

        self._until_done(attempt, f"fetch blob {blob.digest.hex()[:16]} from")

    def fetch_pieces(self, blob: Blob, take: Callable[[bool], Piece | None]) -> None:
        """Brings pieces of a blob until `take` has no more, in one attempt (see `PiecesRequester`).

        Raises:
            PCPError: as `fetch`; `is_worth_another_attempt` tells whether the rest may be asked for again.
        """
        what = f"fetch blob {blob.digest.hex()[:16]} from"
        with self._one_at_a_time:
            try:
                self._refuse_when_cancelled(what)
                self._drive(PiecesRequester(blob, take, self._settings))
            except BaseException:
                self._disconnect()
                self._refuse_when_cancelled(what)
                raise

    def push(self, blob: Blob, store: BlobStore) -> None:
        """Sends a blob of a store; returns when the other side has stored and checked it.

        Arguments:
            blob: what to send.
            store: where it is.

        Raises:
            BlobMissing: it is not in the store.
            TransferRefused: the Shepherd does not take it.
            TransferFailed: it could not be brought over in the attempts that are allowed.
            CertificateRefused: one side does not accept the other's certificate.
            TransferCancelled: `close` was called.
        """

        def attempt() -> None:
            with store.open(blob) as source:
                self._drive(PushRequester(blob, source, self._settings))

        self._until_done(attempt, f"push blob {blob.digest.hex()[:16]} to")

    def push_piece(self, blob: Blob, store: BlobStore, offset: int, stop: int) -> None:
        """Sends the bytes `offset <= i < stop` of a blob of a store; returns when the other side has them.

        Raises:
            PCPError: as `push`.
        """

        def attempt() -> None:
            with store.open(blob) as source:
                self._drive(PushRequester(blob, source, self._settings, (offset, stop)))

        self._until_done(attempt, f"push blob {blob.digest.hex()[:16]} to")

    def close(self) -> None:
        """Closes the connection; a transfer that runs in another thread ends with `TransferCancelled`."""
        self._cancelled.set()
        current = self._socket
        if current is not None:
            interrupt(current)
        with self._one_at_a_time:
            self._disconnect()

    def __enter__(self) -> "BulkClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _until_done(self, attempt: Callable[[], None], what: str) -> None:
        with self._one_at_a_time:
            self._backoff.reset()
            self._taken = best = 0
            wrong = 0
            while True:
                try:
                    self._refuse_when_cancelled(what)
                    return attempt()
                except BaseException as error:
                    self._disconnect()
                    self._refuse_when_cancelled(what)
                    wrong += _is_wrong_content(error)
                    if wrong > 1 or not is_worth_another_attempt(error):
                        raise
                    problem = error
                if self._taken > best:
                    best = self._taken
                    self._backoff.reset()
                self._wait(what, problem)

    def _wait(self, what: str, problem: BaseException) -> None:
        if self._backoff.attempts + 1 >= self._maximum_attempts:
            raise TransferFailed(
                f"could not {what} {self.address} in {self._maximum_attempts} attempts; the last: {problem}"
            ) from problem
        seconds = self._backoff.next()
        self.reconnects += 1
        _log.warning("will %s %s again in %.1f seconds: %s", what, self.address, seconds, problem)
        self._cancelled.wait(seconds)

    def _drive(self, machine: FetchRequester | PiecesRequester | PushRequester) -> None:
        if machine.finished:
            return
        if self._connection is not None and self._connection.something_arrived:
            self._disconnect()  # the Shepherd closed it while it was idle
        if self._connection is None:
            self._connection = self._connect()
        try:
            self._connection.drive(machine)
        except TransferRefused as error:
            if error.refusal.kind is RefusalCode.CERTIFICATE:
                raise CertificateRefused(
                    f"{self.address} refused this certificate: {error.refusal.reason}"
                ) from error
            raise
        finally:
            self._taken = max(self._taken, machine.taken)

    def _connect(self) -> FramedChannel:
        try:
            raw = connect(self._target, self._limits.connect_seconds, self._cancelled.is_set)
        except OSError as error:
            raise unreachable(self._target, error) from error
        self._interruptible(raw)
        try:
            tune(raw)
            raw.settimeout(self._limits.handshake_seconds)
            began = time.monotonic()
            raw.sendall(BULK_PREAMBLE)
            name = SHEPHERD_NAME if self._worker is None else WORKER_NAME
            channel = encrypted(raw, self._context, name)
            self._handshake_seconds = time.monotonic() - began
            check_protocol(channel.tls.protocol, BULK_PROTOCOL)
            self._check_name(channel.tls.peer.name)
        except BaseException as error:
            raw.close()
            if not isinstance(error, OSError):
                raise
            explained = explain(error, self.address)
            if isinstance(explained, CertificateRefused):
                raise explained from error
            raise ConnectionLost(f"the handshake with {self.address} failed: {error}") from error
        raw.settimeout(self._limits.stall_seconds)
        return FramedChannel(channel, self.address, self.traffic)

    def _check_name(self, name: str) -> None:
        """Any worker has the name that TLS compared; this one must be the one that was meant."""
        if self._worker is not None and name != self._worker:
            raise CertificateRefused(f"{self.address} is {name}, and {self._worker} was to be there")

    def _interruptible(self, connection: socket.socket) -> None:
        self._socket = connection
        if self._cancelled.is_set():  # set before `close` looked for a socket
            interrupt(connection)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._socket = None

    def _refuse_when_cancelled(self, what: str) -> None:
        if self._cancelled.is_set():
            raise TransferCancelled(f"was asked to stop before it could {what} {self.address}")


def _is_wrong_content(error: BaseException) -> bool:
    refused = isinstance(error, TransferRefused) and error.refusal.kind is RefusalCode.CORRUPT
    return refused or isinstance(error, DigestMismatch)


def is_worth_another_attempt(error: BaseException) -> bool:
    """Whether a transfer that ended like this may succeed when it is asked for again."""
    if isinstance(error, TransferRefused):
        return error.refusal.kind in RETRYABLE or _is_wrong_content(error)
    return isinstance(error, ConnectionLost | Unreachable | PartialReplaced | DigestMismatch)
