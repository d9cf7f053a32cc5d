"""The fields of an object of JSON from a client: read by name, of the type and in the range that they may have."""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

from pcp.errors import nearest
from pcp.serving.refusals import InvalidField, MalformedJson

_LONGEST_SHOWN = 60
_MISSING = object()


def parsed(body: bytes) -> "Fields":
    """The object that a body holds.

    Raises:
        MalformedJson: it is not JSON in UTF-8, or no object, or a text in it has half of a character.
    """
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_no_number)
        if b"\\u" in body:
            json.dumps(content, ensure_ascii=False).encode()  # half of a pair of surrogates is no UTF-8
    except (ValueError, RecursionError) as error:
        raise MalformedJson(f"the body is not JSON in UTF-8: {error}; send one object, as {{...}}") from None
    if not isinstance(content, dict):
        raise MalformedJson(
            f'the body is {_kind(content)}; expected an object, as {{"model": ...}}'
        ) from None
    return Fields(content)


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


class Fields:
    """An object of JSON; a field that is null counts as absent.

    Arguments:
        content: of the object.
        path: where it stands in the request, for messages.
    """

    def __init__(self, content: dict[str, Any], path: str = "") -> None:
        self.content, self._path = content, path

    def path(self, name: str) -> str:
        """Where a field stands in the request."""
        return f"{self._path}.{name}" if self._path else name

    def has(self, name: str) -> bool:
        """Whether there is such a field, and not null."""
        return self.content.get(name) is not None

    def whole(self, name: str, default: int | None, low: int, high: int) -> int | None:
        """A whole number; raises InvalidField."""
        value = self.content.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"a whole number from {low} to {high}")
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A number; raises InvalidField."""
        value = self.content.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise self.wrong(name, f"a number from {low:g} to {high:g}")
        return float(value)

    def text(self, name: str, default: str | None = None) -> str:
        """A text; raises InvalidField, also where there is neither it nor a default."""
        value = self.content.get(name)
        value = default if value is None else value
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def flag(self, name: str) -> bool:
        """True or false, which it is by default; raises InvalidField."""
        value = self.content.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return bool(value)

    def one_of(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of some texts; raises InvalidField."""
        value = self.content.get(name)
        value = default if value is None else value
        if value not in choices:
            raise self.wrong(name, f"{' or '.join(map(repr, choices))}{nearest(value, choices)}")
        return str(value)

    def items(self, name: str) -> list[Any]:
        """A list, empty where there is none; raises InvalidField."""
        value = self.content.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(name, "a list")
        return value

    def objects(self, name: str) -> Iterator["Fields"]:
        """The objects of a list; raises InvalidField."""
        for number, item in enumerate(self.items(name)):
            if not isinstance(item, dict):
                raise self.wrong(f"{name}[{number}]", "an object", item)
            yield Fields(item, self.path(f"{name}[{number}]"))

    def object(self, name: str) -> "Fields":
        """An object, empty where there is none; raises InvalidField."""
        value = self.content.get(name)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(value or {}, self.path(name))

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A text or a list of texts, none of them empty; raises InvalidField."""
        value = self.content.get(name)
        values = [] if value is None else value if isinstance(value, list) else [value]
        if len(values) > most or not all(isinstance(each, str) and each for each in values):
            raise self.wrong(name, f"a text, or a list of at most {most}, none of them empty")
        return tuple(values)

    def wrong(self, name: str, expected: str, value: Any = _MISSING) -> InvalidField:
        """What to raise for a field that is not as expected."""
        value = self.content.get(name) if value is _MISSING else value
        given = "missing" if value is None else _shown(value)
        return InvalidField(f"{self.path(name)} is {given}; expected {expected}", self.path(name))


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return _kind(value)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 64:
        return f"a whole number of about {int(math.log10(2) * value.bit_length())} digits"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
