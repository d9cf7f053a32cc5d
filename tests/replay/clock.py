"""A clock that goes on only where a test says so: searches by it end at the same measurement everywhere."""

import contextlib
import time
from collections.abc import Iterator

import pytest


class Clock:
    """Seconds that have passed."""

    def __init__(self) -> None:
        self.now = 0.0

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.now += max(0.0, seconds)

    @contextlib.contextmanager
    def started(self) -> Iterator[None]:
        """Every clock of Python's shows this one meanwhile, from 0 on, and sleeping lets it pass."""
        self.now = 0.0
        with pytest.MonkeyPatch.context() as patch:
            for name in ("monotonic", "perf_counter"):
                patch.setattr(time, name, lambda: self.now)
            patch.setattr(time, "time", lambda: 1e9 + self.now)
            patch.setattr(time, "sleep", self.pass_by)
            yield


CLOCK = Clock()
