"""The page of a run: one embedded file, its data as JSON, and, for who has the token, what an operator may ask of the Shepherd.

Whatever comes from the network is bounded: the size of answers does not grow with the run, the answer about the run is made
once a second however many ask, and requests are small.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pcp.dashboard.follower import Follower
from pcp.dashboard.prometheus import exposition
from pcp.distributed.shepherd.requests import Requests
from pcp.distributed.wire import Authority
from pcp.errors import PCPError
from pcp.training.display.fleet import Fleet, Row, state_of
from pcp.training.display.metrics import to_json_line

FRESH_SECONDS = 1.0
"""How old an answer about the run may be."""
MOST_WORKERS = 100
"""In one answer."""
MOST_BYTES = 4096
"""Of a request's body."""

_PAGE = resources.files("pcp.dashboard").joinpath("page.html").read_text(encoding="utf-8")


def _digest_of(tag: str) -> str:
    """How a content security policy names the one script or style of the page: no other is run or applied."""
    text = _PAGE.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_HEADERS = {
    "content-security-policy": f"default-src 'none'; script-src {_digest_of('script')}; style-src {_digest_of('style')}; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Dashboard:
    """What the page and its addresses answer.

    Arguments:
        follower: of the run.
        requests: how the Shepherd is asked for something.
        authority: of the run; called when a worker is dropped.
        token: who sends it may ask for something; None where nobody may.
        now: gives the time of records.
    """

    def __init__(
        self,
        follower: Follower,
        requests: Requests,
        authority: Callable[[], Authority],
        token: str | None,
        now: Callable[[], float],
    ) -> None:
        self._follower, self._requests, self._authority = follower, requests, authority
        self._token, self._now = token, now
        self._made: dict[str, tuple[float, bytes]] = {}
        self._read_at = -FRESH_SECONDS

    def application(self, hosts: list[str]) -> ASGIApp:
        """The page as an ASGI application.

        Arguments:
            hosts: names that it may be asked for under; others are refused, so that no page from elsewhere reaches it by a
                name of its own that leads here.
        """
        routes = [
            Route("/", self._index),
            Route("/api/run", self._run),
            Route("/api/curves", self._curves),
            Route("/api/workers", self._workers),
            Route("/metrics", self._metrics),
            Route("/api/ask", self._ask, methods=["POST"]),
        ]
        hosts_checked = Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
        return Starlette(routes=routes, middleware=[Middleware(_WithHeaders), hosts_checked])

    async def _index(self, _: Request) -> Response:
        return Response(_PAGE, media_type="text/html")

    async def _run(self, _: Request) -> Response:
        return self._kept("run", lambda fleet: self._summary(fleet))

    async def _curves(self, _: Request) -> Response:
        return self._kept("curves", Fleet.curves)

    async def _workers(self, request: Request) -> Response:
        try:
            start = max(0, int(request.query_params.get("start", "0")))
            count = min(MOST_WORKERS, max(1, int(request.query_params.get("count", "25"))))
        except ValueError:
            return _refused(400, "start and count are whole numbers")
        fleet, now = self._fleet(), self._now()
        state = request.query_params.get("state", "")
        return _json({"now": now, "start": start, "workers": list(fleet.rows(now, start, count, state))})

    async def _metrics(self, _: Request) -> Response:
        text = exposition(self._fleet().summary(self._now()))
        return Response(text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _ask(self, request: Request) -> Response:
        """Do what is asked by somebody with the token, which no other page can make a browser send."""
        if self._token is None:
            return _refused(403, "this page only shows; start it with --token-file FILE to ask for something")
        authorization = request.headers.get("authorization", "")
        if not hmac.compare_digest(authorization.encode(), f"Bearer {self._token}".encode()):
            return _refused(401, "the token is missing or wrong; send it as `Authorization: Bearer TOKEN`")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                return _refused(413, f"a request has at most {MOST_BYTES} bytes")
        try:
            wanted = json.loads(body)
            action, worker = wanted["action"], str(wanted.get("worker", ""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return _refused(400, 'expected {"action": "pause"}, for example')
        return self._perform(str(action), worker)

    def _perform(self, action: str, worker: str) -> Response:
        try:
            match action:
                case "pause":
                    self._requests.pause()
                case "resume":
                    self._requests.resume()
                case "stop":
                    self._requests.stop()
                case "drop":
                    if worker not in self._fleet().workers:
                        return _refused(404, f"no worker of this run is called {worker[:40]!r}")
                    self._authority().revoke(worker)
                case _:
                    return _refused(400, "action is one of pause, resume, stop and drop")
        except (PCPError, OSError) as error:
            return _refused(500, str(error))
        return _json({"asked": action, "worker": worker})

    def _summary(self, fleet: Fleet) -> Row:
        summary = fleet.summary(self._now())
        return summary | {"state": state_of(summary), "now": self._now(), "asks": self._token is not None}

    def _fleet(self) -> Fleet:
        if abs(self._now() - self._read_at) < FRESH_SECONDS:
            return self._follower.fleet
        self._read_at = self._now()
        return self._follower.update()

    def _kept(self, name: str, make: Callable[[Fleet], Row]) -> Response:
        kept_at, line = self._made.get(name, (-FRESH_SECONDS, b""))
        if not line or abs(self._now() - kept_at) >= FRESH_SECONDS:
            line = to_json_line(make(self._fleet())).encode()
            self._made[name] = (self._now(), line)
        return Response(line, media_type="application/json")


class _WithHeaders:
    """Adds to every answer what keeps a browser from doing more with it than was meant."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in _HEADERS.items()),
                ]
            await send(message)

        await self._app(scope, receive, sending)


def _json(content: dict[str, Any]) -> Response:
    return Response(to_json_line(content), media_type="application/json")


def _refused(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status_code=status)
