"""A thread beside an event loop: one piece of work after another, whose results come back as events."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger("pcp.distributed.lane")

Event = TypeVar("Event")


class Lane(Generic[Event]):
    """Runs work in a thread of its own, in the order in which it was submitted.

    The thread does not keep its process alive: work that never ends, such as a program with an endless loop, cannot hold up
    the end of the process.

    Arguments:
        name: of the thread.
        deliver: receives what a piece of work returns, unless that is None; called in the lane's thread.
        fail: receives an exception that a piece of work raised; the lane runs nothing after it.
    """

    def __init__(
        self, name: str, deliver: Callable[[Event], None], fail: Callable[[BaseException], None]
    ) -> None:
        self._deliver = deliver
        self._fail = fail
        self._work: queue.SimpleQueue[Callable[[], Event | None] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Event | None]) -> None:
        """Run a piece of work after those before it."""
        self._work.put(work)

    def close(self, grace_seconds: float) -> bool:
        """Drop what waits, and give what runs some time to end.

        Returns:
            Whether it ended; if not, its result will be dropped.
        """
        self._closed.set()
        self._work.put(None)
        self._thread.join(grace_seconds)
        if self._thread.is_alive():
            log.warning("%s still works after %.1f s and is left behind", self._thread.name, grace_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._work.get()) is not None and not self._closed.is_set():
            try:
                event = work()
            except BaseException as error:
                if not self._closed.is_set():
                    self._fail(error)
                return
            if event is not None and not self._closed.is_set():
                self._deliver(event)
