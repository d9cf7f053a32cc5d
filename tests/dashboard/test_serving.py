"""The page's port: how many connections it holds, and for how long."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("uvicorn", reason="the extra `web` is not installed")

import uvicorn
from starlette.responses import PlainTextResponse

from pcp.dashboard import serving
from pcp.distributed.wire.sockets import listen


async def _ends(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def serve_while(monkeypatch: pytest.MonkeyPatch, script: Callable[[str, int], Awaitable[None]]) -> None:
    """Serve a page on loopback while a script runs against it."""

    async def run() -> None:
        listener = listen("127.0.0.1", 0)
        config = uvicorn.Config(
            PlainTextResponse("well"), http=serving._Bounded, lifespan="off", log_level="error"
        )
        server = uvicorn.Server(config)
        monkeypatch.setattr(server, "install_signal_handlers", lambda: None, raising=False)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        await script(*listener.getsockname()[:2])
        server.should_exit = True
        await running

    asyncio.run(asyncio.wait_for(run(), 20.0))
    assert serving._Bounded.open_now == 0


async def answer(host: str, port: int) -> bytes:
    """What an honest viewer gets."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
    found = await _ends(reader)
    writer.close()
    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
    return found


@pytest.mark.parametrize("says", [b"", b"GET / HTTP/1.1\r\nhost: he"])
def test_connections_that_ask_for_nothing_end(monkeypatch: pytest.MonkeyPatch, says: bytes) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 0.3)

    async def script(host: str, port: int) -> None:
        silent = [await asyncio.open_connection(host, port) for _ in range(3)]
        for _, writer in silent:
            writer.write(says)
        assert [await _ends(reader) for reader, _ in silent] == [b"", b"", b""]
        for _, writer in silent:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    serve_while(monkeypatch, script)


def test_a_connection_that_reads_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CONNECTION_SECONDS", 0.3)

    async def script(host: str, port: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
        assert (await _ends(reader)).endswith(b"well")
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    serve_while(monkeypatch, script)


@pytest.mark.skipif(sys.platform != "linux", reason="has one address on loopback")
def test_a_viewer_gets_in_while_one_address_holds_all_places_and_takes_each_that_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "CONNECTIONS", 8)

    async def script(host: str, port: int) -> None:
        held = set[asyncio.Task[None]]()

        async def hold() -> None:
            loop = asyncio.get_running_loop()
            while True:
                with socket.socket() as one, contextlib.suppress(ConnectionError):
                    one.setblocking(False)
                    one.bind(("127.0.0.2", 0))
                    await loop.sock_connect(one, (host, port))
                    await loop.sock_sendall(one, b"GET / HTTP/1.1\r\n")
                    await loop.sock_recv(one, 100)

        held |= {asyncio.create_task(hold()) for _ in range(12)}
        while serving._Bounded.open_now < 8:
            await asyncio.sleep(0.01)
        for _ in range(10):
            assert (await answer(host, port)).endswith(b"well")
            assert serving._Bounded.open_now <= 12, "those that make room are on their way out"
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    serve_while(monkeypatch, script)


def test_who_reaches_an_address() -> None:
    assert all(map(serving.is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(
        map(serving.is_loopback, ("0.0.0.0", "::", "192.0.2.7", socket.gethostname() + ".example"))
    )
