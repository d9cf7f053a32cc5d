"""An answer in events: sent as they come, given up when the client leaves or reads nothing."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.types import Receive, Scope, Send

from pcp.serving.apis.adapter import Adapter
from pcp.serving.generation import Generation
from pcp.serving.refusals import Failed, Refused

log = logging.getLogger("pcp.serving")

T = TypeVar("T")

STALLED_SECONDS = 60.0
"""How long a client may read nothing of what is sent to it."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


async def until_left(receive: Receive) -> None:
    """Wait until the client has left; what else it sends is not read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_left(work: Awaitable[T], receive: Receive) -> T | None:
    """The result of some work; None, and the work is given up, if the client leaves before."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(until_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


class EventStream:
    """The events of an adapter, as an ASGI application.

    Arguments:
        adapter: which writes them.
        generation: whose answers they tell; cancelled in the end.
        done: called when all is over.
    """

    def __init__(self, adapter: Adapter, generation: Generation, done: Callable[[], None]) -> None:
        self._adapter, self._generation, self._done = adapter, generation, done

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_left(self._send_all(send), receive)
        finally:
            self._generation.cancel()
            self._done()

    async def _send_all(self, send: Send) -> None:
        async def told(frames: bytes, more: bool = True) -> None:
            async with asyncio.timeout(STALLED_SECONDS):
                await send({"type": "http.response.body", "body": frames, "more_body": more})

        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await told(b"".join(self._adapter.opening()))
        frames = b""
        try:
            async for each in self._generation.told():
                frames += b"".join(self._adapter.frames(each))
                if frames and not self._generation.has_more:  # what came meanwhile goes in one piece
                    await told(frames)
                    frames = b""
            frames += b"".join(self._adapter.closing(self._generation.answers, self._generation.usage))
        except Refused as refused:
            frames += b"".join(self._adapter.failed(refused))
        except (OSError, TimeoutError):  # the client reads nothing, or has left
            raise
        except Exception:
            log.exception("a stream failed")
            frames += b"".join(self._adapter.failed(Failed("the server made a mistake; its log says which")))
        await told(frames, more=False)
