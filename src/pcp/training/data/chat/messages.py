"""Messages of a conversation, as records hold them."""

from dataclasses import dataclass
from typing import Any

from pcp.training.data.kinds.records import Record, RowUnreadable

FIELDS = ("messages", "conversations")
"""Fields that hold messages, where none is named."""
ASSISTANT = "assistant"
_ROLES = {"human": "user", "gpt": ASSISTANT, "chatgpt": ASSISTANT, "bing": ASSISTANT}
"""Roles as some call them."""


@dataclass(frozen=True, slots=True)
class Message:
    """What somebody says.

    Arguments:
        role: `system`, `user`, `assistant`, or whatever the template knows.
        content: the text.
    """

    role: str
    content: str


def field_of_messages(record: Record, field: str) -> str:
    """The field of a record that holds messages; empty where none does."""
    names = (field,) if field else FIELDS
    return next((name for name in names if _looks_so(record.get(name))), "")


def messages_of(record: Record, field: str, place: str) -> list[Message]:
    """The messages of a record.

    Raises:
        RowUnreadable: they are not there, are of another form, or hold no answer.
    """
    name = field_of_messages(record, field)
    if not name:
        raise RowUnreadable(
            f"{place} has no messages in {' or '.join((field,) if field else FIELDS)}; it has {', '.join(record) or 'none'}. "
            'Expected {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}'
        )
    messages = []
    for number, entry in enumerate(record[name], 1):
        role, content = (_value(entry, *keys) for keys in (("role", "from"), ("content", "value")))
        if not isinstance(role, str) or not isinstance(content, str):
            raise RowUnreadable(
                f"{place} has a message without a role or without text, the {number}. of its field {name!r}: {entry!r:.80}"
            )
        messages.append(Message(_ROLES.get(role, role), content))
    if not any(message.role == ASSISTANT for message in messages):
        roles = ", ".join(dict.fromkeys(message.role for message in messages))
        raise RowUnreadable(
            f"{place} has no message of the role {ASSISTANT!r}, whose answers are learnt; its roles are {roles}"
        )
    return messages


def _looks_so(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _value(entry: dict[str, Any], *keys: str) -> Any:
    return next((entry[key] for key in keys if key in entry), None)
