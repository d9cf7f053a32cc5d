"""The addresses of a server: who may ask, how much, and which adapter answers."""

import asyncio
import hmac
import logging
from collections.abc import Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pcp.errors import PCPError
from pcp.serving.apis.adapter import Adapter, anthropic_error, openai_error
from pcp.serving.apis.chat import Chat
from pcp.serving.apis.completions import Completions
from pcp.serving.apis.messages import Messages, counted
from pcp.serving.apis.responses import Responses
from pcp.serving.fields import Fields, parsed
from pcp.serving.generation import Generation
from pcp.serving.measures import Measures
from pcp.serving.model import ServedModel
from pcp.serving.refusals import (
    BodyTooLarge,
    Busy,
    Draining,
    Failed,
    InvalidField,
    KeyRefused,
    MalformedJson,
    ModelNotServed,
    NoSuchAddress,
    Refused,
    WeightsChanged,
)
from pcp.serving.streaming import EventStream, unless_left

log = logging.getLogger("pcp.serving")

LARGEST_BODY = 1 << 23
"""Bytes of a request."""
BODY_SECONDS = 30.0
"""How long a client may take to send one."""
_LONGEST_WAIT = 60
"""Seconds that a client is told to wait at most."""

_ADAPTERS: dict[str, Callable[[Fields, ServedModel], Adapter]] = {
    "/v1/completions": Completions,
    "/v1/chat/completions": Chat,
    "/v1/responses": Responses,
    "/v1/messages": Messages,
}


class Application:
    """What a server answers.

    Arguments:
        model: that answers.
        measures: told what happens.
        keys: one of which a request must bring; empty asks for none.
        most: answers at a time, those that wait for room among them; more are refused.
    """

    def __init__(
        self, model: ServedModel, measures: Measures, keys: Sequence[str] = (), most: int = 256
    ) -> None:
        self._model, self._measures, self._most = model, measures, most
        self._keys = [key.encode() for key in keys]
        self.active = 0
        self.is_draining = False

    def asgi(self, hosts: Sequence[str]) -> ASGIApp:
        """The application.

        Arguments:
            hosts: names that it may be asked for under.
        """
        routes = [
            *(Route(path, self._answering(path), methods=["POST"]) for path in _ADAPTERS),
            Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._one_model),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
        ]
        checked = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
        absent: Any = {404: self._absent, 405: self._absent}
        return Starlette(routes=routes, middleware=[checked], exception_handlers=absent)

    async def _absent(self, request: Request, _: Exception) -> Response:
        known = (
            "POST "
            + ", ".join((*_ADAPTERS, "/v1/messages/count_tokens"))
            + ", or GET /v1/models, /health, /metrics"
        )
        wanted = f"{request.method} {request.url.path[:80]}"
        return self._refusal(NoSuchAddress(f"there is no {wanted}; ask by {known}"), request.url.path)

    async def _health(self, _: Request) -> Response:
        state = "draining" if self.is_draining else "ok"
        try:
            self._model.check_weights()
        except WeightsChanged as refused:
            return JSONResponse({"status": "weights changed", "message": str(refused)}, status_code=503)
        replaced = (
            {"weights": "replaced on disk; those that were loaded are served"}
            if self._model.watch.is_replaced
            else {}
        )
        return JSONResponse({"status": state} | replaced, status_code=503 if self.is_draining else 200)

    async def _metrics(self, _: Request) -> Response:
        return Response(
            self._measures.exposition(), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _models(self, request: Request) -> Response:
        return self._guarded(request, lambda: {"object": "list", "data": [self._described()]} | self._pages())

    async def _one_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        return self._guarded(request, lambda: self._described_as(name))

    def _described(self) -> dict[str, Any]:
        """The model in the forms of both vendors at once, whose names do not collide."""
        model = self._model
        return {
            "id": model.name,
            "object": "model",
            "type": "model",
            "display_name": model.name,
            "created": model.created,
            "created_at": _date(model.created),
            "owned_by": "pcp",
            "max_model_len": model.context,
        }

    def _described_as(self, name: str) -> dict[str, Any]:
        if name != self._model.name:
            raise ModelNotServed(
                f"this server has no model {name[:80]!r}; it serves {self._model.name!r}", "model"
            )
        return self._described()

    def _pages(self) -> dict[str, Any]:
        return {"has_more": False, "first_id": self._model.name, "last_id": self._model.name}

    async def _count_tokens(self, request: Request) -> Response:
        try:
            self._check_key(request)
            fields = parsed(await self._body(request))
            return JSONResponse(await asyncio.to_thread(counted, fields, self._model))
        except Refused as refused:
            return self._refusal(refused, request.url.path)

    def _guarded(self, request: Request, make: Callable[[], dict[str, Any]]) -> Response:
        try:
            self._check_key(request)
            return JSONResponse(make())
        except Refused as refused:
            return self._refusal(refused, request.url.path)

    def _answering(self, path: str) -> Callable[[Request], Any]:
        async def answer(request: Request) -> ASGIApp:
            try:
                return await self._answer(request, _ADAPTERS[path])
            except Refused as refused:
                return self._refusal(refused, path)
            except ClientDisconnect:
                return _Nothing()
            except PCPError as error:
                return self._refusal(InvalidField(str(error)), path)
            except RecursionError:
                return self._refusal(MalformedJson("the body is nested too deeply; send a flatter one"), path)
            except Exception:
                log.exception("a request to %s failed", path)
                return self._refusal(Failed("the server made a mistake; its log says which"), path)

        return answer

    async def _answer(
        self, request: Request, adapter_of: Callable[[Fields, ServedModel], Adapter]
    ) -> ASGIApp:
        self._check_key(request)
        self._check_room()
        self._model.check_weights()
        self.active += 1
        is_handed_on = False
        generation = None
        try:
            fields = parsed(await self._body(request))
            adapter = await asyncio.to_thread(adapter_of, fields, self._model)
            generation = Generation(self._model, adapter.ask, self._measures, self._retry_after())
            if adapter.stream:
                is_handed_on = True
                return EventStream(adapter, generation, self._done)
            answers = await unless_left(generation.whole(), request.receive)
            if answers is None:
                return _Nothing()
            return JSONResponse(adapter.whole(answers, generation.usage))
        finally:
            if not is_handed_on:
                if generation is not None:
                    generation.cancel()
                self._done()

    def _done(self) -> None:
        self.active -= 1

    def _check_key(self, request: Request) -> None:
        if not self._keys:
            return
        headers = request.headers
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        # All are compared, and in one time each, so that no answer comes earlier for a key that is nearly right.
        if not sum(hmac.compare_digest(given.encode(), key) for key in self._keys):
            what = "no key" if not given else "a key that this server does not know"
            raise KeyRefused(
                f"the request has {what}; send one as `Authorization: Bearer KEY` or `x-api-key: KEY`"
            )

    def _check_room(self) -> None:
        if self.is_draining:
            raise Draining(
                "the server ends and takes no more requests; ask another, or later", retry_after=10
            )
        if self.active >= self._most:
            seconds = self._retry_after()
            raise Busy(
                f"{self.active} requests are answered or wait, and this server takes {self._most}; try again in {seconds} s",
                retry_after=seconds,
            )

    def _retry_after(self) -> int:
        return max(1, min(_LONGEST_WAIT, round(self._measures.seconds_of_an_answer)))

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    body += part
                    if len(body) > LARGEST_BODY:
                        raise BodyTooLarge(
                            f"the body has more than {LARGEST_BODY:,} bytes; send a smaller request"
                        )
        except TimeoutError:
            raise InvalidField(f"the body did not come within {BODY_SECONDS:g} s; send it at once") from None
        return bytes(body)

    def _refusal(self, refused: Refused, path: str) -> Response:
        self._measures.refused(refused.status)
        form = anthropic_error if path.startswith("/v1/messages") else openai_error
        headers = {} if refused.retry_after is None else {"retry-after": str(refused.retry_after)}
        return JSONResponse(form(refused), status_code=refused.status, headers=headers)


class _Nothing:
    """An answer to nobody."""

    async def __call__(self, _scope: Scope, _receive: Receive, _send: Send) -> None:
        return


def _date(seconds: int) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")
