"""How often a run merges, and that it has not for too long."""

import statistics
from collections import deque

from pcp.training.display.progress import format_duration

TIMES_USUAL, LEAST_SECONDS = 5.0, 30.0
"""What is overdue: not for so many times as long as usual, and not for so many seconds."""
FIRST_SECONDS = 600.0
"""When it is overdue that never came, so that nobody knows what is usual."""
KEPT = 16


class Pace:
    """When a run last merged, and how long it usually takes; times are those of the clock that records come with.

    Arguments:
        what: it counts, such as "round merged".
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._last: float | None = None
        self._began: float | None = None
        self._took: deque[float] = deque(maxlen=KEPT)

    def begin(self, at: float) -> None:
        """Count from here: a process began, or went on after a pause."""
        self._began, self._last = at, None

    def mark(self, at: float, before: float | None = None) -> None:
        """It happened.

        Arguments:
            before: when it last did, where that is not when anybody's last came; of one worker, for what each does alone.
        """
        before = self._last if before is None else before
        if before is not None and (self._began is None or before >= self._began):
            self._took.append(max(0.0, at - before))
        self._last = at

    @property
    def usual(self) -> float | None:
        """The median of the last few times; None before there was one."""
        return statistics.median(self._took) if self._took else None

    def since(self, now: float) -> float | None:
        """Seconds since it last happened; None where the run has not begun."""
        last = self._began if self._last is None else self._last
        return None if last is None else max(0.0, now - last)

    def overdue(self, now: float) -> str:
        """Words for it not having happened for too long; empty where it has."""
        since, usual = self.since(now), self.usual
        if since is None:
            return ""
        if usual is None:
            ever = "" if self._last is None else " since"
            return f"no {self.what}{ever} for {format_duration(since)}" if since >= FIRST_SECONDS else ""
        if since < max(TIMES_USUAL * usual, LEAST_SECONDS):
            return ""
        times = since / max(usual, 1.0)
        return f"no {self.what} for {format_duration(since)}, {times:,.0f} times the usual {format_duration(usual)}"
