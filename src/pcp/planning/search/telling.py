"""What a search cannot know but is told: the time, measurements, what the database says. It is kept, to be told once more."""

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pcp.planning.search.question import Here, Question, Unanswered

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Told:
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
        self._told: list[_Told] = []
        self._ahead: deque[_Told] = deque()
        self._said: dict[tuple[str, str, int], Any] = {}
        self._often: Counter[tuple[str, str]] = Counter()

    def again(self) -> "Telling":
        """One that tells the same from the beginning."""
        other = Telling()
        other.is_copy, other._ahead, other._said = True, deque(self._told), dict(self._said)
        return other

    def told(self, asked: Question | Here[Any] | None, do: Callable[[], _T]) -> _T:
        """What something comes to, and the time afterwards. Where nothing is asked, it is the time alone.

        Raises:
            Unanswered: nobody did this, and a copy does nothing.
            BaseException: what doing it raises.
        """
        if self._ahead:
            told = self._ahead.popleft()
        elif self.is_copy and asked is not None:
            raise Unanswered(asked)
        elif self.is_copy:
            told = _Told(self.seconds)
        else:
            told = self._done(do)
        self._told.append(told)
        self.seconds = told.seconds
        if told.error is not None:
            raise told.error
        value: _T = told.value
        return value

    def _done(self, do: Callable[[], Any]) -> _Told:
        try:
            value, raised = do(), None
        except BaseException as error:
            value, raised = None, error
        return _Told(time.monotonic() - self._began, value, raised)

    def said(self, kind: str, name: str, read: Callable[[], _T]) -> _T:
        """What the database says; in a copy, what it said when it was asked as often before."""
        self._often[kind, name] += 1
        key = (kind, name, self._often[kind, name])
        if key not in self._said:
            self._said[key] = read()
        said: _T = self._said[key]
        return said
