"""`/v1/chat/completions`: conversations go on."""

from collections.abc import Iterable, Sequence
from typing import Any

from pcp.serving.apis.adapter import (
    LARGEST_COUNT,
    MOST_STOPS,
    Completing,
    sampling_of,
    text_of,
    top_of,
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
from pcp.serving.ask import MOST_CHOICES, Answer, Ask, Token, Told, Usage
from pcp.serving.fields import Fields
from pcp.serving.model import ServedModel
from pcp.serving.refusals import InvalidField
from pcp.serving.tool_calls import Call

ROLES = ("system", "developer", "user", "assistant", "tool")
_REFUSED = {
    "functions": "give them as `tools`",
    "function_call": "give `tool_choice`",
    "audio": "the models that are served write text",
    "min_tokens": "an answer ends where the model ends it; ignore_eos goes on to max_tokens",
}


class Chat(Completing):
    """A request for an answer in a conversation; see `Adapter`."""

    def __init__(self, fields: Fields, model: ServedModel) -> None:
        super().__init__(fields, model, _REFUSED, "chatcmpl-", ("chat.completion", "chat.completion.chunk"))
        tools, masked, form = chosen_tools(_choice(fields), list(_tools(fields)), model)
        masked = masked or form_of_answer(fields.object("response_format"), model)
        variables = fields.object("chat_template_kwargs").content
        if own := sorted({"messages", "tools", "self"}.intersection(variables)):
            raise InvalidField(
                f"chat_template_kwargs has {own[0]!r}, which is the request's own", "chat_template_kwargs"
            )
        prompt = model.tokens_of_messages(_messages(fields), tools, variables, "messages")
        name = "max_completion_tokens" if fields.has("max_completion_tokens") else "max_tokens"
        count = model.count_for(prompt, fields.whole(name, None, 1, LARGEST_COUNT), name)
        self._top = fields.whole("top_logprobs", 0, 0, 20) if fields.flag("logprobs") else None
        choices = int(fields.whole("n", 1, 1, MOST_CHOICES) or 1)
        self._calls = [0] * choices
        self.ask = Ask(
            (prompt,),
            count,
            sampling_of(fields, model),
            choices,
            fields.texts("stop", MOST_STOPS),
            self._top,
            fields.flag("ignore_eos"),
            masked,
            form,
        )

    def opening(self) -> Iterable[bytes]:
        """See `Adapter`."""
        for number in range(self.ask.choices):
            yield self._chunk([self._delta(number, {"role": "assistant", "content": ""})])

    def frames(self, told: Told) -> Iterable[bytes]:
        """See `Adapter`."""
        delta: dict[str, Any] = {"content": told.text} if told.text or told.tokens else {}
        if delta:
            yield self._chunk([self._delta(told.choice, delta, told.tokens)])
        for call in told.calls:
            number = self._calls[told.choice]
            self._calls[told.choice] += 1
            yield self._chunk([self._delta(told.choice, {"tool_calls": [{"index": number} | _call(call)]})])
        if told.finish:
            yield self._chunk([self._delta(told.choice, {}, finish=told.finish)])

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """See `Adapter`."""
        choices = []
        for number, each in enumerate(answers):
            message: dict[str, Any] = {"role": "assistant", "content": each.text, "refusal": None}
            if each.calls:
                message |= {"content": each.text or None, "tool_calls": [_call(call) for call in each.calls]}
            choices.append(
                {
                    "index": number,
                    "message": message,
                    "logprobs": self._logprobs(each.tokens),
                    "finish_reason": each.finish,
                }
            )
        return self._whole(choices, usage)

    def _delta(
        self, number: int, delta: dict[str, Any], tokens: Sequence[Token] = (), finish: str | None = None
    ) -> dict[str, Any]:
        logprobs = self._logprobs(tokens) if tokens else None
        return {"index": number, "delta": delta, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if self._top is None:
            return None
        content = []
        for each in tokens:
            top = [_entry(*found) for found in top_of(self._model, each.top, self._top)]
            content.append(_entry(text_of(self._model, each.number), each.logprob) | {"top_logprobs": top})
        return {"content": content, "refusal": None}


def _entry(text: str, logprob: float) -> dict[str, Any]:
    """A token; its bytes are not told where it is a part of a character."""
    whole = None if "\ufffd" in text else list(text.encode("utf-8", "replace"))
    return {"token": text, "logprob": max(logprob, -9999.0), "bytes": whole}


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.identity, "type": "function", "function": function}


def _messages(fields: Fields) -> list[Message]:
    found: list[Message] = []
    if not 0 < len(fields.items("messages")) <= MOST_MESSAGES:
        raise fields.wrong(
            "messages", f'a list of 1 to {MOST_MESSAGES:,}, as [{{"role": "user", "content": "..."}}]'
        )
    for each in fields.objects("messages"):
        role = each.one_of("role", ROLES, "")
        message: Message = {"role": "system" if role == "developer" else role}
        calls = [_earlier(call) for call in each.objects("tool_calls")]
        message["content"] = "" if calls and not each.has("content") else text_in(each, "content")
        message |= {"tool_calls": calls} if calls else {}
        message |= {name: each.text(name) for name in ("name", "tool_call_id") if each.has(name)}
        found.append(message)
    return found


def _earlier(call: Fields) -> dict[str, Any]:
    function = call.object("function")
    return called(call.text("id", ""), function.text("name"), function.content.get("arguments", "{}"))


def _tools(fields: Fields) -> Iterable[Tool]:
    for each in fields.objects("tools"):
        each.one_of("type", ("function",), "function")
        function = each.object("function")
        yield tool(
            function,
            function.text("name"),
            function.text("description", ""),
            function.object("parameters").content,
        )


def _choice(fields: Fields) -> str:
    if isinstance(fields.content.get("tool_choice"), dict):
        return "=" + fields.object("tool_choice").object("function").text("name")
    return fields.one_of(
        "tool_choice", ("none", "auto", "required"), "auto" if fields.has("tools") else "none"
    )
