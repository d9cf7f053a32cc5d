"""`/v1/responses`: conversations in OpenAI's newer form. Nothing is stored: a request brings all that was said."""

import time
from collections.abc import Iterable, Sequence
from typing import Any

from pcp.serving.apis.adapter import (
    LARGEST_COUNT,
    check_model,
    event,
    identity,
    refuse_fields,
    sampling_of,
)
from pcp.serving.apis.conversation import (
    MOST_MESSAGES,
    Message,
    Tool,
    called,
    chosen_tools,
    form_of_answer,
    text_in,
    tool,
)
from pcp.serving.ask import Answer, Ask, Told, Usage
from pcp.serving.fields import Fields
from pcp.serving.model import ServedModel
from pcp.serving.refusals import Refused, Unsupported
from pcp.serving.tool_calls import Call

_REFUSED = {
    "previous_response_id": "this server keeps no answers; give all that was said in `input`",
    "conversation": "this server keeps no conversations; give all that was said in `input`",
    "background": "an answer comes on the connection that asks for it",
    "prompt": "this server keeps no prompts; give `input`",
}


class Responses:
    """A request for a response; see `Adapter`."""

    def __init__(self, fields: Fields, model: ServedModel) -> None:
        check_model(fields, model)
        refuse_fields(fields, _REFUSED)
        self._fields, self._model = fields, model
        self._created, self._identity, self._item = int(time.time()), identity("resp_"), identity("msg_")
        self.stream = fields.flag("stream")
        tools, masked, form = chosen_tools(_choice(fields), list(_tools(fields)), model)
        masked = masked or form_of_answer(fields.object("text").object("format"), model)
        prompt = model.tokens_of_messages(_messages(fields), tools, {}, "input")
        asked = fields.whole("max_output_tokens", None, 1, LARGEST_COUNT)
        count = model.count_for(prompt, asked, "max_output_tokens")
        self._sequence, self._items = 0, 0
        self._is_message_open = False
        self.ask = Ask((prompt,), count, sampling_of(fields, model), masked=masked, tools=form)

    def opening(self) -> Iterable[bytes]:
        """See `Adapter`."""
        begun = self._object("in_progress", [], None)
        yield self._event("response.created", response=begun)
        yield self._event("response.in_progress", response=begun)

    def frames(self, told: Told) -> Iterable[bytes]:
        """See `Adapter`."""
        if told.text:
            yield from self._open_message()
            yield self._part("response.output_text.delta", delta=told.text, logprobs=[])
        for call in told.calls:
            # A message stays open: text and calls are items of their own, and this one is the next.
            number = self._items
            self._items += 1
            item = _called(call)
            yield self._event(
                "response.output_item.added",
                output_index=number,
                item=item | {"arguments": "", "status": "in_progress"},
            )
            of_item = {"item_id": item["id"], "output_index": number}
            name = "response.function_call_arguments"
            yield self._event(f"{name}.delta", **of_item, delta=call.arguments)
            yield self._event(f"{name}.done", **of_item, name=call.name, arguments=call.arguments)
            yield self._event("response.output_item.done", output_index=number, item=item)

    def closing(self, answers: Sequence[Answer], usage: Usage) -> Iterable[bytes]:
        """See `Adapter`."""
        [answer] = answers
        if not self._items:
            yield from self._open_message()
        if self._is_message_open:
            yield self._part("response.output_text.done", text=answer.text, logprobs=[])
            yield self._part("response.content_part.done", part=_text(answer.text))
            yield self._event(
                "response.output_item.done",
                output_index=self._place,
                item=self._message(answer.text, _status(answer)),
            )
        status = _status(answer)
        final = self._object(status, self._output(answer), usage)
        yield self._event(f"response.{status}", response=final)

    def failed(self, refused: Refused) -> Iterable[bytes]:
        """See `Adapter`."""
        error = {"code": refused.code or "server_error", "message": str(refused)}
        yield self._event("response.failed", response=self._object("failed", [], None) | {"error": error})

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """See `Adapter`."""
        [answer] = answers
        return self._object(_status(answer), self._output(answer), usage)

    def _output(self, answer: Answer) -> list[dict[str, Any]]:
        items = [_called(call) for call in answer.calls]
        if answer.text or not items:
            place = self._place if self._is_message_open else 0
            items.insert(place, self._message(answer.text, _status(answer)))
        return items

    def _open_message(self) -> Iterable[bytes]:
        if not self._is_message_open:
            self._is_message_open, self._place = True, self._items
            self._items += 1
            item = self._message("", "in_progress") | {"content": []}
            yield self._event("response.output_item.added", output_index=self._place, item=item)
            yield self._part("response.content_part.added", part=_text(""))

    def _part(self, name: str, /, **content: Any) -> bytes:
        return self._event(name, item_id=self._item, output_index=self._place, content_index=0, **content)

    def _event(self, name: str, /, **content: Any) -> bytes:
        number = self._sequence
        self._sequence += 1
        return event({"type": name, "sequence_number": number} | content, name)

    def _message(self, text: str, status: str) -> dict[str, Any]:
        return {
            "id": self._item,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": [_text(text)],
        }

    def _object(self, status: str, output: list[dict[str, Any]], usage: Usage | None) -> dict[str, Any]:
        given = self._fields.content
        return {
            "id": self._identity,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": given.get("instructions"),
            "max_output_tokens": given.get("max_output_tokens"),
            "metadata": given.get("metadata") or {},
            "model": self._model.name,
            "output": output,
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "store": False,
            "temperature": self.ask.sampling.temperature,
            "text": given.get("text") or {"format": {"type": "text"}},
            "tool_choice": given.get("tool_choice") or "auto",
            "tools": given.get("tools") or [],
            "top_p": self.ask.sampling.top_p,
            "truncation": "disabled",
            "usage": None if usage is None else _usage(usage),
        }


def _status(answer: Answer) -> str:
    return "incomplete" if answer.finish == "length" else "completed"


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _called(call: Call) -> dict[str, Any]:
    return {
        "id": f"fc_{call.identity.removeprefix('call_')}",
        "type": "function_call",
        "status": "completed",
        "call_id": call.identity,
        "name": call.name,
        "arguments": call.arguments,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.generated,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.generated,
    }


def _messages(fields: Fields) -> list[Message]:
    found: list[Message] = []
    if fields.has("instructions"):
        found.append({"role": "system", "content": fields.text("instructions")})
    if isinstance(fields.content.get("input"), str):
        return [*found, {"role": "user", "content": fields.text("input")}]
    if not 0 < len(fields.items("input")) <= MOST_MESSAGES:
        raise fields.wrong("input", f"a text, or a list of 1 to {MOST_MESSAGES:,} items")
    for item in fields.objects("input"):
        kind = item.text("type", "message")
        if kind == "message":
            role = item.one_of("role", ("system", "developer", "user", "assistant"), "")
            content = text_in(item, "content")
            found.append({"role": "system" if role == "developer" else role, "content": content})
        elif kind == "function_call":
            call = called(item.text("call_id"), item.text("name"), item.content.get("arguments", "{}"))
            if found and found[-1]["role"] == "assistant":
                found[-1].setdefault("tool_calls", []).append(call)
            else:
                found.append({"role": "assistant", "content": "", "tool_calls": [call]})
        elif kind == "function_call_output":
            content = text_in(item, "output")
            found.append({"role": "tool", "tool_call_id": item.text("call_id"), "content": content})
        elif kind != "reasoning":  # which is not told to a model again
            raise Unsupported(
                f"{item.path('type')} is {kind[:40]!r}; expected message, function_call or function_call_output",
                item.path("type"),
            )
    return found


def _tools(fields: Fields) -> Iterable[Tool]:
    for each in fields.objects("tools"):
        kind = each.text("type")
        if kind != "function":
            raise Unsupported(
                f"{each.path('type')} is {kind[:40]!r}; only functions, which the client runs, are supported",
                each.path("type"),
            )
        yield tool(each, each.text("name"), each.text("description", ""), each.object("parameters").content)


def _choice(fields: Fields) -> str:
    if isinstance(fields.content.get("tool_choice"), dict):
        return "=" + fields.object("tool_choice").text("name")
    return fields.one_of(
        "tool_choice", ("none", "auto", "required"), "auto" if fields.has("tools") else "none"
    )
