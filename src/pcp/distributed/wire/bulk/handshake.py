"""The handshake of a bulk connection at the Shepherd: on the event loop, before any thread knows of it."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

from pcp.distributed.wire.codec import encode_refusal
from pcp.distributed.wire.identity.tls import BULK_PROTOCOL, Peer, check_protocol, explain, peer_of
from pcp.distributed.wire.refusal import Refusal

_DRAIN_BYTES = 1 << 16


async def handshake(secure: ssl.SSLSocket, address: str) -> Peer:
    """Completes TLS on a socket that does not block, and says who is at the other end.

    Raises:
        CertificateRefused: by either side.
        TlsFailure: there is no such channel to be had.
    """
    loop = asyncio.get_running_loop()
    while True:
        try:
            secure.do_handshake()
            break
        except ssl.SSLWantReadError:
            await _ready(secure, loop.add_reader, loop.remove_reader)
        except ssl.SSLWantWriteError:
            await _ready(secure, loop.add_writer, loop.remove_writer)
        except OSError as error:
            raise explain(error, address, server_side=True) from error
    check_protocol(secure.selected_alpn_protocol(), BULK_PROTOCOL)
    return peer_of(secure.getpeercert())


def say_refusal(secure: ssl.SSLSocket, refusal: Refusal) -> None:
    """Tells a peer that has proved who it is why it is not served, without waiting."""
    with contextlib.suppress(OSError):
        secure.send(encode_refusal(refusal))


async def linger(connection: socket.socket, seconds: float) -> None:
    """Lets what was said last arrive: closing with unread bytes would reset the connection, and it would be lost."""
    with contextlib.suppress(OSError, TimeoutError):
        connection.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(seconds):
            while await asyncio.get_running_loop().sock_recv(connection, _DRAIN_BYTES):
                pass


async def _ready(connection: socket.socket, add: Callable[..., None], remove: Callable[[Any], bool]) -> None:
    ready = asyncio.Event()
    add(connection, ready.set)
    try:
        await ready.wait()
    finally:
        remove(connection)
