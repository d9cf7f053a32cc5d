"""A server that closes leaves no socket open, however far its connections have come."""

import asyncio
import contextlib
import socket
import threading

import pytest

from pcp.distributed.messages import Blob
from pcp.distributed.wire import BulkClient, WireServer
from pcp.distributed.wire.blob_files import BlobReader
from pcp.distributed.wire.sockets import BULK_PREAMBLE, CONTROL_PREAMBLE
from pcp.errors import PCPError
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


def test_a_connection_is_closed_by_the_thread_that_works_on_it_if_that_takes_longer(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """Closed beneath it, its descriptor would be -1, and each such connection an error in the log."""
    content = bytes(1 << 20)
    blob = run.store.put(content)
    run.permissions.announce([blob])
    reads, ends = threading.Event(), threading.Event()

    async def story(server: WireServer, address: str) -> None:
        usual = run.store.open

        def opened(wanted: Blob) -> BlobReader:
            reader = usual(wanted)
            read = reader.read_into

            def slowly(offset: int, space: memoryview) -> None:
                reads.set()
                ends.wait(20)
                read(offset, space)

            reader.read_into = slowly  # type: ignore[method-assign]  # for this one reader
            return reader

        run.store.open = opened  # type: ignore[method-assign]  # for this one server
        with BulkClient(address, run.worker(), maximum_attempts=1) as client:
            fetching = asyncio.create_task(asyncio.to_thread(client.fetch, blob, run.worker_store))
            await asyncio.to_thread(reads.wait, 10)
            threads = [each for each in threading.enumerate() if each.name.startswith("bulk ")]
            await server.close()
            ends.set()
            with pytest.raises(PCPError):
                await fetching
        for each in threads:
            await asyncio.to_thread(each.join, 10)

    play(story, run)
    assert "failed" not in caplog.text
    assert "negative" not in caplog.text
