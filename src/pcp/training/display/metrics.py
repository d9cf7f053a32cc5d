"""Where measurements of a run go: one record, a flat dictionary, at a time, to any number of sinks.

A record of a training run carries `step` and what was measured at it: `loss`, `validation_loss`,
`tokens_per_second` or `samples_per_second`, `mfu`. Records that are about something else say so in `event`.
"""

import contextlib
import errno
import json
import logging
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

from pcp.errors import PCPError

logger = logging.getLogger("pcp.training.display.metrics")

Record = Mapping[str, Any]

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class MetricsCorrupt(PCPError):
    """A line inside a file of metrics is not a record."""


class MetricsMissing(PCPError):
    """There is no file of metrics at the path."""


class MetricNotJSON(PCPError):
    """A record holds a value that cannot be written."""


class MetricSink:
    """Something that takes records; a context manager that closes itself."""

    def write(self, record: Record) -> None:
        """Take one record."""
        raise NotImplementedError

    def close(self) -> None:
        """Finish; nothing may be written afterwards."""

    def __enter__(self) -> Self:
        """Return the sink itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the sink."""
        self.close()


class JSONLinesFile(MetricSink):
    """A file with one JSON object a line, each written whole and at once; an existing file is continued.

    Records that cannot be written, because the disk is full, are left out; the next one that can says how many.

    Arguments:
        path: the file; its folder is made if needed. A last line that a killed run left torn is cut off.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_torn_line(path)
        self._file = path.open("ab", buffering=0)
        self._lost = 0

    def write(self, record: Record) -> None:
        """Append one record; raises MetricNotJSON for a value that has no form in JSON."""
        lines = to_json_line(record).encode() + b"\n"
        if self._lost:
            message = f"{self._lost} records are missing here: they could not be written"
            lines = to_json_line({"event": "trouble", "message": message}).encode() + b"\n" + lines
        length = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._lost = 0
        except OSError as error:
            if not self._lost:
                logger.warning("%s lacks records from here on: %s", self._file.name, error)
            self._lost += 1
            with contextlib.suppress(OSError):
                self._file.truncate(length)  # no torn line stays

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JSONLinesStream(MetricSink):
    """One JSON object a line on a text stream, standard output unless told otherwise: what `--json` prints.

    Arguments:
        stream: where the lines go; it is not closed.
    """

    def __init__(self, stream: IO[str] | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream

    def write(self, record: Record) -> None:
        """Print one record; raises MetricNotJSON for a value that has no form in JSON."""
        self._stream.write(to_json_line(record) + "\n")
        self._stream.flush()


class Stamped(MetricSink):
    """Hands records on with the time at which they came, as `time`, in seconds since 1970.

    Arguments:
        sink: receives them; it is closed with this one.
    """

    def __init__(self, sink: MetricSink) -> None:
        self._sink = sink

    def write(self, record: Record) -> None:
        """Hand one record on."""
        self._sink.write({**record, "time": round(time.time(), 3)})

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()


class FanOut(MetricSink):
    """Gives each record to several sinks, in order.

    Arguments:
        sinks: they are closed with this one.
    """

    def __init__(self, sinks: Sequence[MetricSink]) -> None:
        self._sinks = tuple(sinks)

    def write(self, record: Record) -> None:
        """Give one record to every sink."""
        for sink in self._sinks:
            sink.write(record)

    def close(self) -> None:
        """Close every sink, also where closing one fails; the first failure is raised at the end."""
        failures: list[Exception] = []
        for sink in self._sinks:
            try:
                sink.close()
            except Exception as error:
                logger.warning("closing %s failed: %s", type(sink).__name__, error)
                failures.append(error)
        if failures:
            raise failures[0]


def to_json_line(record: Record) -> str:
    """Write a record as one line of strict JSON.

    Strict JSON has no non-finite numbers: they become the strings "NaN", "Infinity" and "-Infinity", which
    `read_metrics` turns back. Array scalars become numbers.

    Raises:
        MetricNotJSON: a value has no form in JSON.
    """
    try:
        return json.dumps({str(key): _plain(value) for key, value in record.items()}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise MetricNotJSON(
            f"A record of metrics with the keys {sorted(map(str, record))} cannot be written as JSON: {error}."
        ) from error


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read a file that JSONLinesFile wrote, also while it is being written or after its run was killed.

    Returns:
        The records in order. A torn last line is left out.

    Raises:
        MetricsMissing: there is no such file.
        MetricsCorrupt: a line before the last is not a record.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise MetricsMissing(
            f"There is no file of metrics at {path}. Give the file of a run that wrote one."
        ) from None
    # The part after the last newline is empty, or a line that is not finished.
    return [_parse(path, number, line) for number, line in enumerate(lines[:-1], start=1) if line.strip()]


class Tail:
    """The records of a file as they are added; an existing file is read from where it begins, or from its end.

    Arguments:
        path: the file; it may not be there yet.
        from_end: whether what is there already is left out.
    """

    def __init__(self, path: Path, from_end: bool = False) -> None:
        self._path = path
        self._offset = path.stat().st_size if from_end and path.exists() else 0
        self._lines = 0

    def read(self) -> Iterator[dict[str, Any]]:
        """The whole lines added since the last call; raises MetricsCorrupt for one that is no record."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset, self._lines = self._offset + len(line), self._lines + 1
                yield _parse(self._path, self._lines, line)


def curve(records: Iterable[Record], key: str) -> tuple[list[int], list[float]]:
    """Pick one measurement out of records, ordered by step; of a step measured twice the later one counts.

    A run that resumes from a checkpoint measures the steps after it again.

    Arguments:
        records: records, of which those with both `step` and the key are used.
    """
    values = {
        int(record["step"]): float(record[key]) for record in records if "step" in record and key in record
    }
    ordered = sorted(values)
    return ordered, [values[step] for step in ordered]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def restored(value: Any) -> Any:
    """A value of JSON that `to_json_line` wrote, with its non-finite numbers."""
    if isinstance(value, dict):
        return {key: restored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [restored(item) for item in value]
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise MetricsCorrupt(
            f"{path}, line {number}, is not a JSON object: {line[:60]!r}. Remove the line to read the others."
        )
    return {key: restored(value) for key, value in record.items()}


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        content_end = end
        while content_end:
            start = max(0, content_end - 4096)
            file.seek(start)
            newline = file.read(content_end - start).rfind(b"\n")
            if newline >= 0:
                content_end = start + newline + 1
                break
            content_end = start
        if content_end < end:
            logger.warning("%s ended in a torn line of %d bytes, which is cut off", path, end - content_end)
            file.truncate(content_end)
