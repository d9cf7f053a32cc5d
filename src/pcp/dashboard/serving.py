"""Serves a page in a process of its own, so that who reaches it takes nothing from the Shepherd or its workers."""

import asyncio
import contextlib
import ipaddress
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from pcp.distributed.wire.fairness import Crowd, network_of
from pcp.distributed.wire.sockets import format_address, listen
from pcp.errors import PCPError

CONNECTIONS = 64
"""At a time; one more takes the place of one of the address that has the most."""
REQUEST_SECONDS = 5.0
"""How long a connection may take to send its first request."""
CONNECTION_SECONDS, LEAVE_SECONDS = 30.0, 5.0
"""How long a connection lasts, whatever it does, and how long it may then take to end. A browser makes another."""
SHORTEST_TOKEN = 16
LOOPBACK_HOSTS = ["127.0.0.1", "localhost", "[::1]"]


class TokenUnusable(PCPError):
    """A file of a token that is too short or cannot be read, or a token where it would be sent in the clear."""


class _Bounded(H11Protocol):
    """A connection that lasts so long and no longer: one that sends nothing, or reads nothing, holds no place.

    Nor do many hold all places: a newcomer always gets one, from the address that has the most. Which one of those leaves is
    drawn by lot, so that a viewer beside a flood from his own address gets his answer as a rule.
    """

    open_now = 0
    crowd: Crowd["_Bounded"]

    def connection_made(self, transport: Any) -> None:
        if not _Bounded.open_now:
            _Bounded.crowd = Crowd(CONNECTIONS, random.Random())
        self._network = network_of(str((transport.get_extra_info("peername") or ("127.0.0.1",))[0]))
        crowded_out = _Bounded.crowd.enter(self._network, self, self.loop.time())
        if crowded_out is not None:
            crowded_out.transport.abort()
        _Bounded.open_now += 1
        self._ends = [
            self.loop.call_later(REQUEST_SECONDS, self._end_silent, transport),
            self.loop.call_later(CONNECTION_SECONDS, transport.close),
            self.loop.call_later(CONNECTION_SECONDS + LEAVE_SECONDS, transport.abort),
        ]
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        _Bounded.open_now -= 1
        _Bounded.crowd.leave(self._network, self)
        for end in self._ends:
            end.cancel()
        super().connection_lost(error)

    def _end_silent(self, transport: Any) -> None:
        if self.cycle is None:  # it has asked for nothing yet
            transport.abort()


def read_token(file: Path, host: str) -> str:
    """The token in a file.

    Arguments:
        host: where the page listens.

    Raises:
        TokenUnusable: there is no good token in it, or others than this machine could listen to it.
    """
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenUnusable(
            f"cannot read a token from {file}: {error}; make one: openssl rand -hex 32 > {file}"
        ) from None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise TokenUnusable(
            f"the token in {file} has {len(token)} characters; expected {SHORTEST_TOKEN} or more, in ASCII: "
            f"openssl rand -hex 32 > {file}"
        )
    if not is_loopback(host):
        raise TokenUnusable(
            f"a token would be sent in the clear to {host}; listen on 127.0.0.1 and reach it by `ssh -L`, or put a server with "
            "TLS before it, or leave --token-file out"
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def serve(app: ASGIApp, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve an application until the process is told to end by SIGINT or SIGTERM.

    Arguments:
        app: what answers.
        host, port: where to listen; port 0 takes a free one.
        ready: told the address, `HOST:PORT`.

    Raises:
        PortInUse, CannotListen: the address cannot be listened on.
    """
    with contextlib.suppress(OSError):
        os.nice(10)  # what shows a run waits for what computes it
    listener = listen(host, port)
    config = uvicorn.Config(
        app,
        http=_Bounded,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=2 * CONNECTIONS,
        h11_max_incomplete_event_size=16384,
        timeout_graceful_shutdown=1,
    )
    ready(format_address(listener.getsockname()[:2]))
    asyncio.run(_serve(uvicorn.Server(config), listener))


async def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        await server.serve(sockets=[listener])
