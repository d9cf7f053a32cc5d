"""The ProfileDatabase: every measurement ever made, in one SQLite file that several processes share.

Rows are only added. A row counts for the hardware and the versions that it was taken with; rows of others only say what is
worth trying first. Path descriptions are kept beside the measurements, so that the fastest path can be followed again, and
regions, so that what was measured of them says something of similar ones.
"""

import contextlib
import json
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path as FilePath
from statistics import median
from typing import Any

from pcp.errors import PCPError
from pcp.folders import cache_folder
from pcp.ir.program_file import write_atomically
from pcp.planning.measuring.hardware import Hardware
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.measurement_text import InvalidRows, judgement_of, judgement_text
from pcp.planning.paths.checks import NotAPath
from pcp.planning.paths.path import Path
from pcp.planning.profile.file import DatabaseUnusable as DatabaseUnusable
from pcp.planning.profile.file import ProfileFile, Step
from pcp.planning.profile.rows import (
    LONGEST_LINE,
    About,
    Region,
    Row,
    current_label,
    digest_of,
    digest_written,
    line_of,
    row_of,
)
from pcp.planning.profile.shared import KEPT_ROWS, RECEIVED, Shared, measurement_of_shared

BUSY_SECONDS = 30.0
_COLUMNS = [field.name for field in fields(Measurement)]
_LISTED = ", ".join(f'"{name}"' for name in _COLUMNS)
_REGIONS = ("create table regions (digest text primary key, packed blob not null)",)
_AGREEMENTS = ("create table agreements (digest text primary key, sketch blob not null)",)
_SCHEMA = (
    f"create table measurements (digest text primary key, {_LISTED})",
    "create index by_subject on measurements (subject, hardware, versions)",
    "create table paths (digest text primary key, description text not null)",
    "create table hardware (digest text primary key, name text not null, facts text not null)",
    "create table subjects (digest text primary key, about text not null)",
    *_REGIONS,
    *_AGREEMENTS,
)


def _rename_kernels(connection: sqlite3.Connection) -> None:
    """Give rows and paths the names that kernels have now; what is damaged stays, and is refused where it is read."""
    renamed = {}
    for digest, description in connection.execute("select digest, description from paths").fetchall():
        with contextlib.suppress(NotAPath):
            path = Path.from_json(description)
            renamed[digest] = path.digest
            connection.execute(
                "update or replace paths set digest = ?, description = ? where digest = ?",
                (path.digest, path.to_json(), digest),
            )
    for digest, *row in connection.execute(f"select digest, {_LISTED} from measurements").fetchall():
        label = row[_COLUMNS.index("path")]
        name = renamed.get(label, current_label(label))
        if name == label:
            continue
        with contextlib.suppress(ValueError, AttributeError, InvalidRows):
            measurement = replace(_measurement_of(row), path=name)
            connection.execute(
                "update or replace measurements set digest = ?, path = ? where digest = ?",
                (digest_of(measurement), name, digest),
            )


_MIGRATIONS: dict[int, tuple[Step, ...]] = {
    1: (
        *_REGIONS,
        "alter table measurements add column judgement",
        # Format 1 judged what float32 misses on float32's own scale.
        "update measurements set error = null, plain_error = null",
        "delete from measurements where failure = 'inaccurate'",
    ),
    2: (),
    # Format 3 kept digests of results.
    3: ("drop table if exists agreements", *_AGREEMENTS),
    # In format 4 the storages of kernels were words of their names.
    4: (_rename_kernels,),
}
"""What makes the next format's tables from an older one's."""
_FORGET_ONE = "delete from measurements where hardware = ? and subject = ? and path = ?"
_FORGET_OLD = """delete from measurements where hardware = ? and rowid not in
                 (select rowid from measurements where hardware = ? order by rowid desc limit ?)"""
_ORPHANS = (
    "delete from paths where digest not in (select path from measurements)",
    "delete from hardware where digest not in (select hardware from measurements)",
    "delete from subjects where digest not in (select subject from measurements)",
    "delete from regions where digest not in (select subject from measurements)",
    "delete from agreements",  # which are soon found again
)


class NothingToPrune(PCPError):
    """Pruning without a condition would remove every measurement."""


class ProfileDatabase:
    """Measurements in one file.

    Every method opens the file anew, so one object may be used by several threads and survives a fork. It raises
    DatabaseUnusable where the file cannot be read or written.

    Arguments:
        file: which is made with the first row; None takes `profile.sqlite` in PCP's cache folder.
        busy_seconds: how long to wait for other processes that write.
    """

    def __init__(
        self, file: str | os.PathLike[str] | None = None, *, busy_seconds: float = BUSY_SECONDS
    ) -> None:
        self.file = FilePath(file) if file is not None else cache_folder() / "profile.sqlite"
        self._file = ProfileFile(self.file, _SCHEMA, _MIGRATIONS, busy_seconds)

    def add(
        self,
        measurement: Measurement,
        *,
        path: Path | None = None,
        hardware: Hardware | None = None,
        about: str | None = None,
        region: Region | None = None,
    ) -> None:
        """Add a row; other processes see it when this returns. A row that is there already is not added again.

        Arguments:
            about: what its subject is, for people, in one line.
            region: its subject, where that is the region of a site.
        """
        rows: list[Row] = [measurement]
        rows += [row for row in (path, hardware, region) if row is not None]
        self.add_all(rows + ([About(measurement.subject, about)] if about is not None else []))

    def add_all(self, rows: Iterable[Row]) -> int:
        """Add rows, all or none; how many measurements were not there yet."""
        with self._file.writing() as connection:
            return sum(_insert(connection, row) for row in rows)

    def receive(self, rows: Iterable[Shared]) -> int:
        """Keep what others say of kernels, under a hardware that no machine has: it orders what is tried, and decides nothing.

        Of one kernel and region the last word counts, and of all the newest are kept.

        Returns:
            How many were not there yet.
        """
        when = time.time()
        with self._file.writing() as connection:
            count = 0
            for row in rows:
                connection.execute(_FORGET_ONE, (RECEIVED, row[0], current_label(row[1])))
                count += _insert(connection, measurement_of_shared(row, when))
            connection.execute(_FORGET_OLD, (RECEIVED, RECEIVED, KEPT_ROWS))
        return count

    def measurements(
        self,
        subject: str | None = None,
        hardware: str | None = None,
        versions: str | None = None,
        path: str | None = None,
    ) -> list[Measurement]:
        """The rows, oldest first; of one subject, hardware, set of versions or path where given."""
        wanted = {"subject": subject, "hardware": hardware, "versions": versions, "path": path}
        conditions = {name: value for name, value in wanted.items() if value is not None}
        where = " where " + " and ".join(f"{name} = :{name}" for name in conditions) if conditions else ""
        query = f'select {_LISTED} from measurements{where} order by "when", rowid'
        return [self._measurement(row) for row in self._file.rows(query, conditions, since=2)]

    def ranking(self, subject: str, hardware: str, versions: str | None = None) -> list[str]:
        """The paths that were ever measured of a subject, most promising first: an order to try them in, not a choice.

        A path counts by its time relative to the plain path's, as measured here, else with other versions, else on other
        hardware. Those that always failed come last.

        Arguments:
            subject: digest of the program or region.
            hardware, versions: of here.
        """
        by_path: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in self.measurements(subject):
            distance = (
                2 if row.hardware != hardware else int(versions is not None and row.versions != versions)
            )
            by_path[row.path][distance].append(row.ratio)
        promise = {path: median(ratios[min(ratios)]) for path, ratios in by_path.items()}
        return sorted(promise, key=lambda path: (promise[path], path))

    def path_of(self, digest: str) -> Path | None:
        """The path of that digest, if it is known."""
        rows = self._file.rows("select description from paths where digest = ?", (digest,))
        try:
            return Path.from_json(rows[0][0]) if rows else None
        except NotAPath as error:
            raise self._file.damaged(str(error)) from None

    def agreed(self, asked: str) -> bytes | None:
        """What was entered as agreed, a sketch of right results or what a search came to, by the digest of what was asked."""
        rows = self._file.rows("select sketch from agreements where digest = ?", (asked,), since=4)
        return rows[0][0] if rows else None

    def agree(self, asked: str, sketch: bytes) -> None:
        """Enter the sketch of results that are right, or what a search came to; it takes the place of an older one."""
        with self._file.writing() as connection:
            connection.execute("insert or replace into agreements values (?, ?)", (asked, sketch))

    def hardware(self) -> dict[str, Hardware]:
        """All hardware that measurements were taken on, by digest."""
        rows = self._file.rows("select digest, name, facts from hardware order by name, digest")
        return {digest: Hardware(name, facts) for digest, name, facts in rows}

    def subjects(self) -> dict[str, str]:
        """What each subject is, for people, by digest; empty where nobody said."""
        query = """select distinct subject, coalesce(about, '') from measurements
                   left join subjects on subjects.digest = subject order by subject"""
        return dict(self._file.rows(query))

    def regions(self, digests: Collection[str] | None = None) -> dict[str, Region]:
        """The regions that are kept, by digest.

        Arguments:
            digests: of those that are wanted; None for all.
        """
        rows = self._file.rows("select digest, packed from regions", since=2)
        return {
            digest: Region(digest, packed) for digest, packed in rows if digests is None or digest in digests
        }

    def of_regions(self, family: str, hardware: str, versions: str, most: int) -> list[Measurement]:
        """The rows of a family's kernels at regions that are kept, the newest first."""
        query = f"""select {_LISTED} from measurements where hardware = ? and versions = ? and path glob ?
                    and subject in (select digest from regions) order by "when" desc, rowid desc limit ?"""
        return [
            self._measurement(row)
            for row in self._file.rows(query, (hardware, versions, f"{family}.*", most), since=2)
        ]

    def export(self, file: str | os.PathLike[str], subject: str | None = None) -> int:
        """Write everything, or what concerns one subject, as lines of JSON for `merge`; how many measurements that is.

        Raises:
            DatabaseUnusable: the database cannot be read.
            OSError: the file cannot be written; it is whole or as before.
        """
        rows = self.measurements(subject)
        hardware, subjects = self.hardware(), self.subjects()
        paths = map(self.path_of, sorted({row.path for row in rows}))
        beside: list[Row] = [path for path in paths if path is not None]
        beside += [
            hardware[digest] for digest in sorted({row.hardware for row in rows}) if digest in hardware
        ]
        beside += [
            About(each, subjects[each]) for each in sorted({row.subject for row in rows}) if subjects[each]
        ]
        beside += self.regions({row.subject for row in rows}).values()
        write_atomically(FilePath(file), "".join(line_of(row) + "\n" for row in [*beside, *rows]).encode())
        return len(rows)

    def merge(self, file: str | os.PathLike[str]) -> int:
        """Add the rows of a file that `export` wrote, all or none; how many measurements were not here yet.

        Raises:
            InvalidRows: a line is no row; nothing is added.
            DatabaseUnusable: the database cannot be written.
            OSError: the file cannot be read.
        """
        rows: list[Row] = []
        renamed: dict[str, str] = {}
        with open(file, "rb") as lines:
            for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), b""), 1):
                try:
                    if len(line) > LONGEST_LINE:
                        raise InvalidRows(f"it is longer than {LONGEST_LINE} bytes")
                    row = row_of(line.decode())
                    if isinstance(row, Path):
                        renamed[digest_written(line.decode())] = row.digest
                    rows.append(row)
                except (InvalidRows, UnicodeDecodeError) as error:
                    raise InvalidRows(
                        f"line {number} of {os.fspath(file)} is not a row of a profile: {error}; nothing was merged; "
                        "give a file that `pcp profile export` wrote"
                    ) from None
        return self.add_all(
            replace(row, path=renamed.get(row.path, row.path)) if isinstance(row, Measurement) else row
            for row in rows
        )

    def prune(
        self,
        *,
        before: float | None = None,
        subject: str | None = None,
        hardware: str | None = None,
        other_hardware_than: str | None = None,
        other_versions_than: str | None = None,
    ) -> int:
        """Remove the measurements that fulfil every condition given, and what only they named; how many they were.

        Arguments:
            before: older than this, in seconds since 1970.
            subject: of this program or region.
            hardware: of this hardware.
            other_hardware_than: of any but this hardware.
            other_versions_than: of any but these versions.

        Raises:
            NothingToPrune: no condition is given.
            DatabaseUnusable: the file cannot be written.
        """
        conditions = {
            '"when" < ?': before,
            "subject = ?": subject,
            "hardware = ?": hardware,
            "hardware <> ?": other_hardware_than,
            "versions <> ?": other_versions_than,
        }
        stated = {text: value for text, value in conditions.items() if value is not None}
        if not stated:
            raise NothingToPrune(
                "no condition was given; name the age, program, hardware or versions to remove"
            )
        if not self.file.exists():
            return 0
        with self._file.writing() as connection:
            query = f"delete from measurements where {' and '.join(stated)}"
            count = connection.execute(query, tuple(stated.values())).rowcount
            for statement in _ORPHANS:
                connection.execute(statement)
        self._file.vacuum()
        return count

    def _measurement(self, row: tuple[Any, ...]) -> Measurement:
        try:
            return _measurement_of(row)
        except (ValueError, AttributeError, InvalidRows):
            raise self._file.damaged(f"a row holds {row!r:.80}") from None


def _measurement_of(row: Sequence[Any]) -> Measurement:
    fields = dict(zip(_COLUMNS, row, strict=True))
    for name in ("seconds", "plain_seconds"):
        fields[name] = tuple(map(float, fields[name].split()))
    fields["failure"] = None if fields["failure"] is None else Failure(fields["failure"])
    fields["judgement"] = judgement_of(json.loads(fields["judgement"] or "null"))
    return Measurement(**fields)


def _insert(connection: sqlite3.Connection, row: Row) -> int:
    """Add a row; 1 if it is a measurement that was not there."""
    match row:
        case Measurement():
            failure = None if row.failure is None else row.failure.at_site
            row = replace(row, path=current_label(row.path), failure=failure)
            values: dict[str, Any] = {name: getattr(row, name) for name in _COLUMNS}
            for name in ("seconds", "plain_seconds"):
                values[name] = " ".join(map(repr, values[name]))
            values["failure"] = None if failure is None else failure.value
            values["judgement"] = judgement_text(row.judgement)
            table, values = "measurements", {"digest": digest_of(row), **values}
        case Path():
            table, values = "paths", {"digest": row.digest, "description": row.to_json()}
        case Hardware():
            table, values = "hardware", {"digest": row.digest, "name": row.name, "facts": row.facts}
        case About():
            table, values = "subjects", {"digest": row.digest, "about": row.text}
        case Region():
            table, values = "regions", {"digest": row.digest, "packed": row.packed}
    names = ", ".join(f'"{name}"' for name in values)
    marks = ", ".join("?" * len(values))
    done = connection.execute(
        f"insert or ignore into {table} ({names}) values ({marks})", tuple(values.values())
    )
    return done.rowcount if table == "measurements" else 0
