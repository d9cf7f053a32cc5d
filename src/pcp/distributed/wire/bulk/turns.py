"""Who has the next turn: connections that have something to do, in few threads, workers in turn."""

import threading
from collections import Counter
from typing import Generic

from pcp.distributed.wire.fairness import FairQueue, Item


class Turns(Generic[Item]):
    """Hands connections to threads.

    Arguments:
        threads: of which one worker never has more than half, so that a slow digest of its blobs holds up nobody.
    """

    def __init__(self, threads: int) -> None:
        self._of_one = max(1, threads // 2)
        self._changed = threading.Condition()
        self._waiting: FairQueue[Item] = FairQueue()
        self._running: Counter[str] = Counter()
        self._closed = False

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for a thread."""
        return bool(self._waiting)

    def put(self, worker: str, item: Item) -> None:
        """Asks for a turn."""
        with self._changed:
            self._waiting.put(worker, item)
            self._changed.notify()

    def take(self) -> Item | None:
        """Waits for the next one; None once closed. `done` must follow."""
        with self._changed:
            while not self._closed:
                busy = frozenset(name for name, count in self._running.items() if count >= self._of_one)
                turn = self._waiting.get(busy)
                if turn is not None:
                    self._running[turn[0]] += 1
                    return turn[1]
                self._changed.wait()
            return None

    def done(self, worker: str) -> None:
        """Ends a turn."""
        with self._changed:
            self._running[worker] -= 1
            if not self._running[worker]:
                del self._running[worker]
            self._changed.notify()

    def close(self) -> None:
        """Lets every thread go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
