"""One process at a time: a right that a file stands for, and that ends with the process that holds it."""

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pcp.systems import CLOSED_IN_CHILDREN, lock

_POLL_SECONDS = 0.05


@contextlib.contextmanager
def turn(
    file: Path, longest: float, log: logging.Logger, *, unavailable: str, waiting: str, gave_up: str
) -> Iterator[None]:
    """Hold the right that a file stands for. Where it cannot be had, or not in time, the caller goes on without it.

    Arguments:
        file: made, with its folder, where it is missing.
        longest: seconds to wait for another process.
        log: is told the following.
        unavailable: what follows where the file cannot be made, or locked.
        waiting: for what.
        gave_up: what follows where another process keeps the right for longer.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = os.open(file, os.O_RDWR | os.O_CREAT | CLOSED_IN_CHILDREN, 0o600)
    except OSError as error:
        log.info("%s: %s", unavailable, error)
        yield
        return
    try:
        if not _locked(held, 0.0):
            log.info(waiting)
            if not _locked(held, longest):
                log.warning("%s was held for %.0f s by another process; %s", file, longest, gave_up)
        yield
    finally:
        os.close(held)


def _locked(held: int, longest: float) -> bool:
    """Whether the lock could be had in time."""
    deadline = time.monotonic() + longest
    while True:
        try:
            lock(held, wait=False)
            return True
        except OSError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
