"""The page's addresses: what they answer, how much, and to whom; what may be asked with a token and what without."""

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra `web` is not installed")

from prometheus_client.parser import text_string_to_metric_families

from pcp.dashboard.follower import Follower
from pcp.dashboard.serving import LOOPBACK_HOSTS, TokenUnusable, read_token
from pcp.dashboard.web import FRESH_SECONDS, Dashboard
from pcp.distributed.shepherd.requests import Requests
from pcp.distributed.wire import Authority
from tests.dashboard.written import add, written_run

TOKEN = "0123456789abcdef0123"


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks an application without a network."""

    def __init__(self, folder: Any, token: str | None = None, hosts: list[str] = LOOPBACK_HOSTS) -> None:
        self.now = time.time()
        self.authority = Authority.create(folder.path / "keys")
        self.requests = Requests(folder)
        dashboard = Dashboard(
            Follower(folder), self.requests, lambda: self.authority, token, lambda: self.now
        )
        self._app = dashboard.application(hosts)

    def __call__(self, path: str, body: Any = None, method: str = "", **headers: str) -> Answer:
        sent: list[Any] = []
        given = {"host": "127.0.0.1:8080"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        path, _, query = path.partition("?")
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method or ("GET" if body is None else "POST"),
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }

        async def receive() -> Any:
            return {"type": "http.request", "body": b"" if body is None else data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(self._app(scope, receive, send))  # type: ignore[arg-type]  # a scope is any mapping
        answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], answered, b"".join(each.get("body", b"") for each in sent[1:]))


def ask(client: Client, body: Any, token: str = TOKEN) -> Answer:
    return client("/api/ask", body, authorization=f"Bearer {token}")


def test_what_the_page_shows(tmp_path: Path) -> None:
    client = Client(written_run(tmp_path / "run"))
    page = client("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert b"http" + b"s://" not in page.body, "the page needs nothing from elsewhere"
    run = client("/api/run").json
    assert (run["state"], run["step"], run["asks"]) == ("running", 50, False)
    assert run["refused_connections"] == {"CertificateRefused": 14}
    assert client("/api/curves").json["loss"] == [[50, 2.5]]
    workers = client("/api/workers?start=1&count=1").json["workers"]
    assert [worker["worker"] for worker in workers] == ["w1"]
    assert [each["worker"] for each in client("/api/workers?state=lost").json["workers"]] == ["w2"]
    wrong = client("/api/workers?start=x")
    assert (wrong.status, wrong.json) == (400, {"error": "start and count are whole numbers"})
    assert client("/elsewhere").status == 404


def test_prometheus_reads_it(tmp_path: Path) -> None:
    folder = written_run(tmp_path / "run")
    refused = {"refused_updates": {'odd "reason"\n': 3}, "refused_connections": {}}
    add(folder, time.time(), event="totals", sent=5, received=7, paused=False, **refused)
    answer = Client(folder)("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    assert samples["pcp_step",] == 50
    assert samples["pcp_up",] == 1
    assert samples["pcp_workers", "training"] == 1
    assert samples["pcp_sent_bytes_total",] == 5
    assert samples["pcp_refused_updates_total", 'odd "reason"\n'] == 3


def test_an_answer_does_not_grow_with_the_run_nor_is_it_made_for_each_who_asks(tmp_path: Path) -> None:
    folder = written_run(tmp_path / "run", workers=1)
    with folder.metrics_file.open("a") as file:
        for number in range(10_000):
            line = {"event": "worker", "worker": f"m{number}", "state": "joining", "time": time.time()}
            file.write(json.dumps(line) + "\n")
    client = Client(folder)
    assert len(client("/api/run").body) < 4000
    assert len(client("/api/workers?count=1000000").json["workers"]) == 100
    made = client("/api/run").body
    add(folder, time.time(), step=100, loss=2.0)
    assert client("/api/run").body == made
    client.now += FRESH_SECONDS
    assert client("/api/run").json["step"] == 100
    client.now -= 3600.0  # the clock of a machine may go back
    add(folder, time.time(), step=150, loss=2.0)
    assert client("/api/run").json["step"] == 150


def test_who_asks_under_another_name_is_refused(tmp_path: Path) -> None:
    client = Client(written_run(tmp_path / "run"), TOKEN)
    assert client("/api/run", host="evil.example").status == 400
    assert client("/api/ask", {"action": "pause"}, host="evil.example").status == 400
    assert client("/api/run", host="localhost:9999").status == 200


def test_nothing_can_be_asked_without_the_token(tmp_path: Path) -> None:
    folder = written_run(tmp_path / "run")
    shows = Client(written_run(tmp_path / "other"))
    assert ask(shows, {"action": "pause"}).json["error"].startswith("this page only shows")
    client = Client(folder, TOKEN)
    for answer in (
        client("/api/ask", {"action": "pause"}),
        client("/api/ask", {"action": "pause"}, authorization="Bearer "),
        client("/api/ask", {"action": "pause"}, authorization=f"Basic {TOKEN}"),
        client("/api/ask", {"action": "pause"}, cookie=f"token={TOKEN}"),
        ask(client, {"action": "pause"}, TOKEN[:-1]),
    ):
        assert (answer.status, answer.json["error"][:32]) == (401, "the token is missing or wrong; s")
    assert client("/api/ask?action=pause", method="GET", authorization=f"Bearer {TOKEN}").status == 405
    assert not client.requests.paused


def test_what_can_be_asked_with_the_token(tmp_path: Path) -> None:
    client = Client(written_run(tmp_path / "run"), TOKEN)
    assert client("/api/run").json["asks"]
    assert ask(client, {"action": "pause"}).json == {"asked": "pause", "worker": ""}
    assert client.requests.paused
    assert ask(client, {"action": "resume"}).status == 200
    assert not client.requests.paused
    assert ask(client, {"action": "stop"}).status == 200
    assert client.requests.take_stop()
    serial = client.authority.issue("w0", "worker")
    assert ask(client, {"action": "drop", "worker": "w0"}).json == {"asked": "drop", "worker": "w0"}
    assert len(client.authority.revocations.serials()) == 1, serial
    unknown = ask(client, {"action": "drop", "worker": "w9"})
    assert (unknown.status, unknown.json["error"]) == (404, "no worker of this run is called 'w9'")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "expected {"),
        (b"[" * 4000, 400, "expected {"),
        (b"[1]", 400, "expected {"),
        (b'{"action": 3}', 400, "action is one of pause, resume, stop and drop"),
        (b'{"action": "' + b"x" * 5000 + b'"}', 413, "a request has at most 4096 bytes"),
    ],
)
def test_what_is_no_request_is_refused(tmp_path: Path, body: bytes, status: int, message: str) -> None:
    answer = ask(Client(written_run(tmp_path / "run"), TOKEN), body)
    assert (answer.status, answer.json["error"][: len(message)]) == (status, message)


def test_tokens_that_would_be_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(TokenUnusable, match="make one: openssl rand -hex 32 >"):
        read_token(file, "127.0.0.1")
    file.write_text("short\n")
    with pytest.raises(TokenUnusable, match="has 5 characters; expected 16 or more"):
        read_token(file, "127.0.0.1")
    file.write_text(TOKEN + "\n")
    with pytest.raises(TokenUnusable, match=r"in the clear to 0\.0\.0\.0; listen on 127\.0\.0\.1"):
        read_token(file, "0.0.0.0")
    for host in ("127.0.0.1", "::1", "localhost"):
        assert read_token(file, host) == TOKEN
