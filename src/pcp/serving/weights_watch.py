"""Whether the files that a model was mapped from are still what they were."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

LOOK_SECONDS = 1.0
"""How often files are looked at, however many requests come."""


class WeightsWatch:
    """Files of weights, looked at again and again.

    A file that was replaced by another of its name leaves the mapped one as it was; one that was written to does not.

    Arguments:
        files: that are mapped.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._first = {file: _state(file) for file in files}
        self._looked_at = time.monotonic()
        self._changed: Path | None = None
        self.is_replaced = False

    def changed(self) -> Path | None:
        """A file that was written to since it was mapped."""
        if self._changed is None and time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = time.monotonic()
            for file, first in self._first.items():
                now = _state(file)
                if now == first:
                    continue
                if now is not None and first is not None and now[0] == first[0]:
                    self._changed = file
                else:
                    self.is_replaced = True
        return self._changed


def _state(file: Path) -> tuple[tuple[int, int], int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return (found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns
