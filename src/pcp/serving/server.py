"""The process that serves: how many connections it holds, and how it ends."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from pcp.dashboard.serving import LOOPBACK_HOSTS, is_loopback
from pcp.distributed.wire.sockets import format_address, room_for_descriptors
from pcp.serving.application import Application
from pcp.serving.model import ServedModel

CONNECTIONS = 2048
"""At a time; for one more, that which has asked for nothing for longest is closed."""
REQUEST_SECONDS = 20.0
"""How long a connection may take until its first request is there."""
IDLE_SECONDS = 60
"""How long one may stay open between requests."""
_LEAVE_SECONDS = 5
"""Between the end of the last answers and that of their connections."""


def bounded(most: int) -> type[H11Protocol]:
    """Connections, of which a server holds so many: one that is idle holds no other's place.

    Arguments:
        most: at a time.
    """
    idle_first: dict[H11Protocol, None] = {}

    def is_idle(connection: H11Protocol) -> bool:
        return connection.cycle is None or connection.cycle.response_complete

    class Bounded(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            if len(idle_first) >= most:
                idle = next((each for each in idle_first if is_idle(each)), None)
                if idle is not None:
                    del idle_first[idle]
                (transport if idle is None else idle.transport).abort()
            idle_first[self] = None
            self._ends = self.loop.call_later(REQUEST_SECONDS, self._end_silent)
            super().connection_made(transport)

        def connection_lost(self, error: Exception | None) -> None:
            idle_first.pop(self, None)
            self._ends.cancel()
            super().connection_lost(error)

        def on_response_complete(self) -> None:
            if idle_first.pop(self, self) is None:  # it has just been used, so it is the last to be closed
                idle_first[self] = None
            super().on_response_complete()

        def _end_silent(self) -> None:
            if self.cycle is None:
                self.transport.abort()

    return Bounded


class Server(uvicorn.Server):
    """A server that ends gracefully: told to end, it takes no more, finishes its answers, and gives the rest up after a while.

    Arguments:
        application: what answers.
        model: whose engine is closed in the end.
        drain_seconds: for answers that have begun.
    """

    def __init__(
        self, application: Application, model: ServedModel, hosts: list[str], drain_seconds: float
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application.asgi(hosts),
                http=bounded(min(CONNECTIONS, room_for_descriptors(CONNECTIONS + 64) - 64)),
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=IDLE_SECONDS,
                h11_max_incomplete_event_size=1 << 16,
                timeout_graceful_shutdown=int(drain_seconds) + 2 * _LEAVE_SECONDS,
            )
        )
        self._application, self._model, self._drain_seconds = application, model, drain_seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End: gracefully when told once, at once when told again."""
        del sig, frame
        self.force_exit = self.should_exit
        self.drain()

    def drain(self) -> None:
        """Take no more requests, and end when the answers that have begun are told; from any thread."""
        self._application.is_draining = self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for the answers; called by uvicorn."""
        loop = asyncio.get_running_loop()
        giving_up = loop.call_later(self._drain_seconds, self._give_up)
        await super().shutdown(sockets)
        giving_up.cancel()
        await asyncio.to_thread(self._model.engine.close, False)
        self._model.close()

    def _give_up(self) -> None:
        # In a thread of its own: it waits for the step that runs.
        threading.Thread(target=self._model.engine.close, args=(False,), daemon=True).start()


def serve(
    application: Application,
    model: ServedModel,
    listener: socket.socket,
    host: str,
    drain_seconds: float,
    ready: Callable[[str], None],
) -> None:
    """Serve until the process is told to end by SIGINT or SIGTERM, and its answers are told.

    Arguments:
        listener: of `listen`.
        host: whose name it was given; one of this machine alone may be asked for under no other.
        drain_seconds: see `Server`.
        ready: told the address, `HOST:PORT`.
    """
    hosts = LOOPBACK_HOSTS if is_loopback(host) else ["*"]
    server = Server(application, model, hosts, drain_seconds)
    ready(format_address(listener.getsockname()[:2]))
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(server.serve(sockets=[listener]))
