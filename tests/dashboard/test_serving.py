"""The page's port: how many connections it holds, and for how long."""

import asyncio
import socket

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


def test_connections_that_say_nothing_are_few_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CONNECTIONS", 3)
    monkeypatch.setattr(serving, "CONNECTION_SECONDS", 0.3)

    async def script() -> None:
        listener = listen("127.0.0.1", 0)
        host, port = listener.getsockname()[:2]
        config = uvicorn.Config(
            PlainTextResponse("well"), http=serving._Bounded, lifespan="off", log_level="error"
        )
        server = uvicorn.Server(config)
        monkeypatch.setattr(server, "install_signal_handlers", lambda: None, raising=False)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:
            await asyncio.sleep(0.01)
        silent = [await asyncio.open_connection(host, port) for _ in range(3)]
        while serving._Bounded.open_now < 3:
            await asyncio.sleep(0.01)
        one_more = await asyncio.open_connection(host, port)
        assert await _ends(one_more[0]) == b"", "there is no place"
        assert serving._Bounded.open_now == 3
        assert [await _ends(reader) for reader, _ in silent] == [b"", b"", b""]
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
        assert (await _ends(reader)).endswith(b"well"), "those that said nothing have left their places"
        for _, each in [*silent, one_more, (reader, writer)]:
            each.close()
            await asyncio.gather(each.wait_closed(), return_exceptions=True)
        server.should_exit = True
        await running

    asyncio.run(asyncio.wait_for(script(), 20.0))
    assert serving._Bounded.open_now == 0


def test_who_reaches_an_address() -> None:
    assert all(map(serving.is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(
        map(serving.is_loopback, ("0.0.0.0", "::", "192.0.2.7", socket.gethostname() + ".example"))
    )
