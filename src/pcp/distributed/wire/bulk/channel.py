"""TLS over a TCP socket with few system calls: records are encrypted and decrypted in memory, many at a time."""

import asyncio
import contextlib
import socket
import ssl
import threading

from pcp.distributed.wire.identity.tls import TlsMachine

_UNIT_BYTES = 1 << 17
"""What goes to the system at once, about. A connection keeps twice so much in memory once it has moved blobs."""
_REST_BYTES = 1 << 12
"""What would be left of a frame goes along with its last unit."""
_HANDSHAKE_BYTES = 1 << 14


class _Buffer(threading.local):
    """What a thread receives into; it is empty between two calls."""

    def __init__(self) -> None:
        self.space = memoryview(bytearray(_UNIT_BYTES))


_buffer = _Buffer()


class TlsChannel:
    """An encrypted connection, used by one thread at a time; the socket decides whether its calls wait.

    Arguments:
        connection: the socket.
        tls: this end of the encryption.

    Attributes:
        socket: the same.
        tls: the same.
        moved: bytes that the socket has taken and given so far.
    """

    def __init__(self, connection: socket.socket, tls: TlsMachine) -> None:
        self.socket = connection
        self.tls = tls
        self.moved = 0
        self._unsent = memoryview(b"")

    def fileno(self) -> int:
        """The descriptor, for polling."""
        return self.socket.fileno()

    @property
    def must_flush(self) -> bool:
        """Whether encrypted bytes wait for the socket."""
        return bool(self._unsent)

    @property
    def something_arrived(self) -> bool:
        """Whether something was received that nobody has taken yet."""
        return self.tls.something_to_read

    def send(self, plain: memoryview) -> int:
        """Takes plain bytes, or some of them, and sends them as far as the socket takes them now.

        Returns:
            How many plain bytes were taken.

        Raises:
            BlockingIOError: none, as earlier ones wait still.
            OSError: the connection broke.
        """
        self.flush()
        taken = plain[:_UNIT_BYTES] if len(plain) > _UNIT_BYTES + _REST_BYTES else plain
        self.tls.send(taken)
        self._unsent = memoryview(self.tls.bytes_to_send())
        with contextlib.suppress(BlockingIOError):
            self.flush()
        return len(taken)

    def flush(self) -> None:
        """Sends what waits.

        Raises:
            BlockingIOError: the socket does not take all of it now.
            OSError: the connection broke.
        """
        while self._unsent:
            count = self.socket.send(self._unsent)
            self._unsent = self._unsent[count:]
            self.moved += count

    def receive_into(self, space: memoryview) -> int:
        """Receives plain bytes.

        Returns:
            How many; 0 where the other side has closed.

        Raises:
            BlockingIOError: there are none now.
            OSError: the connection broke, or is not what it was.
        """
        while True:
            count = self.tls.read_into(space)
            if count or self.tls.closed_by_peer:
                return count
            received = self.socket.recv_into(_buffer.space)
            if not received:
                return 0
            self.moved += received
            self.tls.feed(_buffer.space[:received])

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()


def interrupt(connection: socket.socket) -> None:
    """Ends what another thread waits for on a socket, and lets its owner close it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def encrypted(connection: socket.socket, context: ssl.SSLContext, server_name: str) -> TlsChannel:
    """Makes the handshake of a client over a socket that waits.

    Arguments:
        connection: the socket.
        context: made by `client_context`.
        server_name: what the other side's certificate must be for.

    Raises:
        ssl.SSLError: there is no such channel to be had; the other side was told why.
        OSError: the connection broke.
    """
    tls = TlsMachine(context, server_side=False, server_name=server_name)
    data = b""
    while not tls.established:
        try:
            tls.shake_hands(data)
        finally:  # also the alert that says why not
            connection.sendall(tls.bytes_to_send())
        if not tls.established and not (data := connection.recv(_HANDSHAKE_BYTES)):
            raise ConnectionResetError("the other side closed the connection")
    return TlsChannel(connection, tls)


async def encrypted_for(connection: socket.socket, context: ssl.SSLContext) -> TlsChannel:
    """Makes the handshake of a server over a socket that does not wait, on the event loop.

    Raises:
        ssl.SSLError: there is no such channel to be had; the other side was told why.
        OSError: the connection broke.
    """
    loop = asyncio.get_running_loop()
    tls = TlsMachine(context, server_side=True)
    while not tls.established:
        data = await loop.sock_recv(connection, _HANDSHAKE_BYTES)
        if not data:
            raise ConnectionResetError("the other side closed the connection")
        try:
            tls.shake_hands(data)
        finally:
            await loop.sock_sendall(connection, tls.bytes_to_send())
    return TlsChannel(connection, tls)
