"""A walk along dependences without recursion, so that a graph may be as deep as memory allows."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def depth_first(starts: Iterable[T], before: Callable[[T], Iterable[T]]) -> list[T]:
    """Everything that the starts depend on, and they themselves, each behind what it depends on.

    Arguments:
        starts: where the walk begins; what the first depends on comes first.
        before: what one directly depends on. There are no cycles.
    """
    done: dict[T, None] = {}
    waiting = list(starts)[::-1]
    while waiting:
        each = waiting[-1]
        missing = [] if each in done else [one for one in before(each) if one not in done]
        if missing:
            waiting += reversed(missing)
        else:
            done.setdefault(waiting.pop())
    return list(done)
