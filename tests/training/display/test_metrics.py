"""Records of metrics: written a line at a time, read back, and given to several sinks."""

import io
import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.training.display.metrics import (
    FanOut,
    JSONLinesFile,
    JSONLinesStream,
    MetricNotJSON,
    MetricsCorrupt,
    MetricSink,
    MetricsMissing,
    Record,
    curve,
    read_metrics,
)


def test_records_there_and_back(tmp_path: Path) -> None:
    records = [
        {"step": 1, "loss": 4.25, "event": "round", "workers": ["a", "b"], "nested": {"x": [1, None]}},
        {"step": 2, "loss": math.inf, "lowest": -math.inf},
    ]
    with JSONLinesFile(tmp_path / "run" / "metrics.jsonl") as sink:
        for record in records:
            sink.write(record)
            assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1] == record
    assert read_metrics(tmp_path / "run" / "metrics.jsonl") == records


def test_lines_are_strict_json(tmp_path: Path) -> None:
    with JSONLinesFile(tmp_path / "m") as sink:
        sink.write({"step": np.int64(3), "loss": np.float32(0.5), "other": [math.nan]})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    line = json.loads((tmp_path / "m").read_text(), parse_constant=refuse)
    assert line == {"step": 3, "loss": 0.5, "other": ["NaN"]}
    assert math.isnan(read_metrics(tmp_path / "m")[0]["other"][0])


def test_a_record_that_cannot_be_written_is_refused_whole(tmp_path: Path) -> None:
    with JSONLinesFile(tmp_path / "m") as sink:
        sink.write({"step": 1})
        with pytest.raises(
            MetricNotJSON, match=r"keys \['loss', 'step'\] cannot be written as JSON: .*ndarray"
        ):
            sink.write({"step": 2, "loss": np.ones(2)})
    assert read_metrics(tmp_path / "m") == [{"step": 1}]


@pytest.mark.parametrize("length", [10, 5000, 12_288])
def test_a_torn_last_line_is_left_out_and_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, length: int
) -> None:
    path = tmp_path / "m"
    path.write_bytes(b'{"step": 1}\n{"a": ' + b"x" * length)
    assert read_metrics(path) == [{"step": 1}]
    with caplog.at_level(logging.WARNING), JSONLinesFile(path) as sink:
        sink.write({"step": 2})
    assert f"ended in a torn line of {length + 6} bytes, which is cut off" in caplog.text
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]


def test_a_file_of_one_torn_line(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b'{"st')
    assert read_metrics(tmp_path / "m") == []
    with JSONLinesFile(tmp_path / "m") as sink:
        sink.write({"step": 2})
    assert read_metrics(tmp_path / "m") == [{"step": 2}]


def test_a_whole_file_is_continued_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for step in (1, 2):
        with JSONLinesFile(tmp_path / "m") as sink:
            sink.write({"step": step})
    assert read_metrics(tmp_path / "m") == [{"step": 1}, {"step": 2}]
    assert caplog.text == ""


@pytest.mark.parametrize("line", [b"{broken", b"[1]", b"\xff"])
def test_a_broken_line_inside_is_named(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "m").write_bytes(b'{"step": 1}\n\n' + line + b'\n{"step": 2}\n')
    with pytest.raises(MetricsCorrupt, match="line 3, is not a JSON object"):
        read_metrics(tmp_path / "m")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(MetricsMissing, match="There is no file of metrics at"):
        read_metrics(tmp_path / "m")


def test_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with JSONLinesStream() as sink:
        sink.write({"step": 1, "validation_loss": 1.5})
    assert capsys.readouterr().out == '{"step": 1, "validation_loss": 1.5}\n'


class Failing(MetricSink):
    """Cannot be closed."""

    def write(self, record: Record) -> None:
        """Take a record."""

    def close(self) -> None:
        """Fail."""
        raise OSError("cannot close")


def test_fan_out_closes_every_sink(tmp_path: Path) -> None:
    stream = io.StringIO()
    file = JSONLinesFile(tmp_path / "m")
    fan = FanOut([Failing(), JSONLinesStream(stream), file])
    fan.write({"step": 1})
    with pytest.raises(OSError, match="cannot close"):
        fan.close()
    assert stream.getvalue() == '{"step": 1}\n'
    assert read_metrics(tmp_path / "m") == [{"step": 1}]
    with pytest.raises(ValueError, match="closed file"):
        file.write({"step": 2})


def test_a_curve_takes_the_later_of_two_measurements() -> None:
    records = [
        {"step": 1, "loss": 4},
        {"step": 3, "loss": 2.5},
        {"step": 2, "loss": 3},
        {"step": 3, "loss": 2},
    ]
    records += [{"step": 9}, {"loss": 7}]
    assert curve(records, "loss") == ([1, 2, 3], [4.0, 3.0, 2.0])


def test_records_that_found_no_room_are_counted_and_leave_no_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    with JSONLinesFile(path) as file:
        file.write({"step": 1})
        with monkeypatch.context() as patch:
            patch.setattr(file, "_file", _Full(file._file))
            file.write({"step": 2})
            file.write({"step": 3})
        file.write({"step": 4})
    missing = {"event": "trouble", "message": "2 records are missing here: they could not be written"}
    assert read_metrics(path) == [{"step": 1}, missing, {"step": 4}]


class _Full:
    """A file on a disk that takes three more bytes of each write."""

    def __init__(self, file: Any) -> None:
        self.name, self.fileno, self.truncate, self._write = file.name, file.fileno, file.truncate, file.write

    def write(self, data: bytes) -> int:
        return int(self._write(data[:3]))
