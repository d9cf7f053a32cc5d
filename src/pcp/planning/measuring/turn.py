"""Taking turns in measuring: processes that measure at the same time disturb each other's times."""

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger("pcp.planning.search")

_POLL_SECONDS = 0.1


@contextlib.contextmanager
def turn(file: Path, longest: float) -> Iterator[None]:
    """Wait until no other process with the same file measures; the turn ends with the process, however that ends.

    Arguments:
        file: that stands for the turn.
        longest: seconds to wait; the caller then goes on, and is told in the log that its times are disturbed.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        log.info("other processes may measure at the same time: %s", error)
        yield
        return
    try:
        _wait(lock, file, longest)
        yield
    finally:
        os.close(lock)


def _wait(lock: int, file: Path, longest: float) -> None:
    deadline = time.monotonic() + longest
    told = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            if time.monotonic() >= deadline:
                log.warning("another process holds %s and measures too; times are disturbed", file)
                return
            if not told:
                log.info("another process measures; waiting for it")
                told = True
            time.sleep(_POLL_SECONDS)
