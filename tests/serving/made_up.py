"""A made-up engine, a server around it on loopback, and a client of the standard library."""

import contextlib
import hashlib
import http.client
import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.distributed.wire.sockets import listen
from pcp.inference.habits import Habits
from pcp.inference.request import Counts, EngineClosed, EngineFailed, EngineFull, Piece, Request, Stream
from pcp.serving.application import Application
from pcp.serving.measures import Measures
from pcp.serving.model import ServedModel
from pcp.serving.server import Server
from pcp.serving.weights_watch import WeightsWatch
from pcp.training.data.chat.template import Written
from pcp.training.data.tokenizer import ByteTokenizer

CONTEXT = 512
END = 0
WAIT = 20.0
"""Seconds for whatever a test waits for; it never takes them where nothing is wrong."""

TEMPLATE = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


class MadeUpEngine:
    """Answers what it is told to answer, byte by byte, and else bytes that depend on the prompt.

    Arguments:
        script: what it answers, one for each request in turn, the last again and again; ends with the end token.
        most: requests at a time.
    """

    def __init__(self, *script: str | BaseException, most: int = 1000) -> None:
        self.script, self.most = list(script), most
        self.asked: list[Request] = []
        self.streams: list[Stream] = []
        self.cancelled: list[Stream] = []
        self.gate = threading.Event()
        self.gate.set()
        self._closed = False
        self._finished: dict[Any, int] = {}
        self._running = 0
        self._prompt = self._generated = 0

    def submit(self, request: Request) -> Stream:
        if self._closed:
            raise EngineClosed("closed")
        if self._running >= self.most:
            raise EngineFull(f"{self._running} requests wait already")
        answer = self.script[min(len(self.asked), len(self.script) - 1)] if self.script else None
        if isinstance(answer, MemoryError):
            self.asked.append(request)
            raise answer
        self.asked.append(request)
        stream = Stream(self.cancelled.append)
        self.streams.append(stream)
        self._running += 1
        self._prompt += len(request.prompt)
        threading.Thread(target=self._answer, args=(stream, request, answer), daemon=True).start()
        return stream

    def close(self, drain: bool = True) -> None:
        self._closed = True
        if not drain:
            self.cancelled += self.streams
            self.gate.set()

    def counts(self) -> Counts:
        return Counts(
            running=self._running, waiting=0, pages=100, pages_used=25, prefix_queries=10, prefix_hits=4, preemptions=1,
            prompt_tokens=self._prompt, generated_tokens=self._generated, finished=dict(self._finished), refused=0, steps=1,
            seconds_waiting=0.5, seconds_prefill=0.25, seconds_decode=1.0, seconds_first=0.75, seconds_whole=2.0,
        )  # fmt: skip

    def _answer(self, stream: Stream, request: Request, answer: str | BaseException | None) -> None:
        told, finish = b"", "length"
        held = b""
        for token in self._tokens(request, answer):
            while not self.gate.wait(0.01):
                if stream in self.cancelled:
                    break
            if stream in self.cancelled:
                finish = "cancelled"
                break
            if isinstance(answer, BaseException):
                stream.error = EngineFailed("a step failed")
                stream.error.__cause__ = answer
                finish = "failed"
                break
            if token == END and not request.ignore_end:
                finish = "stop"
                break
            told += bytes([token])
            stops = [place for stop in request.stop if (place := told.find(stop.encode())) >= 0]
            if stops:
                held, finish = b"", "stop"
                stream.put(Piece(token, told[self._said(stream) : min(stops)].decode(), finish="stop"))
                break
            held += bytes([token])
            text = self._certain(held, request.stop)
            held = held[len(text) :]
            self._tell(stream, request, token, text.decode())
        else:
            finish = "length"
        self._running -= 1
        self._finished[finish] = self._finished.get(finish, 0) + 1
        stopped = finish == "stop" and request.stop and any(s.encode() in told for s in request.stop)
        if not stopped:
            last, logprob = (END, -0.5) if finish == "stop" else (None, None)
            stream.put(Piece(last, held.decode("utf-8", "replace"), logprob, finish=finish))  # type: ignore[arg-type]  # one of them

    def _tokens(self, request: Request, answer: str | BaseException | None) -> Iterator[int]:
        if isinstance(answer, str):
            yield from [*answer.encode(), END][: request.count]
            return
        for place in range(request.count):
            raw = hashlib.sha256(f"{tuple(request.prompt)} {request.sampling.seed} {place}".encode()).digest()
            token = 97 + raw[0] % 26
            if request.mask is not None:
                token = int(np.flatnonzero(request.mask([]))[0])
            yield token

    def _said(self, stream: Stream) -> int:
        return getattr(self, "_lengths", {}).get(id(stream), 0)

    def _tell(self, stream: Stream, request: Request, token: int, text: str) -> None:
        lengths: dict[int, int] = self.__dict__.setdefault("_lengths", {})
        lengths[id(stream)] = lengths.get(id(stream), 0) + len(text.encode())
        self._generated += 1
        top = () if not request.logprobs else ((token, -0.5), (98, -2.0))[: request.logprobs]
        stream.put(Piece(token, text, None if request.logprobs is None else -0.5, top))

    @staticmethod
    def _certain(held: bytes, stops: Sequence[str]) -> bytes:
        """What is whole characters, and no beginning of a stop text."""
        size = len(held)
        while size and any(
            stop.encode().startswith(held[begin:size])
            for stop in stops
            for begin in range(max(0, size - len(stop.encode())), size)
            if held[begin:size]
        ):
            size -= 1
        while size:
            with contextlib.suppress(UnicodeDecodeError):
                held[:size].decode()
                break
            size -= 1
        return held[:size]


@dataclass
class Running:
    """A server that runs, and what it is made of."""

    host: str
    port: int
    engine: MadeUpEngine
    model: ServedModel
    application: Application
    server: Server

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def ask(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        """Status, headers and JSON of an answer; GET without a body."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT)
        try:
            raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            connection.request("GET" if body is None else "POST", path, raw, headers or {})
            answer = connection.getresponse()
            text = answer.read()
            is_json = "json" in (answer.getheader("content-type") or "")
            return (
                answer.status,
                {k.lower(): v for k, v in answer.getheaders()},
                json.loads(text) if is_json else text,
            )
        finally:
            connection.close()

    def events(self, path: str, body: Any) -> list[tuple[str, Any]]:
        """Names and contents of all events of a stream."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT)
        try:
            connection.request("POST", path, json.dumps(body).encode())
            answer = connection.getresponse()
            assert answer.getheader("content-type") == "text/event-stream; charset=utf-8", answer.read()
            return list(events_in(answer.read().decode("utf-8")))
        finally:
            connection.close()


def events_in(text: str) -> Iterator[tuple[str, Any]]:
    """Names and contents of events."""
    assert text.endswith("\n\n")
    for block in text[:-2].split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        yield (
            lines.get("event", ""),
            lines["data"] if lines["data"] == "[DONE]" else json.loads(lines["data"]),
        )


@contextlib.contextmanager
def serving(
    engine: MadeUpEngine,
    *,
    template: str | None = TEMPLATE,
    keys: Sequence[str] = (),
    most: int = 256,
    watch: WeightsWatch | None = None,
    drain_seconds: float = 5.0,
    habits: Habits | None = None,
) -> Iterator[Running]:
    """A server on loopback, around a made-up engine, whose tokens are bytes."""
    written = None if template is None else Written(template, {}, "chat_template.jinja")
    model = ServedModel(
        "tiny",
        engine,
        ByteTokenizer(),
        CONTEXT,
        256,
        habits or Habits((END,)),
        written,
        watch=watch or WeightsWatch(()),
    )
    application = Application(model, Measures("tiny", engine.counts), keys, most)
    server = Server(application, model, ["127.0.0.1", "localhost"], drain_seconds)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # older ones have it
    listener = listen("127.0.0.1", 0)
    host, port = listener.getsockname()[:2]
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield Running(host, port, engine, model, application, server)
    finally:
        engine.gate.set()
        server.drain()
        thread.join(WAIT)
        model.close()
        assert not thread.is_alive()


def wait_for(fact: Any, seconds: float = WAIT) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)
