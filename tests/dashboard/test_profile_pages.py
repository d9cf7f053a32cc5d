"""Measurements offered to machines of like hardware, and taken from one that may lie."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra `web` is not installed")

from starlette.requests import Request

from pcp.backends import Target
from pcp.cli import main
from pcp.dashboard.profile_pages import ProfilePages
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.profile.shared import MOST_ROWS, RECEIVED

REGION = "a" * 64


def page(pages: ProfilePages, query: str) -> Any:
    request = Request({"type": "http", "query_string": query.encode(), "headers": []})
    return json.loads(asyncio.run(pages._page(request)).body)


def test_what_was_measured_here_is_offered_page_by_page(tmp_path: Path) -> None:
    database = ProfileDatabase(tmp_path / "profile.sqlite")
    here: dict[str, Any] = {"hardware": "b" * 16, "versions": "v"}
    times: dict[str, Any] = {"plain_seconds": (1.0,)}
    rows = [
        Measurement(REGION, f"k@{number}", **here, seconds=(0.5,), **times) for number in range(MOST_ROWS + 3)
    ]
    rows += [Measurement(REGION, "k@0", **here, seconds=(ratio,), **times) for ratio in (0.7, 0.9)]
    rows += [Measurement(REGION, "bad@1", **here, failure=Failure.crash)]
    database.add_all(rows)
    database.receive([("c" * 64, "k@1", 0.1)])
    pages = ProfilePages(database)
    first = page(pages, f"hardware={'b' * 16}")["rows"]
    second = page(pages, f"hardware={'b' * 16}&start={MOST_ROWS}")["rows"]
    assert (len(first), len(second)) == (MOST_ROWS, 4)
    assert first[0] == [REGION, "k@0", 0.7], "the median, and first what was measured most often"
    assert [REGION, "bad@1", "Infinity"] in second
    assert page(pages, f"hardware={RECEIVED}") == {"rows": []}, "what others say is not handed on"
    assert page(pages, "hardware=none") == {"rows": []}
    assert page(pages, "start=-1") == {"error": "start is a whole number"}


@pytest.fixture
def liar() -> Iterator[Any]:
    """A server that answers each page with what a test sets."""

    class Handler(BaseHTTPRequestHandler):
        pages: list[bytes] = []  # noqa: RUF012  (set by tests)

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(Handler.pages.pop(0))

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Handler, f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_what_is_pulled_orders_and_is_no_measurement_of_here(
    liar: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler, address = liar
    file = tmp_path / "profile.sqlite"
    rows = [[REGION, "slow@1", 1e-6], [REGION, "fast@1", "Infinity"]]
    handler.pages = [json.dumps({"rows": rows}).encode(), b'{"rows": []}']
    assert main(["profile", "pull", address, "--database", str(file)]) == 0
    assert capsys.readouterr().out.startswith("2 rows received, 2 of them new")
    database, here = ProfileDatabase(file), hardware_of(Target.of()).digest
    assert database.ranking(REGION, here, versions()) == ["slow@1", "fast@1"]
    assert database.measurements(hardware=here) == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"<html>", "no answer from http://"),
        (b"[" * 100_000, "no answer from http://"),
        (b"[]", "does not answer as a page of PCP does: there is no 'rows'"),
        (b'{"rows": 3}', "does not offer measurements"),
        (b'{"rows": [["a", "b", 1]]}', "expected 64 hexadecimal digits"),
        (json.dumps({"rows": [[REGION, "k@1", "NaN"]]}).encode(), "the ratio is nan"),
        (
            json.dumps({"rows": [[REGION, "k@1", 1.0]] * 513}).encode(),
            "it holds 513 rows; expected at most 512",
        ),
    ],
)
def test_what_is_no_page_of_measurements_changes_nothing(
    liar: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: bytes, message: str
) -> None:
    handler, address = liar
    file = tmp_path / "profile.sqlite"
    handler.pages = [json.dumps({"rows": [[REGION, "k@1", 1.0]]}).encode(), answer]
    assert main(["profile", "pull", address, "--database", str(file)]) == 2
    assert message in capsys.readouterr().err
    assert not file.exists()


def test_actions_without_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "pull"]) == 2
    assert "`pcp profile pull` needs an address; none was given" in capsys.readouterr().err
    assert main(["profile", "serve", "nowhere"]) == 2
    assert "'nowhere' is not an address; give HOST:PORT" in capsys.readouterr().err
