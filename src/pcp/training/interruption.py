"""Ctrl-C between two statements that belong together: it waits until both are done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the block ends, then handle them as they would have been.

    A step gives away the memory of the state before it. An exception between that and the assignment of the new
    state would lose both, so a checkpoint could not be written. Outside of the main thread, where no signal
    arrives, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[tuple[int, FrameType | None]] = []

    def note(number: int, frame: FrameType | None) -> None:
        arrived.append((number, frame))

    before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        for number in before:
            signal.signal(number, note)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in dict.fromkeys(number for number, _ in arrived):
        signal.raise_signal(number)
