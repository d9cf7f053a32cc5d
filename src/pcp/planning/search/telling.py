"""What a search cannot know but is told: the time, measurements, what the database says. It is kept, to be told once more."""

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pcp.planning.search.question import Asked, Unanswered

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Told:
    """Something that was told, or raised, and the seconds that had passed then."""

    what: str
    seconds: float
    value: Any = None
    error: BaseException | None = None


class Telling:
    """All that one search is told, in order.

    Attributes:
        seconds: that had passed when something was told last.
        is_copy: whether it tells what another one told; at the end of that its clock stands, and no question is answered.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.is_copy = False
        self._began = time.monotonic()
        self._told: list[Told] = []
        self._ahead: deque[Told] = deque()
        self._said: dict[tuple[str, str, int], Any] = {}
        self._often: Counter[tuple[str, str]] = Counter()

    def again(self) -> "Telling":
        """One that tells the same from the beginning."""
        other = Telling()
        other.is_copy, other._ahead, other._said = True, deque(self._told), dict(self._said)
        return other

    def before(self, asked: Asked | None) -> Told | None:
        """What was told here before; None where something is to be told now. Where nothing is asked, it is the time alone.

        Raises:
            Unanswered: a copy has nothing to tell.
        """
        if self._ahead:
            told = self._ahead.popleft()
            assert told.what == _what(asked), f"{told.what!r} was told, and {_what(asked)!r} is asked now"
            return self._add(told)
        if self.is_copy and asked is not None:
            raise Unanswered(asked)
        return self._add(Told(_what(asked), self.seconds)) if self.is_copy else None

    def now(self, asked: Asked | None, value: Any, error: BaseException | None = None) -> Told:
        """Tell something now."""
        return self._add(Told(_what(asked), time.monotonic() - self._began, value, error))

    def _add(self, told: Told) -> Told:
        self._told.append(told)
        self.seconds = told.seconds
        return told

    def said(self, kind: str, read: Callable[[str], _T], name: str) -> _T:
        """What the database says of a name; in a copy, what it said when it was asked as often before."""
        self._often[kind, name] += 1
        key = (kind, name, self._often[kind, name])
        if key not in self._said:
            self._said[key] = read(name)
        said: _T = self._said[key]
        return said


def _what(asked: Asked | None) -> str:
    return "the time" if asked is None else asked.what
