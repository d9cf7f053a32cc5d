"""Question: a measurement that a search wants to know, before it goes on.

A search asks one question after another, and makes a path of the answers. Each part of it is a generator of questions, which
is sent the answers and returns what came of them: `yield` asks, and `yield from` hands on what another part asks. It looks at
no clock, measures nothing and waits for nothing: all of that passes through one loop (`pcp.planning.search.loop`), so what is
asked next is a function of the evidence alone.

What a search cannot know but is told, the answers and the time, is kept, to be told once more.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pcp.ir import Program
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.paths.path import Path

_T = TypeVar("_T")
Answer = Measurement | None
Asking = Generator[Any, Any, _T]
"""What asks questions, and returns what came of the answers. What it yields besides is for whoever looks on."""


class _Asks(Generic[_T]):
    """What is asked, by the type of its answer."""

    __slots__ = ()

    def asked(self) -> Asking[_T]:
        """The answer."""
        answer: _T = yield self
        return answer


@dataclass(frozen=True, slots=True)
class Question(_Asks[Answer]):
    """One path of a program, to be measured where what is known of it is not enough. The answer is None where there is no time
    to measure it, or it cannot be measured.

    Arguments:
        subject: what the program and its arguments are called in the database.
        label: what the path is called there.
        request: what is measured, made when it is.
        enough: whether a known measurement will do.
        what: is asked, for people.
        path: of the program; None where a kernel or an operation is measured alone.
        about: what the program is, for people.
        region: the program, where it is the region of a site, to be kept with it.
        verifies: whether this is what time was kept back for.
        times: how often it has to have been measured, unless it failed.
    """

    subject: str
    label: str
    request: Callable[[], Request]
    enough: Callable[[Measurement], bool]
    what: str
    path: Path | None = None
    about: str | None = None
    region: Program | None = None
    verifies: bool = False
    times: int = 1


@dataclass(frozen=True, slots=True)
class Here(_Asks[_T]):
    """Something that is done in this process, as compiling, comparing results or waiting. The answer is what it comes to.

    Arguments:
        what: it is, for people.
        do: does it.
        counts: whether its time is of the budget.
    """

    what: str
    do: Callable[[], _T]
    counts: bool = True


@dataclass(frozen=True, slots=True)
class Rest(_Asks[bool]):
    """Waiting until so much time has passed since a path was measured, so that what disturbed it then is over. The answer is
    whether there is time for it.

    Arguments:
        subject, label: of the path.
        seconds: from the end of its last measurement; the next one is apart in time.
    """

    subject: str
    label: str
    seconds: float
    what: str = "waiting"


Asked = Question | Here[Any] | Rest


class Unanswered(Exception):
    """A question that nobody answered yet."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked.what)
        self.asked = asked


def in_turn(*walks: Asking[None]) -> Asking[None]:
    """Show what walks show, one thing of each in turn, until all of them end; each is told what came of its last."""
    waiting: deque[tuple[Asking[None], Any]] = deque((walk, None) for walk in walks)
    while waiting:
        walk, answer = waiting.popleft()
        if (item := (yield from shown(walk, answer))) is not None:
            waiting.append((walk, (yield item)))


def shown(walk: Asking[None], answer: Any = None) -> Asking[Any]:
    """The next thing that a walk shows, when what it asks before is answered; None at its end.

    Arguments:
        answer: what came of the last thing that it showed.
    """
    while True:
        try:
            item = walk.send(answer)
        except StopIteration:
            return None
        if not isinstance(item, Question | Here | Rest):
            return item
        answer = yield item


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
