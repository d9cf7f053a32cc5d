"""The SQLite file of a profile database: opened, shared between processes, and refused with an explanation where that fails."""

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pcp.errors import PCPError

log = logging.getLogger("pcp.planning.profile.file")

Step = str | Callable[[sqlite3.Connection], None]
"""A statement, or what a function does."""

FORMAT = 5
_POLL_SECONDS = 0.01
_ELSEWHERE = "make it a file that you may write, or set PCP_CACHE_DIR to another folder"


class DatabaseUnusable(PCPError):
    """A profile database that is damaged, read-only, locked, or of a newer version."""


class ProfileFile:
    """Transactions on a file.

    Arguments:
        file: made by the first one that writes.
        schema: statements that make its tables.
        migrations: steps that make the next format's tables from an older one's, by its number.
        busy_seconds: how long to wait for other processes that write.
    """

    def __init__(
        self,
        file: Path,
        schema: tuple[str, ...],
        migrations: Mapping[int, tuple[Step, ...]],
        busy_seconds: float,
    ) -> None:
        self.file = file
        self._schema, self._migrations = schema, migrations
        self._busy_seconds = busy_seconds

    def rows(
        self, query: str, values: Mapping[str, object] | tuple[object, ...] = (), since: int = 1
    ) -> list[tuple[Any, ...]]:
        """What a query finds; nothing where there is no file yet. A file of an older format is brought to today's first.

        Arguments:
            query, given: in SQL, and its parameters.
            since: the first format that has its tables; nothing is found in a file of an older one that may not be written.

        Raises:
            DatabaseUnusable: the file cannot be read.
        """
        if not self.file.exists():
            return []
        with self._open(writing=False) as connection:
            known = self._format(connection)
            if known == FORMAT or not known or not self._is_writable:
                return connection.execute(query, values).fetchall() if known >= since else []
        with self.writing() as connection:
            return connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction, done whole or not at all, and the tables for it.

        Raises:
            DatabaseUnusable: the file cannot be written.
        """
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise self._unusable(f"its folder cannot be made: {error.strerror}", _ELSEWHERE) from None
        with self._open(writing=True) as connection:
            if not self._format(connection):
                self._share(connection)
            connection.execute("begin immediate")
            for step in self._missing(self._format(connection)):
                if isinstance(step, str):
                    connection.execute(step)
                else:
                    step(connection)
            yield connection
            connection.execute("commit")

    def vacuum(self) -> None:
        """Give back the room that removed rows took, if no process is in the way."""
        try:
            with self._open(writing=True) as connection:
                connection.execute("vacuum")
        except DatabaseUnusable as error:
            log.info("the room that was freed is kept for later rows: %s", error)

    def damaged(self, what: str) -> DatabaseUnusable:
        """The exception for contents that are not what PCP writes."""
        return self._unusable(
            f"it is damaged ({what}); expected an SQLite database that PCP made",
            "move it away; it is measured anew, or merged from an export",
        )

    @contextlib.contextmanager
    def _open(self, *, writing: bool) -> Iterator[sqlite3.Connection]:
        try:
            # Where nobody may write, SQLite cannot make the files that readers share, so it must be told.
            mode = "rwc" if writing else "rw" if self._is_writable else "ro&immutable=1"
            with contextlib.closing(
                sqlite3.connect(
                    f"{self.file.absolute().as_uri()}?mode={mode}",
                    timeout=self._busy_seconds,
                    isolation_level=None,
                    uri=True,
                )
            ) as connection:
                yield connection
        except sqlite3.Error as error:
            raise self._explained(error) from None

    @property
    def _is_writable(self) -> bool:
        return os.access(self.file, os.W_OK) and os.access(self.file.parent, os.W_OK)

    def _missing(self, present: int) -> list[Step]:
        """Steps that bring a file of one format to today's."""
        if present == FORMAT:
            return []
        steps = [step for older in range(present, FORMAT) for step in self._migrations.get(older, ())]
        return [*(steps if present else self._schema), f"pragma user_version = {FORMAT}"]

    def _format(self, connection: sqlite3.Connection) -> int:
        """The format of the tables; 0 where there are none."""
        # In this order: another process may make them just now, and writes the version last.
        [tables] = connection.execute("select count(*) from sqlite_master").fetchone()
        [present] = connection.execute("pragma user_version").fetchone()
        if present > FORMAT:
            raise self._unusable(
                f"it has format {present}, this version of PCP reads up to {FORMAT}",
                "update planetary-compute-protocol",
            )
        if tables and not present:
            raise self._unusable(
                "it is an SQLite database of something else; expected one that PCP made", _ELSEWHERE
            )
        return int(present)

    def _share(self, connection: sqlite3.Connection) -> None:
        """Let readers read while another process writes. SQLite does not wait by itself where two processes do this."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                [mode] = connection.execute("pragma journal_mode = wal").fetchone()
                break
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
        if mode != "wal":
            log.info("%s is on a file system without shared memory; processes wait for each other", self.file)

    def _explained(self, error: sqlite3.Error) -> DatabaseUnusable:
        code = _code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._unusable(
                f"another process has kept it locked for {self._busy_seconds:g} s",
                "end that process, or wait for it (`fuser FILE` names it)",
            )
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return self.damaged(str(error))
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return self._unusable(f"it cannot be opened or written ({error})", _ELSEWHERE)
        return self._unusable(str(error), _ELSEWHERE)

    def _unusable(self, what: str, remedy: str) -> DatabaseUnusable:
        return DatabaseUnusable(f"the profile database {self.file} is not usable: {what}; {remedy}")


def _code(error: sqlite3.Error) -> int:
    """The primary code: the lowest byte; the others say more than is needed."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
