"""Folders of single processes in the folder for temporary files.

What was left behind by processes that were killed is removed when the next folder is made.
"""

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from pcp.errors import PCPError
from pcp.systems import CLOSED_IN_CHILDREN, NO_LINK, is_of_this_user, lock

log = logging.getLogger("pcp.temporary")

MEASURING = "pcp-bench-"
VERIFYING = "pcp-verify-"
LOWERING = "pcp-lower-"
WORKING = "pcp-worker-"
CONFINED = "pcp-confined-"
HOLDING_KEYS = "pcp-keys-"
LIKE_A_USERS = "run-"
"""Of the process that runs a kernel as a user would: nothing in it says whose it is."""
PREFIXES = (MEASURING, VERIFYING, LOWERING, WORKING, CONFINED, HOLDING_KEYS, LIKE_A_USERS)
OWNER = "owner"
_LEAST_BYTES = 1 << 20
"""Where less is free, a process that ended is taken to have found no room: memory in files ends it by a signal."""


class TemporaryFolderUnusable(PCPError):
    """The folder for temporary files is full, missing, or not to be written to."""


class TemporaryFolder:
    """A folder that is locked as long as its process lives, so that others know whether it was left behind; a context manager,
    which removes it.

    Arguments:
        prefix: of its name, one of `PREFIXES`.

    Raises:
        TemporaryFolderUnusable: it cannot be made.
    """

    def __init__(self, prefix: str = MEASURING) -> None:
        self._lock = -1
        parent = _parent()
        with written(parent):
            sweep(parent)
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            try:
                self._lock = os.open(self.path / OWNER, os.O_RDWR | os.O_CREAT | CLOSED_IN_CHILDREN, 0o600)
                lock(self._lock, wait=True)  # a sweep may look at it just now
                os.write(self._lock, _signed(self.path, f"{os.getpid()} {_start_time()}").encode())
            except BaseException:
                self.remove()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@contextlib.contextmanager
def written(folder: Path) -> Iterator[None]:
    """Whatever cannot be written in the block is the fault of a folder.

    Raises:
        TemporaryFolderUnusable: something could not be written.
    """
    try:
        yield
    except OSError as error:
        raise TemporaryFolderUnusable(unusable(folder, error)) from None


def unusable(folder: Path, error: OSError) -> str:
    """What is wrong with a folder for temporary files, and what to do."""
    place = folder.parent if folder.name.startswith(PREFIXES) else folder
    # NumPy says how much it wrote, and no number of an error.
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT) or "requested and" in str(error)
    remedy = "free some space there" if is_full else "make it a folder that you may write to"
    return (
        f"PCP needs the folder for temporary files, {place}, but: {error.strerror or error}; "
        f"{remedy}, or set TMPDIR to another folder"
    )


def check_room(folder: Path) -> None:
    """Look whether a process may have ended because its files found no room.

    Raises:
        TemporaryFolderUnusable: there is none left.
    """
    with written(folder):
        if shutil.disk_usage(folder).free < _LEAST_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def sweep(parent: Path) -> None:
    """Remove folders of this user and of PCP whose processes were killed: their locks went with them."""
    for folder in (path for prefix in PREFIXES for path in parent.glob(f"{prefix}*")):
        with contextlib.suppress(OSError):  # it is gone, or still in use
            facts = folder.lstat()
            if not stat.S_ISDIR(facts.st_mode) or not is_of_this_user(facts.st_uid):
                continue
            # Without O_CREAT: a folder without the file is one that is just being made.
            held = os.open(folder / OWNER, os.O_RDWR | CLOSED_IN_CHILDREN | NO_LINK)
            try:
                lock(held, wait=False)
                owner = os.read(held, 100).decode(errors="replace")
                # An empty file is one that is about to be locked; another text is of somebody else who uses this name.
                if owner == _signed(folder, owner.rpartition(" ")[0]):
                    shutil.rmtree(folder, ignore_errors=True)
                    log.info("removed %s, which process %s left behind", folder, owner.partition(" ")[0])
            finally:
                os.close(held)


def _signed(folder: Path, process: str) -> str:
    """The owner of a folder, with a mark by which PCP knows its own folders, and a reader does not know PCP."""
    return f"{process} {hashlib.sha256(f'pcp {folder.name} {process}'.encode()).hexdigest()[:16]}"


def _parent() -> Path:
    """What TMPDIR says, as it is: another folder in its place might be on a disk that is not meant for this."""
    return Path(os.environ.get("TMPDIR") or tempfile.gettempdir())


def _start_time() -> str:
    """When this process began, in ticks since the machine did, which tells it from a later one of the same number."""
    try:
        return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):  # not Linux
        return "0"
