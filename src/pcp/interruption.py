"""Compiling that Ctrl-C ends at once: what a compiler does in C++ cannot be interrupted, but waiting for it can."""

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

TERMINATED = 128 + signal.SIGTERM
"""The code of the `SystemExit` that SIGTERM raises in the command line."""
_A_MOMENT = 0.01

_abandoned: list[threading.Event] = []
"""Set when a thread is done that nobody waits for any more."""

_left_behind: list[threading.Thread] = []
"""Threads whose work may never end."""


def interruptible(call: Callable[[], T]) -> T:
    """The result of a call that holds no lock of Python for long; an exception that a signal raises leaves it alone.

    Signals come to the main thread only; in any other the call is made there and then.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    (result,) = all_of([call], 1)
    return result


def all_of(calls: Sequence[Callable[[], T]], at_once: int) -> list[T]:
    """The results of calls in other threads, so many at once; after an exception no further call begins.

    Raises:
        Exception: the first that a call raised.
    """
    waiting = deque(enumerate(calls))
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def begin(place: int, call: Callable[[], T]) -> None:
        try:
            results[place] = call()
        except BaseException as error:
            errors.append(error)

    def work(done: threading.Event) -> None:
        try:
            while waiting and not errors:
                with contextlib.suppress(IndexError):  # another thread was faster
                    place, call = waiting.popleft()
                    begin(place, call)
        finally:
            done.set()

    # Not by joining threads: one whose join was interrupted counts as ended in Python 3.11.
    begun: list[tuple[threading.Thread, threading.Event]] = []
    try:
        for _ in range(min(at_once, len(calls))):
            done = threading.Event()
            thread = threading.Thread(target=work, args=(done,), name="pcp-compile", daemon=True)
            begun.append((thread, done))  # before it starts, for Ctrl-C may come while it does
            thread.start()
        for _, done in begun:
            done.wait()
    except BaseException:
        waiting.clear()
        # One that has not come to its first line yet finds nothing to do.
        _abandoned.extend(done for thread, done in begun if thread.ident is not None)
        raise
    if errors:
        raise errors[0]
    return [results[place] for place in range(len(calls))]


def is_compiling() -> bool:
    """Whether a thread still compiles for nobody; the process then ends best without waiting for it."""
    return not all(done.is_set() for done in _abandoned)


def leave_behind(thread: threading.Thread) -> None:
    """Say of a thread that nobody waits for it any more, not even the end of the process."""
    _left_behind[:] = [each for each in _left_behind if each.is_alive()]
    _left_behind.append(thread)


def leave(code: int) -> int:
    """End the process here if a thread works for nobody; returns the code otherwise.

    Leaving Python would wait for a compiler, and takes libraries down under a thread that is in one of them, which aborts.
    """
    if is_compiling() or any(thread.is_alive() for thread in _left_behind):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)
    return code


@atexit.register
def _leave() -> None:
    """End a program that Ctrl-C ended, though a thread compiles: its libraries must not be taken down under it."""
    if not is_compiling():
        return
    if not isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
        for done in _abandoned:
            done.wait()
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def unraisable(report: Any, otherwise: Callable[[Any], object] = sys.__unraisablehook__) -> None:
    """A signal that came in a callback, where its exception would be lost, comes again; a hook for `sys.unraisablehook`."""
    if report.exc_type is KeyboardInterrupt:
        _come_again(signal.SIGINT)
    elif report.exc_type is SystemExit and getattr(report.exc_value, "code", None) == TERMINATED:
        _come_again(signal.SIGTERM)
    else:
        otherwise(report)


def _come_again(number: signal.Signals) -> None:
    """Send a signal to this process in a moment: an exception that it raised in here would be lost as the first was."""

    def send() -> None:
        time.sleep(_A_MOMENT)
        os.kill(os.getpid(), number)

    with contextlib.suppress(RuntimeError):  # Python ends anyway
        threading.Thread(target=send, name="pcp-signal", daemon=True).start()
