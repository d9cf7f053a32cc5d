"""Calls of tools in the text of an answer: where they begin and end, by the template that taught the model to write them."""

import json
import secrets
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A tool that is to be called.

    Arguments:
        arguments: as JSON.
    """

    identity: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolForm:
    """How a family of models writes calls.

    Arguments:
        mark: in a chat template of this form.
        begin, end: around what is JSON; no `end` is the end of the answer.
        arguments: the key of a call's arguments.
        only_first: whether a call is the whole answer.
    """

    mark: str
    begin: str
    end: str
    arguments: str = "arguments"
    only_first: bool = False


FORMS = (
    ToolForm("<tool_call>", "<tool_call>", "</tool_call>"),  # Hermes, Qwen 2.5 and 3
    ToolForm("[TOOL_CALLS]", "[TOOL_CALLS]", ""),  # Mistral
    ToolForm('"parameters"', "{", "", arguments="parameters", only_first=True),  # Llama 3
)
PYTHON_TAG = "<|python_tag|>"
"""What Llama 3 may write before a call."""


def form_of(template: str) -> ToolForm | None:
    """How models of a chat template write calls; None where it knows no tools."""
    if "tools" not in template:
        return None
    return next((form for form in FORMS if form.mark in template), None)


class ToolReader:
    """Takes an answer as it comes, and tells text and calls apart; text that may begin a call is held back."""

    def __init__(self, form: ToolForm) -> None:
        self._form, self._held, self._inside, self._began = form, "", False, False

    def read(self, text: str, ended: bool) -> tuple[str, tuple[Call, ...]]:
        """The text that is certainly text, and the calls that are complete.

        Arguments:
            text: some more of the answer.
            ended: whether it is the last.
        """
        self._held += text
        told, calls = "", []
        while self._held:
            if self._inside:
                inner, end, rest = (
                    self._held.partition(self._form.end) if self._form.end else (self._held, "", "")
                )
                if not end and not ended:
                    break
                found = _calls_in(self._form.begin + inner if self._form.only_first else inner, self._form)
                told += "" if found else self._form.begin + inner + end
                calls += found
                self._held, self._inside = rest, False
                continue
            before, begins = self._before_call(ended)
            told += before
            if not begins:
                break
            self._inside = True
        if calls and not told.strip():
            told = ""
        return told, tuple(calls)

    def _before_call(self, ended: bool) -> tuple[str, bool]:
        """The text before a call, which leaves what is held, and whether a call begins there."""
        if self._form.only_first:
            bare = self._held.lstrip().removeprefix(PYTHON_TAG).lstrip()
            undecided = not bare or PYTHON_TAG.startswith(bare)
            if undecided and not ended and not self._began:
                return "", False
            if bare.startswith(self._form.begin) and not self._began:
                self._held, self._began = bare.removeprefix(self._form.begin), True
                return "", True
            before, self._held, self._began = self._held, "", True
            return before, False
        before, begin, rest = self._held.partition(self._form.begin)
        if begin:
            self._held = rest
            return before, True
        keep = 0 if ended else _overlap(self._held, self._form.begin)
        before, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return before, False


def _overlap(text: str, begin: str) -> int:
    """How many characters at the end of a text begin a mark."""
    return next((size for size in range(len(begin) - 1, 0, -1) if text.endswith(begin[:size])), 0)


def _calls_in(text: str, form: ToolForm) -> list[Call]:
    """The calls that a JSON text holds; none where it is another thing."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return []
    entries = content if isinstance(content, list) else [content]
    calls = [_call(entry, form) for entry in entries]
    return [call for call in calls if call is not None] if all(calls) else []


def _call(entry: Any, form: ToolForm) -> Call | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return None
    arguments = entry.get(form.arguments, entry.get("arguments", {}))
    if not isinstance(arguments, dict):
        return None
    return Call(f"call_{secrets.token_hex(12)}", entry["name"], json.dumps(arguments, ensure_ascii=False))
