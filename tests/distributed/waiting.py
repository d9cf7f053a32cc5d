"""Waiting for what other threads and processes do, with a deadline."""

import time
from collections.abc import Callable
from pathlib import Path


def wait_until(condition: Callable[[], bool], seconds: float = 100.0) -> None:
    """Look again and again until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come to pass within {seconds} s"
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"
