"""A control connection over a socket: TLS and messages, one reader, one writer, everything bounded."""

import asyncio
import contextlib
import functools
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable

from pcp.distributed.messages import Goodbye, Hello, Message, Welcome
from pcp.distributed.wire.connection import (
    ConnectionEvent,
    ConnectionRefused,
    ControlMachine,
    MessageReceived,
    PeerClosed,
    Side,
    TooMuchInFlight,
)
from pcp.distributed.wire.connection_errors import ConnectionLost, PeerNotAcceptable, RefusedByPeer
from pcp.distributed.wire.fairness import TokenBucket
from pcp.distributed.wire.frames import FrameKind
from pcp.distributed.wire.identity.revocations import Revocations
from pcp.distributed.wire.identity.tls import (
    CONTROL_PROTOCOL,
    CertificateRefused,
    Peer,
    TlsMachine,
    check_not_revoked,
    check_protocol,
    explain,
)
from pcp.distributed.wire.limits import WireLimits
from pcp.distributed.wire.refusal import Refusal, RefusalCode
from pcp.distributed.wire.traffic import Traffic
from pcp.errors import PCPError

_log = logging.getLogger("pcp.wire.control")
_RECEIVE_BYTES = 1 << 16
_BYTES_OF_A_MESSAGE = 4096
"""A larger message is charged as so many."""
_LAST_READS = 64
"""Pieces that are still read from a peer that does not stop sending when the connection closes."""


class ControlConnection:
    """One end of a control connection.

    Receive from one task (`receive`, or `async for`); `post` and `send` from any task of the same event loop.
    Made by `connect` (worker) and by `WireServer` (Shepherd).

    Attributes:
        address: of the other side, as text.
        traffic: bytes moved.
        hello: what the worker said first, once it has.
        welcome: what the Shepherd answered, once it has.
        answer: the same, or the Goodbye that a worker got instead; only on a worker's side.
    """

    def __init__(
        self,
        connection: socket.socket,
        context: ssl.SSLContext,
        side: Side,
        address: str,
        limits: WireLimits,
        traffic: Traffic,
        revocations: Revocations | None = None,
        refused: Callable[[str, str, str], None] | None = None,
    ) -> None:
        self.address = address
        self.traffic = traffic
        self.hello: Hello | None = None
        self.welcome: Welcome | None = None
        self.answer: Welcome | Goodbye | None = None
        self._socket = connection
        self._side = side
        self._limits = limits
        self._revocations = revocations
        self._refused = refused
        rate = limits.messages_per_second
        self._pace = TokenBucket(rate, 2 * rate) if side is Side.SHEPHERD else None
        self._tls = TlsMachine(context, server_side=side is Side.SHEPHERD)
        self._machine: ControlMachine | None = None  # once the peer is known
        self._events: deque[ConnectionEvent] = deque()
        self._wake = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._failure: PCPError | None = None
        self._ended = False
        self._closed = False
        self._closing = asyncio.Event()
        self._gone = asyncio.Event()
        self._nobody_receives = asyncio.Event()
        self._nobody_receives.set()

    @functools.cached_property
    def peer(self) -> Peer:
        """Who the other side has proved to be; only after the handshake."""
        return self._tls.peer

    async def handshake(self) -> None:
        """Makes the encrypted channel and checks who is at the other end.

        Raises:
            CertificateRefused: by either side.
            TlsFailure: there is no such channel to be had.
            ConnectionLost: the other side went away.
        """
        self._writer = asyncio.create_task(self._write(), name=f"control writer {self.address}")
        self._tls.start()
        self._wake_writer()
        early = b""
        while not self._tls.established:
            data = await self._receive_some()
            if not data:
                raise self._failure or ConnectionLost(
                    f"{self.address} closed the connection during the handshake; its log says why"
                )
            early = self._decrypt(data)
        peer = self.peer
        self._machine = ControlMachine(
            self._side,
            peer.name if self._side is Side.SHEPHERD else None,
            maximum_bytes_in_flight=self._limits.maximum_bytes_in_flight,
        )
        try:
            check_not_revoked(peer, self._revocations)
        except CertificateRefused as error:
            self._machine.refuse(RefusalCode.CERTIFICATE, str(error))
            raise
        check_protocol(self._tls.protocol, CONTROL_PROTOCOL)
        self._take(early)

    def post(self, message: Message) -> None:
        """Says something without waiting; messages arrive in the order in which they were posted.

        Arguments:
            message: what to say.

        Raises:
            MessageNotAllowed: it is not this side's turn to say that.
            TooMuchInFlight: the other side reads too slowly; the connection is being closed.
            ConnectionLost: the connection is over.
        """
        if self._failure is not None or self._closed or self._machine is None or self._machine.is_closed:
            raise self._failure or ConnectionLost(f"the connection with {self.address} is closed")
        before = self._machine.bytes_in_flight
        try:
            self._machine.send(message)
        except TooMuchInFlight as error:
            self._fail(error)
            raise
        self.traffic.count_sent(FrameKind.CONTROL, self._machine.bytes_in_flight - before)
        if isinstance(message, Welcome):
            self.welcome = message
        self._wake_writer()

    async def send(self, message: Message) -> None:
        """Says something and waits until the system has taken it.

        Raises:
            MessageNotAllowed, TooMuchInFlight, ConnectionLost: see `post`.
        """
        self.post(message)
        await self._all_sent.wait()
        if self._failure is not None:
            raise self._failure

    async def receive(self) -> Message | None:
        """Waits for the next message.

        Returns:
            The message; None when the connection ended after a Goodbye of either side, or was closed here.

        Raises:
            ConnectionLost: it ended otherwise.
            RefusedByPeer: the other side refused to go on.
            PeerNotAcceptable: this side refused to go on.
        """
        while not self._closed:
            while self._events:
                event = self._events.popleft()
                if isinstance(event, MessageReceived):
                    return self._noted(event.message)
                if isinstance(event, PeerClosed) and event.orderly:
                    self._ended = True
                else:
                    self._ended = True
                    self._failure = self._failure or self._failure_of(event)
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return None
            await self._keep_pace()
            data = b"" if self._closed else await self._receive_some()
            if self._closed:
                break  # another task closed the connection meanwhile, and reads what still comes
            if data:
                self._take(self._decrypt(data))
                self._charge(len(data))
            if not data or self._tls.closed_by_peer:
                self._events.extend(self._machine.receive_end() if self._machine else [PeerClosed(False)])
        return None

    def __aiter__(self) -> "ControlConnection":
        return self

    async def __anext__(self) -> Message:
        message = await self.receive()
        if message is None:
            raise StopAsyncIteration
        return message

    async def refuse(self, code: RefusalCode, reason: str) -> None:
        """Tells the other side that this side will not go on, and closes."""
        if self._machine is not None and not self._machine.is_closed:
            self._machine.refuse(code, reason)
        await self.close()

    async def close(self, goodbye: Goodbye | None = None) -> None:
        """Lets what was said arrive, for a bounded time, and closes.

        Any task may call it, more than once; a task that receives gets None.

        Arguments:
            goodbye: what to say last, if it may still be said.
        """
        if self._closed:
            await self._gone.wait()
            return
        if goodbye is not None:
            with contextlib.suppress(PCPError):
                self.post(goodbye)
        self._closed = True
        self._closing.set()
        try:
            async with asyncio.timeout(self._limits.close_seconds):
                await self._say_the_last()
        except (TimeoutError, OSError) as error:
            _log.debug("closing the connection with %s: %r", self.address, error)
        finally:
            if self._writer is not None:
                self._writer.cancel()
                await asyncio.gather(self._writer, return_exceptions=True)
                self._writer = None  # it knows its end, whose traceback knows this object: a cycle
            with contextlib.suppress(OSError):  # wakes the task that receives
                self._socket.shutdown(socket.SHUT_RDWR)
            await self._nobody_receives.wait()
            self._socket.close()
            self._gone.set()

    def abort(self) -> None:
        """Breaks the connection; `close` then waits for nobody."""
        self._fail(ConnectionLost(f"the connection with {self.address} was broken off here"))

    async def __aenter__(self) -> "ControlConnection":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _say_the_last(self) -> None:
        await self._flush()
        if self._failure is None and self._tls.established:
            self._tls.close()
            await self._flush()
        self._socket.shutdown(socket.SHUT_WR)
        # Closing with unread bytes would reset the connection, and the last words would be lost.
        await self._nobody_receives.wait()
        for _ in range(_LAST_READS):
            if not await self._receive_some():
                break

    async def _flush(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._wake_writer()
            await self._all_sent.wait()

    def _noted(self, message: Message) -> Message:
        if isinstance(message, Hello):
            self.hello = message
        elif isinstance(message, Welcome):
            self.welcome = message
        return message

    def _failure_of(self, event: ConnectionEvent) -> PCPError:
        if isinstance(event, ConnectionRefused):
            who, refusal = (self.address if event.by_peer else "this side"), event.refusal
            if event.by_peer and refusal.kind is RefusalCode.CERTIFICATE:
                return CertificateRefused(f"{self.address} refused this certificate: {refusal.reason}")
            failure = RefusedByPeer if event.by_peer else PeerNotAcceptable
            return failure(refusal, f"{who} refused the connection ({refusal.kind.name}): {refusal.reason}")
        if isinstance(event, PeerClosed):
            return ConnectionLost(f"{self.address} closed the connection without a Goodbye")
        reason = getattr(event, "reason", "")
        return PeerNotAcceptable(
            Refusal(RefusalCode.PROTOCOL, reason), f"{self.address} broke the protocol: {reason}"
        )

    async def _receive_some(self) -> bytes:
        loop = asyncio.get_running_loop()
        self._nobody_receives.clear()
        try:
            return await loop.sock_recv(self._socket, _RECEIVE_BYTES)
        except OSError as error:
            self._failure = self._failure or ConnectionLost(
                f"the connection with {self.address} broke: {error.strerror or error}"
            )
            return b""
        finally:
            self._nobody_receives.set()

    def _decrypt(self, data: bytes) -> bytes:
        try:
            return self._tls.receive(data)
        except ssl.SSLError as error:
            self._failure = explain(error, self.address, server_side=self._side is Side.SHEPHERD)
            raise self._failure from error
        finally:
            self._wake_writer()

    def _take(self, plain: bytes) -> None:
        if self._machine is not None and plain:
            self.traffic.count_received(FrameKind.CONTROL, len(plain))
            self._events.extend(self._machine.receive(plain))
            self._wake_writer()

    def _charge(self, received: int) -> None:
        if self._pace is not None:
            units = max(1, len(self._events)) + received / _BYTES_OF_A_MESSAGE
            self._pace.take(units, time.monotonic())

    async def _keep_pace(self) -> None:
        """Leaves a flood of messages where it is, so that its sender waits."""
        wait = self._pace.wait(time.monotonic()) if self._pace is not None else 0.0
        if not wait:
            return
        if self._refused is not None:
            limit = self._limits.messages_per_second
            self._refused(self.address, "slowed", f"{self.peer.name} sends over {limit:g} messages a second")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._closing.wait()

    def _wake_writer(self) -> None:
        self._all_sent.clear()
        self._wake.set()

    def _next_cipher(self) -> bytes:
        plain = self._machine.bytes_to_send() if self._machine is not None else b""
        if plain:
            self._tls.send(plain)
        return self._tls.bytes_to_send()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while data := self._next_cipher():
                    async with asyncio.timeout(self._limits.stall_seconds):
                        await loop.sock_sendall(self._socket, data)
                if not self._wake.is_set():
                    self._all_sent.set()
        except TimeoutError:
            self._fail(
                ConnectionLost(f"{self.address} took nothing for {self._limits.stall_seconds} seconds")
            )
        except OSError as error:
            self._fail(ConnectionLost(f"the connection with {self.address} broke: {error.strerror or error}"))
        finally:
            self._all_sent.set()

    def _fail(self, failure: PCPError) -> None:
        self._failure = self._failure or failure
        self._all_sent.set()
        with contextlib.suppress(OSError):  # wakes the task that receives
            self._socket.shutdown(socket.SHUT_RDWR)
