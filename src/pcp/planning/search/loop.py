"""The loop in which evidence answers what a search asks, and what it asks next, as a function of the evidence."""

import functools
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Asked, Asking, Here, Question, Rest, Unanswered

_T = TypeVar("_T")
Search = Callable[[Evidence], Asking[_T]]


@dataclass(frozen=True, slots=True)
class Over(Generic[_T]):
    """A search that asks nothing more, and what it came to."""

    result: _T


def next_asked(search: Search[_T], evidence: Evidence) -> Asked | Over[_T]:
    """What a search asks after all that evidence holds: a function of that alone, to which nothing is added.

    It goes through the search from the beginning. Whoever goes on with it keeps `walked`, which asks the same.
    """
    again = evidence.again()
    try:
        return Over(answered(search, again))
    except Unanswered as end:
        return end.asked


def answered(search: Search[_T], evidence: Evidence) -> _T:
    """What a search comes to."""
    walk = walked(search, evidence)
    while True:
        try:
            next(walk)
        except StopIteration as end:
            result: _T = end.value
            return result


def walked(search: Search[_T], evidence: Evidence) -> Generator[Any, None, _T]:
    """What a search shows on its way, and then what it comes to. What it asks, evidence answers: from what is known, or by
    measuring.

    What is raised meanwhile, as Ctrl-C does, is raised where the question was asked.
    """
    asking = search(evidence)
    go_on: Callable[[], Any] = functools.partial(next, asking)
    while True:
        try:
            asked = go_on()
        except StopIteration as end:
            result: _T = end.value
            return result
        try:
            if not isinstance(asked, Question | Here | Rest):
                answer = yield asked
            elif isinstance(asked, Question) and evidence.knows(asked):
                answer = evidence.of(asked)
            else:
                is_kept_for = isinstance(asked, Here) or (isinstance(asked, Question) and asked.verifies)
                has_kept = evidence.seconds_left and not is_kept_for
                answer = evidence.added(asked, evidence.kept_back if has_kept else 0.0)
        except (Unanswered, GeneratorExit):
            raise
        except BaseException as error:
            go_on = functools.partial(asking.throw, error)
        else:
            go_on = functools.partial(asking.send, answer)
