"""Before its model is ready, a server says that it starts; then another answers on the same socket."""

import json
import socket
import urllib.error
import urllib.request

from pcp.distributed.wire.sockets import listen
from pcp.serving.starting import RETRY_SECONDS, Waiting, answering
from tests.serving.made_up import WAIT


def refused(address: str, path: str) -> tuple[int, str | None, dict[str, object]]:
    try:
        urllib.request.urlopen(f"http://{address}{path}", timeout=WAIT)
    except urllib.error.HTTPError as error:
        return error.code, error.headers["retry-after"], json.loads(error.read())
    raise AssertionError(f"{path} was answered")


def test_a_server_that_starts_says_so_and_leaves_its_socket_to_the_next() -> None:
    listener, waiting = listen("127.0.0.1", 0), Waiting()
    host, port = listener.getsockname()[:2]
    address = f"{host}:{port}"
    with answering(listener, waiting):
        waiting.doing = "compiling, 2 of 8 programs"
        again = str(RETRY_SECONDS)
        assert refused(address, "/health") == (
            503,
            again,
            {"status": "starting", "message": "compiling, 2 of 8 programs"},
        )
        for path, place in (("/v1/models", "code"), ("/v1/messages", "type")):
            status, after, said = refused(address, path)
            error = said["error"]
            assert isinstance(error, dict)
            assert (status, after, error[place]) == (
                503,
                again,
                "starting" if place == "code" else "api_error",
            )
            assert "the server starts: compiling, 2 of 8 programs; try again in 5 s" in error["message"]
    waits = socket.create_connection((host, port), WAIT)  # nobody answers now, and the socket still listens
    listener.setblocking(True)
    listener.settimeout(WAIT)
    accepted, _ = listener.accept()
    for each in (accepted, waits, listener):
        each.close()
