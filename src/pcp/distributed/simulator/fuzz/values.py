"""Random values of messages, from the bounds of their fields: often at their ends, and often ones that were seen before."""

import dataclasses
import math
from collections import defaultdict, deque
from enum import StrEnum
from functools import cache
from random import Random
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pcp.distributed.bounds import Many, Octets, Real, Text, Whole, Words, bound_of

T = TypeVar("T")

SEEN_KEPT = 32
_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 10**9 + 1, 2**31, 2**32 - 1, 2**53, 2**62, 2**63, 2**64 - 1)
_LETTERS = ("", "a", "Ω", "\x00", "\ud7ff", "\n", "🌍", "x" * 200, "../", "{}")


class Values:
    """Makes messages.

    Arguments:
        random: where all that is random comes from.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self._seen: dict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=SEEN_KEPT))

    def see(self, message: Any) -> None:
        """Remember the values of a message, by the names of their fields, and its parts."""
        for name, _ in _hints(type(message)):
            value = getattr(message, name)
            for each in value[:4] if type(value) is tuple else (value,):
                if each is None:
                    continue
                if hasattr(each, "__dataclass_fields__"):
                    self._keep(type(each).__name__, each)
                    self.see(each)
                else:
                    self._keep(name, each)

    def _keep(self, name: str, value: Any) -> None:
        self._seen[name].append(value)

    def message(self, struct: type[T], **known: Any) -> T:
        """A message, or a part of one, with some fields given."""
        drawn = {name: self._value(name, hint) for name, hint in _hints(struct) if name not in known}
        return struct(**known, **drawn)

    def changed(self, message: T) -> T:
        """The same message but for a field or two."""
        hints = dict(_hints(type(message)))
        names = self.random.sample(sorted(hints), min(len(hints), self.random.choice([0, 1, 1, 2])))
        changes = {name: self._value(name, hints[name]) for name in names}
        old: Any = message
        new: T = dataclasses.replace(old, **changes)
        return new

    def crossed(self, one: T, other: T) -> T:
        """One message with some fields of another of its kind."""
        old: Any = one
        names = [field.name for field in dataclasses.fields(old) if self.random.random() < 0.4]
        new: T = dataclasses.replace(old, **{name: getattr(other, name) for name in names})
        return new

    def _value(self, name: str, hint: Any) -> Any:
        random = self.random
        if NoneType in get_args(hint):
            (present,) = set(get_args(hint)) - {NoneType}
            return None if random.random() < 0.3 else self._value(name, present)
        bound, inner = bound_of(hint), get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if dataclasses.is_dataclass(inner) and isinstance(inner, type):
            seen = self._seen[inner.__name__]
            if seen and random.random() < 0.7:
                return self.changed(random.choice(seen)) if random.random() < 0.3 else random.choice(seen)
            return self.message(inner)
        if isinstance(inner, type) and issubclass(inner, StrEnum):
            return random.choice(list(inner))
        if not isinstance(bound, Many) and self._seen[name] and random.random() < 0.7:
            return random.choice(self._seen[name])
        return self._of_bound(name, inner, bound)

    def _of_bound(self, name: str, inner: Any, bound: Any) -> Any:
        random = self.random
        match bound:
            case Whole(most):
                return min(most, random.choice((*_NUMBERS, random.randrange(64), most)))
            case Real(_, least, most, signed, infinite):
                usual = (0.1, 1.0, 2.0, 60.0, math.inf if infinite else 0.5)
                value = random.choice((0.0, least, least, most, most, *usual))
                return -value if signed and random.random() < 0.2 else value
            case Words(letters) | Text(letters):
                return "".join(random.choices(_LETTERS, k=random.randrange(3)))[:letters]
            case Octets(_, least, most):
                return random.randbytes(random.choice((least, least, most)))
            case Many(most):
                element = get_args(inner)[0]
                count = min(most, random.choice((0, 1, 1, 2, 3, 3, 3, 40)))
                return tuple(self._value(name, element) for _ in range(count))
            case _:
                return random.random() < 0.5


def _hints(struct: Any) -> tuple[tuple[str, Any], ...]:
    hints: tuple[tuple[str, Any], ...] = _hints_of(struct)
    return hints


@cache
def _hints_of(struct: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(get_type_hints(struct, include_extras=True).items())
