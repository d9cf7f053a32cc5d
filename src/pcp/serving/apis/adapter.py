"""What an API is to the server, what the APIs share, and events in the form of `text/event-stream`."""

import json
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from pcp.inference.sampling import Sampling
from pcp.serving.ask import Answer, Ask, Told, Usage
from pcp.serving.fields import Fields
from pcp.serving.model import ServedModel
from pcp.serving.refusals import InvalidField, ModelNotServed, Refused, Unsupported

MOST_STOPS = 16
LARGEST_COUNT = 1 << 31
"""Of tokens that may be asked for; the context bounds them further."""


class Adapter(Protocol):
    """One request in the form of an API. It is made of its fields and the model; that may take milliseconds.

    Attributes:
        ask: what it asks for, neutrally.
        stream: whether the answer comes in events.
    """

    ask: Ask
    stream: bool

    def opening(self) -> Iterable[bytes]:
        """Events before anything is told."""

    def frames(self, told: Told) -> Iterable[bytes]:
        """Events of what is told."""

    def closing(self, answers: Sequence[Answer], usage: Usage) -> Iterable[bytes]:
        """Events after all is told."""

    def failed(self, refused: Refused) -> Iterable[bytes]:
        """Events of a failure in the middle of a stream."""

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """The answer at once."""


def identity(prefix: str) -> str:
    """A name of its own for an object."""
    return f"{prefix}{secrets.token_hex(12)}"


def event(content: Any, name: str = "") -> bytes:
    """An event; its JSON has no line break, and is whole UTF-8."""
    head = f"event: {name}\n" if name else ""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return f"{head}data: {text}\n\n".encode("utf-8", "replace")


DONE = b"data: [DONE]\n\n"
"""What ends a stream of the older APIs of OpenAI."""


def openai_error(refused: Refused) -> dict[str, Any]:
    """A refusal as OpenAI's APIs tell it."""
    return {
        "error": {
            "message": str(refused),
            "type": refused.kind,
            "param": refused.param,
            "code": refused.code,
        }
    }


def anthropic_error(refused: Refused) -> dict[str, Any]:
    """A refusal as Anthropic's API tells it."""
    return {"type": "error", "error": {"type": refused.kind, "message": str(refused)}}


class Completing:
    """What the older APIs of OpenAI share.

    Arguments:
        refused: fields whose meaning is not there; see `refuse_fields`.
        prefix: of the answer's name.
        kinds: what an answer is called, and a part of one in a stream.
    """

    def __init__(
        self, fields: Fields, model: ServedModel, refused: dict[str, str], prefix: str, kinds: tuple[str, str]
    ) -> None:
        check_model(fields, model)
        refuse_fields(fields, refused)
        self._model, self._created, self._identity = model, int(time.time()), identity(prefix)
        self._kinds = kinds
        self.stream = fields.flag("stream")
        self._with_usage = fields.object("stream_options").flag("include_usage")

    def closing(self, answers: Sequence[Answer], usage: Usage) -> Iterable[bytes]:
        """See `Adapter`."""
        del answers
        if self._with_usage:
            yield self._chunk([], _usage(usage))
        yield DONE

    def failed(self, refused: Refused) -> Iterable[bytes]:
        """See `Adapter`."""
        return (event(openai_error(refused)), DONE)

    def _whole(self, choices: list[dict[str, Any]], usage: Usage) -> dict[str, Any]:
        return self._object(self._kinds[0], choices) | {"usage": _usage(usage)}

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
        more = {"usage": usage} if self._with_usage else {}
        return event(self._object(self._kinds[1], choices) | more)

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._identity,
            "object": kind,
            "created": self._created,
            "model": self._model.name,
            "choices": choices,
        }


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.generated,
        "total_tokens": usage.prompt + usage.generated,
    }


def check_model(fields: Fields, model: ServedModel) -> None:
    """Raises ModelNotServed if another model is asked for; none is the one that is there."""
    asked = fields.text("model", model.name)
    if asked != model.name:
        raise ModelNotServed(
            f"this server has no model {asked[:80]!r}; it serves {model.name!r}, as /v1/models says", "model"
        )


def refuse_fields(fields: Fields, reasons: dict[str, str]) -> None:
    """Raises Unsupported if a request has a field whose meaning this server does not give it.

    Arguments:
        reasons: field -> what to do instead.
    """
    for name, instead in reasons.items():
        if fields.has(name) and fields.content[name] not in (False, [], {}, ""):
            raise Unsupported(f"{fields.path(name)} is not supported: {instead}", fields.path(name))


def sampling_of(fields: Fields, model: ServedModel) -> Sampling:
    """How tokens are drawn, by the fields that APIs share; raises InvalidField."""
    ranges = {
        "temperature": (0.0, 100.0),
        "top_p": (0.0, 1.0),
        "min_p": (0.0, 1.0),
        "repetition_penalty": (1e-3, 1e3),
        "presence_penalty": (-100.0, 100.0),
        "frequency_penalty": (-100.0, 100.0),
    }
    said: dict[str, Any] = {
        name: fields.number(name, 0.0, *between) for name, between in ranges.items() if fields.has(name)
    }
    if said.get("top_p") == 0.0:
        said["top_p"] = 1e-9  # the best token alone
    if fields.has("top_k"):
        said["top_k"] = fields.whole("top_k", None, -1, 1 << 31)
    seed = fields.whole("seed", None, -(1 << 63), (1 << 64) - 1)
    said["seed"] = (secrets.randbits(63) if seed is None else seed) % (1 << 64)
    if biases := _biases(fields, model):
        said["logit_bias"] = biases
    return model.sampling(**said)


def _biases(fields: Fields, model: ServedModel) -> dict[int, float]:
    found = {}
    biases = fields.object("logit_bias")
    for name in biases.content:
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < model.vocabulary):
            raise InvalidField(
                f"logit_bias has {name[:40]!r}; expected numbers of tokens below {model.vocabulary}",
                "logit_bias",
            )
        found[int(name)] = biases.number(name, 0.0, -100.0, 100.0)
    return found


def top_of(model: ServedModel, top: Iterable[tuple[int, float]], most: int) -> list[tuple[str, float]]:
    """The most likely tokens as texts with their logprobs."""
    return [(text_of(model, token), logprob) for token, logprob in list(top)[:most]]


def text_of(model: ServedModel, token: int) -> str:
    """The text of one token; a character that it has only a part of is U+FFFD."""
    return model.tokenizer.decode([token]) if token < model.tokenizer.vocabulary_size else ""
