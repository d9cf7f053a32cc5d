"""What a process lives on: time, doing something later, and work beside its loop.

Shepherd and Worker are written for this interface. In production it is an asyncio loop and threads (`LoopRuntime`); in the
simulator it is virtual time.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from pcp.interruption import leave_behind

log = logging.getLogger("pcp.distributed.runtime")

Result = TypeVar("Result")
Work = Callable[[], Coroutine[Any, Any, Any]]
"""Makes a coroutine. In a thread it must not wait for anything but by blocking; in the simulator it waits for virtual time."""


class WorkLane(Protocol):
    """Work beside a loop, one piece after the other."""

    def submit(self, work: Work) -> None:
        """Do a piece of work after those before it."""

    def close(self, grace_seconds: float) -> bool:
        """Drop what waits, and give what is under way some time to end; returns whether it ended."""


class Runtime(Protocol):
    """What a process lives on. Everything is called, and calls back, in the process's loop, if nothing else is said."""

    def now(self) -> float:
        """Seconds of a clock that never goes back; from any thread."""

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later."""

    def soon(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do something as soon as the loop is free; from any thread."""

    def lane(self, name: str, deliver: Callable[[Any], None]) -> WorkLane:
        """Begin a lane.

        Arguments:
            name: of the lane, for display.
            deliver: receives what a piece of work returns, unless that is None.
        """


class LoopRuntime:
    """The running asyncio loop, and threads.

    Arguments:
        fail: receives an exception that nobody foresaw.
    """

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fail = fail

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """See `Runtime`."""
        self._loop.call_later(seconds, self._guarded, action)

    def soon(self, action: Callable[..., None], *arguments: Any) -> None:
        """See `Runtime`."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._guarded, action, *arguments)

    def lane(self, name: str, deliver: Callable[[Any], None]) -> "Lane":
        """See `Runtime`."""
        return Lane(
            name, lambda result: self.soon(deliver, result), lambda error: self.soon(self._fail, error)
        )

    def _guarded(self, action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
        except Exception as error:
            self._fail(error)


class Lane:
    """Runs work in a thread of its own, in the order in which it was submitted.

    The thread does not keep its process alive: work that never ends, such as a program with an endless loop, cannot hold up
    the end of the process.

    Arguments:
        name: of the thread.
        deliver: receives what a piece of work returns, unless that is None; called in the lane's thread.
        fail: receives an exception that a piece of work raised; the lane runs nothing after it.
    """

    def __init__(
        self, name: str, deliver: Callable[[Any], None], fail: Callable[[BaseException], None]
    ) -> None:
        self._deliver = deliver
        self._fail = fail
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
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
            leave_behind(self._thread)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (work := self._work.get()) is not None and not self._closed.is_set():
            try:
                result = finished(work())
            except BaseException as error:
                if not self._closed.is_set():
                    self._fail(error)
                return
            if result is not None and not self._closed.is_set():
                self._deliver(result)


def finished(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """What a coroutine returns that waits for nothing but by blocking this thread."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    coroutine.close()
    raise RuntimeError("a piece of work waits for a loop, but runs in a thread of its own")
