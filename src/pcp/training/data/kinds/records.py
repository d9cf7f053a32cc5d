"""Records with named fields, one after another: JSON lines, JSON, tables; and the text that a field of them holds."""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.training.data.kinds.plain_text import expect_file
from pcp.training.extras import import_extra

Record = dict[str, Any]
Placed = tuple[str, Record]
"""Where a record stands, for messages, and the record."""

_SHOWN = 60
_ROWS = 256
"""Of a Parquet file, brought to memory together."""


class RowUnreadable(PCPError):
    """A row of a file is not a record, or holds something else than text."""


class FieldMissing(PCPError):
    """A record lacks the field that is asked for, or it is not said which of several is meant."""


def json_lines(path: Path) -> Iterator[Placed]:
    """One JSON object a line; empty lines are left out.

    Raises:
        RowUnreadable: a line is something else.
        OSError: the file cannot be read.
    """
    expect_file(path)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _object(line, f"{path}, line {number},")


def json_document(path: Path) -> Iterator[Placed]:
    """The objects of a list, or one object.

    Raises:
        RowUnreadable: the file is no JSON, or holds something else.
        OSError: the file cannot be read.
    """
    expect_file(path)
    try:
        document = json.loads(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise RowUnreadable(f"{path} is not JSON: {error}") from None
    rows = document if isinstance(document, list) else [document]
    for number, row in enumerate(rows, 1):
        place = f"{path}, element {number},"
        if not isinstance(row, dict):
            raise RowUnreadable(
                f"{place} is {_short(row)}; expected an object with named fields, as in "
                '[{"text": "..."}, {"text": "..."}]'
            )
        yield place, row


def table(path: Path) -> Iterator[Placed]:
    """Rows of comma-separated values, or of tab-separated ones in a file named .tsv; the first row names the columns.

    Raises:
        RowUnreadable: a row has another number of fields, or is not in UTF-8.
        OSError: the file cannot be read.
    """
    expect_file(path)
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
        try:
            for row in rows:
                place = f"{path}, line {rows.line_num},"
                if None in row or None in row.values():
                    fields = sum(value is not None for value in row.values()) - (None in row)
                    fields += len(row.get(None) or ())
                    names = rows.fieldnames or ()
                    raise RowUnreadable(
                        f"{place} has {fields} fields; its first line names {len(names)}: {', '.join(names)}"
                    )
                yield place, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise RowUnreadable(f"{path}, after line {rows.line_num}, cannot be read: {error}") from None


def parquet(path: Path) -> Iterator[Placed]:
    """The rows of a Parquet file, a few at a time.

    Raises:
        MissingExtra: pyarrow is not installed.
        RowUnreadable: the file is damaged, or of something else.
        OSError: it cannot be read.
    """
    expect_file(path)
    package = import_extra("pyarrow.parquet", "parquet", f"Reading {path}")
    arrow = import_extra("pyarrow", "parquet", f"Reading {path}")
    number = 0
    try:
        with package.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS):
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number},", record
    except arrow.ArrowException as error:
        raise RowUnreadable(f"{path}, after row {number}, cannot be read as Parquet: {error}") from None


def chosen_field(record: Record, field: str, place: str) -> str:
    """The field that is meant: the one that is named; else `text`; else the only one that is text.

    Raises:
        FieldMissing: the record has no such field, or several might be meant.
    """
    strings = [name for name, value in record.items() if isinstance(value, str)]
    if field or "text" in record or len(strings) == 1:
        name = field or ("text" if "text" in record else strings[0])
        if name in record:
            return name
        raise FieldMissing(f"{place} has no field {field!r}; it has {', '.join(record) or 'none'}")
    raise FieldMissing(
        f"{place} has the fields {', '.join(record) or 'none'}; give the one that is the text, as in "
        f"--field {max(strings, key=lambda name: len(record[name]), default='text')}"
    )


def text_of(record: Record, field: str, place: str) -> str:
    """The text that a record has in a field.

    Raises:
        FieldMissing: it has no such field.
        RowUnreadable: there is no text in it.
    """
    text = record[chosen_field(record, field, place)]
    if not isinstance(text, str):
        raise RowUnreadable(f"{place} has {_short(text)} in its field {field!r}; expected text")
    return text


def _object(line: bytes, place: str) -> Placed:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
        raise RowUnreadable(f"{place} is not JSON: {reason}; it begins with {line[:_SHOWN]!r}") from None
    if not isinstance(record, dict):
        raise RowUnreadable(f"{place} is {_short(record)}; expected an object with named fields")
    return place, record


def _short(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=repr)
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
