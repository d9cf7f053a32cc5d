"""A package index on the loopback interface, for tests: one archive, and failures on demand."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class PackageIndex:
    """What the server offers and what it was asked.

    Arguments:
        content: bytes of the archive.
        filename: name of the archive.
        advertised: SHA-256 that the index page states; the true one when None.
    """

    def __init__(self, content: bytes, filename: str, advertised: str | None = None) -> None:
        self.content = content
        self.filename = filename
        self.advertised = advertised or hashlib.sha256(content).hexdigest()
        self.ranges: list[str | None] = []
        self.cut_after: list[int] = []
        self.statuses: list[int] = []
        self.ignore_ranges = False
        self.url = ""


@contextmanager
def serve(index: PackageIndex) -> Iterator[PackageIndex]:
    """Serve an index until the block ends; `index.url` is its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/simple/"):
                link = f"/files/{index.filename}#sha256={index.advertised}"
                body = f'<a href="{link}">{index.filename}</a>'.encode()
                self.answer(200, body, "text/html", len(body))
            else:
                self.answer_file()

        def answer_file(self) -> None:
            wanted = self.headers.get("Range")
            index.ranges.append(wanted)
            if index.statuses:
                self.answer(index.statuses.pop(0), b"", "text/plain", 0)
                return
            start = 0 if wanted is None or index.ignore_ranges else int(wanted[len("bytes=") : -1])
            body = index.content[start:]
            sent = body[: index.cut_after.pop(0)] if index.cut_after else body
            self.answer(206 if start else 200, sent, "application/octet-stream", len(body))

        def answer(self, status: int, body: bytes, kind: str, length: int) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = True

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    index.url = f"http://127.0.0.1:{server.server_port}/simple/"
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
