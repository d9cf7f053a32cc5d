"""Refusals as they are told to a person: each kind at once, then once a minute with its count."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

INTERVAL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Refused:
    """What was refused lately.

    Arguments:
        kind: one word or two.
        count: how often since this kind was last told.
        latest: whom and why, the last time.
    """

    kind: str
    count: int
    latest: str

    def __str__(self) -> str:
        return f"refused {self.count} times ({self.kind}); the latest: {self.latest}"


class RefusalLog:
    """Keeps a flood of refusals from becoming a flood of lines; safe to use from any thread.

    Arguments:
        tell: called with what is to be told, in the thread of `add` or `flush`.
        clock: seconds.
    """

    def __init__(self, tell: Callable[[Refused], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        self._told_at: dict[str, float] = {}
        self._waiting: dict[str, Refused] = {}

    def add(self, kind: str, detail: str) -> None:
        """Notes a refusal."""
        with self._lock:
            before = self._waiting.get(kind)
            self._waiting[kind] = Refused(kind, 1 + (before.count if before else 0), detail)
        self.flush()

    def flush(self) -> None:
        """Tells what has waited long enough; to be called now and then."""
        now = self._clock()
        with self._lock:
            due = [
                kind
                for kind in self._waiting
                if now - self._told_at.get(kind, now - INTERVAL_SECONDS) >= INTERVAL_SECONDS
            ]
            told = [self._waiting.pop(kind) for kind in due]
            self._told_at.update(dict.fromkeys(due, now))
        for each in told:
            self._tell(each)
