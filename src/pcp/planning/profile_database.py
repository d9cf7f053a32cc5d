"""The ProfileDatabase: every measurement ever made, in one SQLite file that several processes share.

Rows are only added. A row counts for the hardware and the versions that it was taken with; rows of others only say what is worth
trying first. Path descriptions are kept beside the measurements, so that the fastest path can be followed again.
"""

import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path as FilePath
from typing import Any, TextIO

from pcp.backends.cache import cache_folder
from pcp.errors import PCPError
from pcp.planning.measurement import Failure, Measurement
from pcp.planning.path import Path

log = logging.getLogger("pcp.planning.profile_database")

FORMAT = 1
BUSY_SECONDS = 30.0
_COLUMNS = [field.name for field in fields(Measurement)]
_LISTS = ("seconds", "plain_seconds")
_SCHEMA = f"""
create table if not exists measurements ({", ".join(_COLUMNS)}, unique ({", ".join(_COLUMNS)}));
create index if not exists by_subject on measurements (subject, hardware, versions);
create table if not exists paths (digest text primary key, description text);
create table if not exists hardware (digest text primary key, name text, facts text);
create table if not exists programs (digest text primary key, description text);
"""


class DatabaseUnusable(PCPError):
    """A profile database that is damaged, read-only, locked, or of a newer version."""


class InvalidRows(PCPError):
    """Rows to be merged that are no measurements."""


class ProfileDatabase:
    """Measurements in one file.

    Arguments:
        path: of the file, which is made with the first row; None takes the one in PCP's cache folder.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = FilePath(path) if path is not None else default_path()

    def add(self, measurement: Measurement, path: Path | None = None, hardware: Hardware | None = None) -> None:
        """Add a row, with the path and the hardware that it speaks of; other processes see it when this returns.

        Raises:
            DatabaseUnusable: the file cannot be written.
        """
        with self._connection(writing=True) as connection:
            _insert(connection, "measurements", dict(zip(_COLUMNS, _row(measurement), strict=True)))
            if path is not None:
                _insert(connection, "paths", {"digest": path.digest, "description": path.to_json()})
            if hardware is not None:
                _insert(connection, "hardware", {"digest": hardware.digest, **asdict(hardware)})

    def measurements(
        self, subject: str | None = None, hardware: str | None = None, versions: str | None = None
    ) -> list[Measurement]:
        """The rows, oldest first; of one subject, hardware or set of versions where given.

        Raises:
            DatabaseUnusable: the file cannot be read.
        """
        wanted = {"subject": subject, "hardware": hardware, "versions": versions}
        given = {name: value for name, value in wanted.items() if value is not None}
        where = " where " + " and ".join(f"{name} = :{name}" for name in given) if given else ""
        query = f"select {', '.join(_COLUMNS)} from measurements{where} order by \"when\", rowid"
        with self._connection(writing=False) as connection:
            return [_measurement(row) for row in connection.execute(query, given)] if connection else []

    def path(self, digest: str) -> Path | None:
        """The path of that digest, if it is known.

        Raises:
            DatabaseUnusable: the file cannot be read.
        """
        with self._connection(writing=False) as connection:
            query = "select description from paths where digest = ?"
            row = connection.execute(query, (digest,)).fetchone() if connection else None
        return None if row is None else Path.from_json(row[0])
