"""A model that is none, on the loopback interface: it answers what a test tells it to, well or badly."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[[BaseHTTPRequestHandler, threading.Event], None]


def says(text: str) -> Behaviour:
    """An answer as a model gives it."""
    content = json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()
    return sends(content)


def sends(content: bytes, status: int = 200, **headers: str) -> Behaviour:
    """Any bytes, with any status."""

    def behave(handler: BaseHTTPRequestHandler, _: threading.Event) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return behave


def endless(handler: BaseHTTPRequestHandler, ended: threading.Event) -> None:
    """A body without end, as fast as it is read."""
    handler.send_response(200)
    handler.end_headers()
    while not ended.is_set():
        handler.wfile.write(b"[" * 65536)


def drips(handler: BaseHTTPRequestHandler, ended: threading.Event) -> None:
    """A byte now and then: no read waits for long, and the body never ends."""
    handler.send_response(200)
    handler.end_headers()
    while not ended.wait(0.05):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def silent(handler: BaseHTTPRequestHandler, ended: threading.Event) -> None:  # noqa: ARG001  (as all)
    """No answer at all."""
    ended.wait(20)


def hangs_up(handler: BaseHTTPRequestHandler, ended: threading.Event) -> None:
    """The connection is closed without a word."""


class Stub:
    """What was asked, and where."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.paths: list[str] = []


@contextlib.contextmanager
def stub(*behaviours: Behaviour) -> Iterator[Stub]:
    """A server that behaves in turn, the last way again and again."""
    ended = threading.Event()
    left: Sequence[Behaviour] = behaviours

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.asked.append(json.loads(body))
            found.keys.append(self.headers["Authorization"])
            found.paths.append(self.path)
            with contextlib.suppress(OSError):
                left[min(len(found.asked), len(left)) - 1](self, ended)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Stub(f"http://127.0.0.1:{server.server_address[1]}/v1")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield found
        finally:
            ended.set()
            server.shutdown()
            thread.join()
