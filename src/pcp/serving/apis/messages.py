"""`/v1/messages`: conversations in Anthropic's form."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pcp.serving.apis.adapter import (
    LARGEST_COUNT,
    MOST_STOPS,
    anthropic_error,
    check_model,
    event,
    identity,
    refuse_fields,
    sampling_of,
)
from pcp.serving.apis.conversation import MOST_MESSAGES, Message, Tool, called, chosen_tools, text_in, tool
from pcp.serving.ask import Answer, Ask, Told, Usage
from pcp.serving.fields import Fields
from pcp.serving.model import ServedModel
from pcp.serving.refusals import Refused, Unsupported
from pcp.serving.tool_calls import Call

_REFUSED = {"mcp_servers": "this server speaks to no others", "container": "this server runs no code"}


class Messages:
    """A request for an answer in a conversation; see `Adapter`."""

    def __init__(self, fields: Fields, model: ServedModel) -> None:
        check_model(fields, model)
        refuse_fields(fields, _REFUSED)
        self._model, self._identity = model, identity("msg_")
        self.stream = fields.flag("stream")
        prompt, masked, form = _prompt(fields, model)
        if not fields.has("max_tokens"):
            raise fields.wrong("max_tokens", "a whole number, the most tokens of the answer")
        count = model.count_for(prompt, fields.whole("max_tokens", None, 1, LARGEST_COUNT), "max_tokens")
        self._blocks, self._is_text_open = 0, False
        stops = fields.texts("stop_sequences", MOST_STOPS)
        self.ask = Ask((prompt,), count, sampling_of(fields, model), stop=stops, masked=masked, tools=form)

    def opening(self) -> Iterable[bytes]:
        """See `Adapter`."""
        yield _event(
            "message_start", message=self._message([], None, None, Usage(len(self.ask.prompts[0]), 0))
        )

    def frames(self, told: Told) -> Iterable[bytes]:
        """See `Adapter`."""
        if told.text:
            yield from self._open_text()
            yield self._delta(type="text_delta", text=told.text)
        for call in told.calls:
            yield from self._close_text()
            block = {"type": "tool_use", "id": call.identity, "name": call.name, "input": {}}
            yield _event("content_block_start", index=self._blocks, content_block=block)
            yield self._delta(type="input_json_delta", partial_json=call.arguments)
            yield _event("content_block_stop", index=self._blocks)
            self._blocks += 1

    def closing(self, answers: Sequence[Answer], usage: Usage) -> Iterable[bytes]:
        """See `Adapter`."""
        if not self._blocks:
            yield from self._open_text()
        yield from self._close_text()
        reason, stop = _reason(answers[0])
        yield _event(
            "message_delta",
            delta={"stop_reason": reason, "stop_sequence": stop},
            usage=_usage(usage),
        )
        yield _event("message_stop")

    def failed(self, refused: Refused) -> Iterable[bytes]:
        """See `Adapter`."""
        return (event(anthropic_error(refused), "error"),)

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """See `Adapter`."""
        [answer] = answers
        content: list[dict[str, Any]] = []
        if answer.text or not answer.calls:
            content.append({"type": "text", "text": answer.text})
        content += [_used(call) for call in answer.calls]
        return self._message(content, *_reason(answer), usage)

    def _message(
        self, content: list[dict[str, Any]], reason: str | None, stop: str | None, usage: Usage
    ) -> dict[str, Any]:
        return {
            "id": self._identity,
            "type": "message",
            "role": "assistant",
            "model": self._model.name,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop,
            "usage": _usage(usage),
        }

    def _open_text(self) -> Iterable[bytes]:
        if not self._is_text_open:
            self._is_text_open = True
            yield _event(
                "content_block_start", index=self._blocks, content_block={"type": "text", "text": ""}
            )

    def _close_text(self) -> Iterable[bytes]:
        if self._is_text_open:
            self._is_text_open = False
            yield _event("content_block_stop", index=self._blocks)
            self._blocks += 1

    def _delta(self, **delta: Any) -> bytes:
        return _event("content_block_delta", index=self._blocks, delta=delta)


def counted(fields: Fields, model: ServedModel) -> dict[str, int]:
    """The answer of `/v1/messages/count_tokens`."""
    check_model(fields, model)
    return {"input_tokens": len(_prompt(fields, model)[0])}


def _event(name: str, /, **content: Any) -> bytes:
    return event({"type": name} | content, name)


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt,
        "output_tokens": usage.generated,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def _reason(answer: Answer) -> tuple[str, str | None]:
    if answer.stopped_by is not None:
        return "stop_sequence", answer.stopped_by
    return {"length": "max_tokens", "tool_calls": "tool_use"}.get(answer.finish, "end_turn"), None


def _used(call: Call) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.identity, "name": call.name, "input": json.loads(call.arguments)}


def _prompt(fields: Fields, model: ServedModel) -> tuple[tuple[int, ...], Any, Any]:
    """The tokens of the conversation, and what holds the answer to a call."""
    tools, masked, form = chosen_tools(_choice(fields), list(_tools(fields)), model)
    messages = [{"role": "system", "content": text_in(fields, "system")}] if fields.has("system") else []
    if not 0 < len(fields.items("messages")) <= MOST_MESSAGES:
        raise fields.wrong(
            "messages", f'a list of 1 to {MOST_MESSAGES:,}, as [{{"role": "user", "content": "..."}}]'
        )
    for each in fields.objects("messages"):
        messages += _messages(each)
    if messages[-1]["role"] == "assistant":
        raise Unsupported(
            "the last message is the assistant's; answers that go on from a beginning are not supported: end with the user's",
            "messages",
        )
    return model.tokens_of_messages(messages, tools, {}, "messages"), masked, form


def _messages(fields: Fields) -> Iterable[Message]:
    """The messages of the Chat API that one of this API is: results of tools are messages of their own there."""
    role = fields.one_of("role", ("user", "assistant"), "")
    if not isinstance(fields.content.get("content"), list):
        return [{"role": role, "content": fields.text("content")}]
    texts, calls, results = [], [], []
    for block in fields.objects("content"):
        kind = block.text("type")
        if kind == "text":
            texts.append(block.text("text"))
        elif kind == "tool_use" and role == "assistant":
            calls.append(called(block.text("id"), block.text("name"), block.object("input").content))
        elif kind == "tool_result" and role == "user":
            content = text_in(block, "content", ("text",)) if block.has("content") else ""
            results.append({"role": "tool", "tool_call_id": block.text("tool_use_id"), "content": content})
        elif kind not in ("thinking", "redacted_thinking"):  # which is not told to a model again
            raise Unsupported(
                f"{block.path('type')} is {kind[:40]!r}; expected text, tool_use in an answer, or tool_result in a question",
                block.path("type"),
            )
    message: Message = {"role": role, "content": "".join(texts)}
    message |= {"tool_calls": calls} if calls else {}
    return [*results, *([message] if texts or calls or not results else [])]


def _tools(fields: Fields) -> Iterable[Tool]:
    for each in fields.objects("tools"):
        if not each.has("input_schema"):
            raise Unsupported(
                f"{each.path('type')} is {each.content.get('type')!r}; only tools with an input_schema, which clients run, are "
                "supported",
                each.path("type"),
            )
        yield tool(each, each.text("name"), each.text("description", ""), each.object("input_schema").content)


def _choice(fields: Fields) -> str:
    choice = fields.object("tool_choice")
    kind = choice.one_of("type", ("auto", "any", "none", "tool"), "auto")
    return {"any": "required", "tool": "="}.get(kind, kind) + (choice.text("name") if kind == "tool" else "")
