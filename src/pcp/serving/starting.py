"""What a server answers before its model is ready: that it starts, and what it does meanwhile."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pcp.serving.apis.adapter import anthropic_error, openai_error
from pcp.serving.refusals import Starting

RETRY_SECONDS = 5
_LEAVE_SECONDS = 1


class Waiting:
    """Answers 503 to everything.

    Attributes:
        doing: what the server does, for people.
    """

    def __init__(self) -> None:
        self.doing = "reading the model"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = Request(scope).url.path
        refused = Starting(f"the server starts: {self.doing}; try again in {RETRY_SECONDS} s")
        form = anthropic_error if path.startswith("/v1/messages") else openai_error
        content = {"status": "starting", "message": self.doing} if path == "/health" else form(refused)
        answer = JSONResponse(
            content, refused.status, headers={"retry-after": str(RETRY_SECONDS), "connection": "close"}
        )
        await answer(scope, receive, send)


@contextlib.contextmanager
def answering(listener: socket.socket, application: ASGIApp) -> Iterator[None]:
    """Answer on a listening socket from a thread of its own, until the block ends; the socket stays open.

    The model is read and compiled in the thread that calls, where Ctrl-C ends it.
    """
    config = uvicorn.Config(
        application,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_LEAVE_SECONDS,
    )
    server, own = uvicorn.Server(config), listener.dup()
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[own])), name="pcp starting", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
