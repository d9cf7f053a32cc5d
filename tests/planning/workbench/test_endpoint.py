"""An endpoint is asked within limits, whatever it does."""

import socket
import threading
import time

import pytest
from tests.planning.workbench.stub_endpoint import (
    Behaviour,
    drips,
    endless,
    hangs_up,
    says,
    sends,
    silent,
    stub,
)

from pcp.planning.workbench import Endpoint, EndpointFailed, InvalidEndpoint

ASKED = [{"role": "user", "content": "a kernel, please"}]


def test_what_is_asked_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCP_ENDPOINT_KEY", "sesame")
    with stub(says("here: 🧮")) as server:
        assert Endpoint.of_environment(f"{server.url}/", "small").ask(ASKED, 5.0) == "here: 🧮"
        monkeypatch.delenv("PCP_ENDPOINT_KEY")
        Endpoint.of_environment(server.url, "small").ask(ASKED, 5.0)
    assert server.asked == [{"model": "small", "messages": ASKED}] * 2
    assert server.keys == ["Bearer sesame", None]
    assert server.paths == ["/v1/chat/completions"] * 2


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        (sends(b"out of\x07 order", 500), "answered with status 500 Internal Server Error: out of order"),
        (sends(b"", 302, Location="http://127.0.0.1:1/"), "answered with status 302 Found"),
        (sends(b"<html>" * 1000), "answered '<html><html>.*expected JSON with choices"),
        (sends(b'{"choices": []}'), r"expected JSON with choices\[0\].message.content"),
        (sends(b'{"choices": [{"message": {"content": 7}}]}'), "expected JSON with choices"),
        (sends(b"[" * 100_000), "expected JSON with choices"),
        (endless, "the answer of http://127.0.0.1:.*/v1 has more than 200000 bytes"),
        (drips, r"/v1 did not answer within 0\.5 s"),
        (silent, r"/v1 did not answer within 0\.5 s"),
        (hangs_up, "/v1 does not answer: Remote end closed connection without response"),
    ],
)
def test_a_bad_answer_is_a_typed_error_within_the_time(behaviour: Behaviour, message: str) -> None:
    with stub(behaviour) as server:
        began = time.monotonic()
        with pytest.raises(EndpointFailed, match=message):
            Endpoint(server.url, most_bytes=200_000).ask(ASKED, 0.5)
        assert time.monotonic() - began < 3.0


def test_an_answer_that_is_not_whole_in_time_is_late_whoever_sees_it_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Never(threading.Timer):
        """One that has not fired yet when the reader looks at the clock."""

        def run(self) -> None:
            """Not at all."""

    monkeypatch.setattr(threading, "Timer", Never)
    with stub(drips) as server, pytest.raises(EndpointFailed, match=r"/v1 did not answer within 0\.2 s"):
        Endpoint(server.url).ask(ASKED, 0.2)


def test_nobody_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(EndpointFailed, match=f"{url} does not answer: .*refused"):
            Endpoint(url).ask(ASKED, 2.0)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://x/v1",
        "http:///v1",
        "http://x:port/v1",
        "http://u:p@x/v1",
        "http://x/v1?a=b",
        "http://a..b/v1",
        f"http://{'x' * 300}/v1",
        "http://x/v1é",
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(
        InvalidEndpoint, match=r"is no address; expected one such as http://127\.0\.0\.1:8000/v1"
    ):
        Endpoint(url)


@pytest.mark.parametrize("key", ["sesame\n", "sésame", "a\x00"])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(
        InvalidEndpoint, match="PCP_ENDPOINT_KEY holds something that no header can"
    ) as refused:
        Endpoint("https://models.example/v1", key=key)
    assert key not in str(refused.value)


def test_halves_of_characters_are_mended() -> None:
    with stub(sends(b'{"choices": [{"message": {"content": "a \\ud800 kernel"}}]}')) as server:
        assert Endpoint(server.url).ask(ASKED, 5.0) == "a ? kernel"


def test_a_key_does_not_travel_unencrypted() -> None:
    with pytest.raises(
        InvalidEndpoint, match=r"PCP_ENDPOINT_KEY is set, .* is another machine without encryption"
    ):
        Endpoint("http://models.example/v1", key="sesame")
    Endpoint("https://models.example/v1", key="sesame")
    Endpoint("http://models.example/v1")
