"""Bounds what members may have written of themselves: the length of a record, and how many a second there are of each."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from pcp.training.display.metrics import MetricSink, Record

LETTERS, ENTRIES, DEPTH = 400, 1000, 6
"""Of a text, of a list or an object, and of what they hold."""
RECORD_LETTERS = 16_384
"""Of all texts of a record."""
ROWS_A_SECOND, ROWS_AT_ONCE = 5.0, 100.0
"""Of one member, or of one event that names no member, in the long run and after a pause."""
SUMMED = ("updates", "refused", "tokens", "trained_seconds", "count")
"""What records say of the time since the last; all else they say of now."""
_OF_MEMBERS = {"worker", "profile", "trouble", "refused", "audit"}
"""The events that members can cause; rounds and totals come at the Shepherd's own pace."""
_LOOK_SECONDS = 1.0


class Bounded(MetricSink):
    """Hands records on, cut, and no more of one member than so many a second.

    Records that come too fast are put together: the next that is handed on adds up what they counted, says what the last of
    them said, in `skipped` how many there were more, and in `joins` that a worker has joined since it was lost. So sums stay
    right, and what is shown is a little older.

    Arguments:
        sink: receives them; it is closed with this one.
        clock: seconds.
    """

    def __init__(self, sink: MetricSink, clock: Callable[[], float] = time.monotonic) -> None:
        self._sink, self._clock = sink, clock
        self._rooms: dict[
            tuple[str, str], tuple[float, float]
        ] = {}  # rows that may be written at once, and when that was
        self._waiting: dict[tuple[str, str], dict[str, Any]] = {}
        self._looked = clock()

    def write(self, record: Record) -> None:
        """Hand a record on, or keep it for the next of its member."""
        now, event = self._clock(), record.get("event")
        short = cut(record)
        if event not in _OF_MEMBERS:
            self._sink.write(short)
        else:
            whose = str(short.get("worker", "")), "" if "worker" in record else str(event)
            self._wait(whose, short)
            self._let_through(whose, now)
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            for each in list(self._waiting):
                self._let_through(each, now)
            self._rooms = {
                each: (room, at)
                for each, (room, at) in self._rooms.items()
                if now - at < ROWS_AT_ONCE / ROWS_A_SECOND
            }

    def close(self) -> None:
        """Hand on what waits, and close the sink."""
        for record in self._waiting.values():
            self._sink.write(record)
        self._waiting.clear()
        self._sink.close()

    def _wait(self, whose: tuple[str, str], record: dict[str, Any]) -> None:
        before = self._waiting.get(whose)
        if before is not None:
            sums = {
                key: before.get(key, 0) + record.get(key, 0)
                for key in SUMMED
                if key in before or key in record
            }
            joins = before.get("state") == "joining" or before.get("joins", False)
            if before.get("state") == "lost" and record.get("state") != "joining":
                record = record | {"state": "lost"}  # what ends with a worker does not bring it back
            record = before | record | sums | {"skipped": before.get("skipped", 0) + 1, "joins": joins}
            if record.get("state") == "lost" or not joins:
                del record["joins"]
        self._waiting[whose] = record

    def _let_through(self, whose: tuple[str, str], now: float) -> None:
        room, at = self._rooms.get(whose, (ROWS_AT_ONCE, now))
        room = min(ROWS_AT_ONCE, room + (now - at) * ROWS_A_SECOND)
        if room >= 1:
            room -= 1
            self._sink.write(self._waiting.pop(whose))
        self._rooms[whose] = (room, now)


def cut(record: Record) -> dict[str, Any]:
    """A record whose texts, lists and objects are no longer than they may be; its own keys stay."""
    left = RECORD_LETTERS

    def text(value: str) -> str:
        nonlocal left
        short = value[: min(LETTERS, max(0, left))]
        left -= len(short)
        return short if len(short) == len(value) else f"{short}…"

    def shortened(value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return text(value)
        if isinstance(value, Mapping):
            if depth >= DEPTH:
                return {}
            return {text(str(key)): shortened(each, depth + 1) for key, each in list(value.items())[:ENTRIES]}
        if isinstance(value, list | tuple):
            return [] if depth >= DEPTH else [shortened(each, depth + 1) for each in value[:ENTRIES]]
        return value

    return {str(key): shortened(value, 1) for key, value in record.items()}
