"""Keeping Ctrl-C out of a training step, whose state would be lost with it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C, and SIGTERM where it has a handler, until the block is done.

    A step donates its state: between that and the moment when the new state has a name, an exception would leave
    neither. A second signal is not held back. Outside of the main thread nothing is: signals do not come there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    pending: list[tuple[int, FrameType | None]] = []

    def deliver(number: int, frame: FrameType | None) -> None:
        handler = handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    def hold(number: int, frame: FrameType | None) -> None:
        if pending:
            deliver(number, frame)
        pending.append((number, frame))

    held = [number for number in _SIGNALS if callable(handlers[number])]
    try:
        for number in held:
            signal.signal(number, hold)
        yield
    finally:
        for number in held:
            signal.signal(number, handlers[number])
    if pending:
        deliver(*pending[0])
