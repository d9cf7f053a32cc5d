"""Clients that leave, read nothing, ask for nothing; servers that end; weights that change under them."""

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")

from pcp.serving import server as server_module
from pcp.serving import streaming, weights_watch
from pcp.serving.weights_watch import WeightsWatch
from tests.serving.made_up import WAIT, MadeUpEngine, Running, events_in, serving, wait_for

BODY: dict[str, Any] = {"prompt": "x", "max_tokens": 400}


def sent(server: Running, body: dict[str, Any]) -> socket.socket:
    """A connection on which a completion was asked for, and nothing read."""
    raw = json.dumps(body).encode()
    connection = socket.create_connection((server.host, server.port), timeout=WAIT)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(raw)}\r\n\r\n"
    connection.sendall(head.encode() + raw)
    return connection


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_leaves_is_cancelled_before_its_first_token(stream: bool) -> None:
    with serving(MadeUpEngine("well")) as server:
        server.engine.gate.clear()  # it waits, as in a queue
        connection = sent(server, BODY | {"stream": stream, "n": 2})
        wait_for(lambda: len(server.engine.asked) == 2)
        assert server.application.active == 1
        connection.close()
        wait_for(lambda: len(server.engine.cancelled) == 2)
        wait_for(lambda: server.application.active == 0)
        assert b'pcp:clients_left_total{engine="0",model_name="tiny"} 2.0' in server.ask("/metrics")[2]
        server.engine.gate.set()
        assert server.ask("/v1/completions", BODY)[0] == 200


def test_a_client_that_leaves_in_the_middle_of_a_stream_is_cancelled() -> None:
    with serving(MadeUpEngine()) as server:
        connection = sent(server, BODY | {"stream": True, "prompt": "y"})
        assert connection.recv(10).startswith(b"HTTP/1.1 ")
        server.engine.gate.clear()
        connection.close()
        wait_for(lambda: server.engine.cancelled == server.engine.streams or not server.application.active)
        assert server.application.active == 0


def test_a_client_that_reads_nothing_is_given_up_and_holds_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STALLED_SECONDS", 0.3)
    with serving(MadeUpEngine("x" * 400)) as server:
        raw = json.dumps(BODY | {"stream": True, "n": 4, "prompt": ["x"] * 16}).encode()
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((server.host, server.port))
        head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(raw)}\r\n\r\n"
        connection.sendall(head.encode() + raw)
        wait_for(lambda: server.engine.asked)
        wait_for(lambda: server.application.active == 0)
        connection.close()
        assert server.ask("/health")[0] == 200


def test_ten_thousand_idle_connections_leave_room_for_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CONNECTIONS", 64)
    with serving(MadeUpEngine("well")) as server:
        held = []
        for number in range(10_000):
            connection = socket.create_connection((server.host, server.port), timeout=WAIT)
            connection.sendall((b"", b"GET /health HT")[number % 2])
            held.append(connection)
            if len(held) > 100:  # ours; the server closes its own
                held.pop(0).close()
            if number % 2_500 == 0:
                assert server.ask("/v1/completions", BODY)[2]["choices"][0]["text"] == "well"
        assert server.ask("/v1/completions", BODY)[2]["choices"][0]["text"] == "well"
        assert len(server.server.server_state.connections) <= 65
        for connection in held:
            connection.close()


def test_a_connection_that_is_busy_is_not_closed_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CONNECTIONS", 2)
    with serving(MadeUpEngine("well")) as server:
        server.engine.gate.clear()
        busy = [sent(server, BODY | {"stream": True}) for _ in range(2)]
        wait_for(lambda: len(server.engine.asked) == 2)
        with pytest.raises((OSError, http.client.HTTPException)):
            server.ask("/health")
        server.engine.gate.set()
        for connection in busy:
            text = b""
            while b"[DONE]" not in text:
                text += connection.recv(65536)
            connection.close()


def test_a_connection_that_asks_for_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "REQUEST_SECONDS", 0.2)
    with (
        serving(MadeUpEngine("well")) as server,
        socket.create_connection((server.host, server.port)) as silent,
    ):
        silent.settimeout(WAIT)
        with contextlib.suppress(ConnectionError):
            assert silent.recv(1) == b""


def test_a_server_that_ends_finishes_what_it_has_begun() -> None:
    with serving(MadeUpEngine("well")) as server:
        server.engine.gate.clear()
        connection = http.client.HTTPConnection(server.host, server.port, timeout=WAIT)
        connection.request("POST", "/v1/completions", json.dumps(BODY | {"stream": True}).encode())
        wait_for(lambda: server.engine.asked)
        server.server.drain()
        wait_for(lambda: _refuses(server))
        server.engine.gate.set()
        events = list(events_in(connection.getresponse().read().decode()))
        connection.close()
        assert "".join(each["choices"][0]["text"] for _, each in events[:-1]) == "well"


def test_a_server_that_ends_gives_up_what_takes_too_long_and_says_so() -> None:
    with serving(MadeUpEngine("well"), drain_seconds=0.3) as server:
        server.engine.gate.clear()
        connection = http.client.HTTPConnection(server.host, server.port, timeout=WAIT)
        connection.request("POST", "/v1/completions", json.dumps(BODY | {"stream": True}).encode())
        wait_for(lambda: server.engine.asked)
        server.server.drain()
        events = list(events_in(connection.getresponse().read().decode()))
        connection.close()
    assert (
        "the server ended before this answer did; ask another, or later" in events[-2][1]["error"]["message"]
    )
    assert events[-1][1] == "[DONE]"


def test_an_open_connection_of_a_server_that_ends_is_told_so() -> None:
    with serving(MadeUpEngine("well")) as server:
        server.application.is_draining = True
        status, headers, answer = server.ask("/v1/completions", BODY)
        assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "draining", "10")
        assert server.ask("/health")[2]["status"] == "draining"


def test_weights_that_are_written_to_are_noticed_and_those_that_are_replaced_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_watch, "LOOK_SECONDS", 0.0)
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    with serving(MadeUpEngine("well"), watch=WeightsWatch([file])) as server:
        assert server.ask("/v1/completions", BODY)[0] == 200
        other = tmp_path / "new"
        other.write_bytes(b"other weights")
        os.replace(other, file)
        assert server.ask("/v1/completions", BODY)[0] == 200
        assert server.ask("/health")[2]["weights"] == "replaced on disk; those that were loaded are served"
    with serving(MadeUpEngine("well"), watch=WeightsWatch([file])) as server:
        with file.open("r+b") as opened:
            opened.write(b"W")
        os.utime(file, (1, 1))
        status, _, answer = server.ask("/v1/completions", BODY)
        assert (status, answer["error"]["code"]) == (503, "weights_changed")
        assert f"{file} was written to while this server had it mapped" in answer["error"]["message"]
        assert server.ask("/health")[0] == 503


def test_many_streams_at_once_each_have_their_own_text() -> None:
    found: dict[int, str] = {}
    with serving(MadeUpEngine(), most=100) as server:

        def ask(number: int) -> None:
            body = {"prompt": f"p{number}", "max_tokens": 30, "seed": number, "stream": True}
            events = server.events("/v1/completions", body)
            found[number] = "".join(each["choices"][0]["text"] for _, each in events[:-1])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        alone = server.ask("/v1/completions", {"prompt": "p7", "max_tokens": 30, "seed": 7})
    assert len(set(found.values())) == 40
    assert found[7] == alone[2]["choices"][0]["text"]


def _refuses(server: Running) -> bool:
    try:
        socket.create_connection((server.host, server.port), timeout=0.2).close()
    except OSError:
        return True
    time.sleep(0.02)
    return False
