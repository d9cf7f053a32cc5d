"""The lock on a run's folder, which the Shepherd before this one may hold for a moment still."""

import time
from pathlib import Path

from pcp.distributed.coordinator import DirectoryStorage, RunLocked

POLL_SECONDS = 0.25


def locked(directory: Path, patience_seconds: float) -> DirectoryStorage:
    """The storage of a run's log, once nobody else holds it.

    Raises:
        RunLocked: another process holds it for longer than that.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            return DirectoryStorage(directory)
        except RunLocked:
            if time.monotonic() >= deadline:
                raise
        time.sleep(POLL_SECONDS)
