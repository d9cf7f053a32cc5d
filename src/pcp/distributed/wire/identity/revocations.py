"""The list of certificates that were taken back: a text file, one serial number (hexadecimal) a line."""

import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from pcp.errors import PCPError

_log = logging.getLogger("pcp.wire.tls")


class RevocationListProblem(PCPError):
    """The list of revoked certificates cannot be read; nobody is let in on the strength of a missing list."""


class Revocations:
    """Serial numbers that are no longer valid, read again whenever their file changes.

    Arguments:
        path: the file. Each line holds a serial number and, after a space, a comment.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._state: tuple[int, int, int] | None = None
        self._serials: frozenset[int] = frozenset()

    def __contains__(self, serial: int) -> bool:
        """Whether a certificate was revoked.

        Raises:
            RevocationListProblem: the file is not there, or is not such a list.
        """
        return serial in self.serials()

    def serials(self) -> frozenset[int]:
        """All of them; the same object for as long as the file does not change.

        Raises:
            RevocationListProblem: the file is not there, or is not such a list.
        """
        with self._lock:
            self._refresh()
            return self._serials

    def add(self, serials: Iterable[int], comment: str = "") -> int:
        """Revokes certificates.

        Returns:
            How many were not revoked before.
        """
        new = [serial for serial in serials if serial not in self]
        with self._lock, open(self.path, "a", encoding="utf-8") as file:
            file.writelines(f"{serial:x} {comment}\n" for serial in new)
        return len(new)

    def _refresh(self) -> None:
        try:
            status = os.stat(self.path)
            state = (status.st_mtime_ns, status.st_size, status.st_ino)
            if state == self._state:
                return
            lines = self.path.read_text(encoding="utf-8").splitlines()
            self._serials = frozenset(int(line.split()[0], 16) for line in lines if line.strip())
            self._state = state
        except (OSError, ValueError) as error:
            raise RevocationListProblem(
                f"cannot read the list of revoked certificates {self.path}: {error}; "
                "restore it (an empty file revokes nobody)"
            ) from error
        _log.info("%d certificates are revoked by %s", len(self._serials), self.path)
