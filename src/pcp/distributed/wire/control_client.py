"""A worker's way to its Shepherd: connect, prove who one is, say Hello, wait for Welcome."""

import asyncio
import socket

from pcp.distributed.messages import Goodbye, Hello, Welcome
from pcp.distributed.wire.connection import Side
from pcp.distributed.wire.connection_errors import ConnectionLost
from pcp.distributed.wire.control import ControlConnection
from pcp.distributed.wire.identity.credentials import Credentials
from pcp.distributed.wire.identity.tls import CONTROL_PROTOCOL, client_context
from pcp.distributed.wire.limits import WireLimits
from pcp.distributed.wire.sockets import (
    CONTROL_PREAMBLE,
    Unreachable,
    parse_address,
    tune,
    unreachable,
)
from pcp.distributed.wire.traffic import Traffic


async def connect(
    address: str,
    credentials: Credentials,
    hello: Hello,
    *,
    limits: WireLimits | None = None,
    traffic: Traffic | None = None,
) -> ControlConnection:
    """Becomes a member of a run.

    Arguments:
        address: the Shepherd's, `HOST:PORT`.
        credentials: this worker's; `hello.worker` must be the name in them.
        hello: what to say first.
        limits: how long to wait.
        traffic: a count to add this connection's bytes to.

    Returns:
        The open connection, whose `answer` is the Shepherd's: a Welcome, or a Goodbye, which ends it. A context manager
        that closes it.

    Raises:
        Unreachable: nobody answers at the address.
        CertificateRefused: one side does not accept the other's certificate.
        RefusedByPeer: the Shepherd does not want this worker.
        ConnectionLost, TlsFailure: the connection broke on the way.
    """
    limits = limits or WireLimits()
    raw = await _connect_socket(address, limits)
    connection = ControlConnection(
        raw,
        client_context(credentials, CONTROL_PROTOCOL),
        Side.WORKER,
        address,
        limits,
        Traffic(traffic),
    )
    try:
        async with asyncio.timeout(limits.handshake_seconds):
            await asyncio.get_running_loop().sock_sendall(raw, CONTROL_PREAMBLE)
            await connection.handshake()
            await connection.send(hello)
            answer = await connection.receive()
        if not isinstance(answer, Welcome | Goodbye):
            raise ConnectionLost(f"{address} answered Hello with {type(answer).__name__}")
        connection.answer = answer
    except BaseException as error:
        await connection.close()
        if isinstance(error, TimeoutError):
            raise ConnectionLost(
                f"{address} did not complete the handshake in {limits.handshake_seconds} seconds; "
                "check that a Shepherd listens there"
            ) from error
        if isinstance(error, OSError):
            raise ConnectionLost(f"the connection with {address} broke: {error}") from error
        raise
    return connection


async def _connect_socket(address: str, limits: WireLimits) -> socket.socket:
    host, port = parse_address(address)
    loop = asyncio.get_running_loop()
    problem: Exception = OSError("the name has no address")
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Unreachable(f"cannot find {host}: {error.strerror or error}; check the address") from error
    for family, kind, protocol, _, target in addresses:
        raw = socket.socket(family, kind, protocol)
        raw.setblocking(False)
        try:
            async with asyncio.timeout(limits.connect_seconds):
                await loop.sock_connect(raw, target)
            tune(raw)
            return raw
        except (OSError, TimeoutError) as error:
            raw.close()
            problem = error
        except BaseException:
            raw.close()
            raise
    raise unreachable((host, port), problem) from problem
