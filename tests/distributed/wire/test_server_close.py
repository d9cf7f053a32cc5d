"""A server that closes leaves no socket open, however far its connections have come."""

import asyncio
import socket

from pcp.distributed.wire import WireServer
from tests.distributed.wire.test_bulk import Run, play
from tests.distributed.wire.test_bulk import run as run


def test_a_connection_that_was_accepted_and_not_served_yet_is_closed(run: Run) -> None:
    async def story(server: WireServer, address: str) -> None:
        host, port = address.rsplit(":", 1)
        client = await asyncio.to_thread(socket.create_connection, (host, int(port)))
        accepted = socket.socket()
        task = asyncio.create_task(server._serve(accepted, "nobody", host))
        server._tasks[task] = accepted
        server._open[host] += 1
        task.add_done_callback(lambda done: server._served(host, done))
        await server.close()  # cancels the task before its first step
        assert accepted.fileno() == -1
        client.close()

    play(story, run)
