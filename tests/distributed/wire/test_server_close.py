"""A server that closes leaves no socket open, however far its connections have come."""

import asyncio
import contextlib
import socket

import pytest

from pcp.distributed.wire import WireServer
from pcp.distributed.wire.sockets import BULK_PREAMBLE, CONTROL_PREAMBLE
from tests.distributed.wire.test_bulk import Run, play
from tests.distributed.wire.test_bulk import run as run


@pytest.mark.parametrize("preamble", [b"", b"PC", CONTROL_PREAMBLE, BULK_PREAMBLE])
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_connection_that_is_not_served_yet_is_closed(run: Run, preamble: bytes, turns: int) -> None:
    async def story(server: WireServer, address: str) -> None:
        host, port = address.rsplit(":", 1)
        with await asyncio.to_thread(socket.create_connection, (host, int(port)), 5) as client:
            client.sendall(preamble)
            for _ in range(turns):  # of the loop, in which it is accepted, read, and begins to be served
                await asyncio.sleep(0)
            await server.close()
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""

    play(story, run)
