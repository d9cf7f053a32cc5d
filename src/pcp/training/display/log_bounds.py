"""Bounds what is logged, so that nobody whose words or doings are logged fills the disk below the log."""

import logging
import time
from collections.abc import Callable

LETTERS = 2000
"""Of a line that is no error of PCP's own; the traceback of one is as long as it is."""
LINES_A_SECOND, LINES_AT_ONCE = 20.0, 1000.0
"""Of one logger, in the long run and after a pause."""


class LogBounds(logging.Filter):
    """Cuts lines, and leaves out those of a logger that come too fast; its next one says how many those were.

    Arguments:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._rooms: dict[
            str, tuple[float, float]
        ] = {}  # lines that may be written at once, and when that was
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; errors always are."""
        now = self._clock()
        room, at = self._rooms.get(record.name, (LINES_AT_ONCE, now))
        room = min(LINES_AT_ONCE, room + (now - at) * LINES_A_SECOND)
        is_written = room >= 1 or record.exc_info is not None
        self._rooms[record.name] = (max(0.0, room - 1) if is_written else room, now)
        if not is_written:
            self._left_out[record.name] = self._left_out.get(record.name, 0) + 1
            return False
        text = record.getMessage()
        short = text if len(text) <= LETTERS else f"{text[:LETTERS]}…"
        if count := self._left_out.pop(record.name, 0):
            short = f"({count} lines were left out here) {short}"
        if short != text:
            record.msg, record.args = short, ()
        return True
