"""That a process trains in the folder of a run: it holds a lock for as long as it lives, and says in that file how it ended."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pcp.errors import PCPError
from pcp.systems import CLOSED_IN_CHILDREN, lock
from pcp.training.run_folder import RunFolder

_PATIENCE_SECONDS = 1.0
"""Who only looks holds the lock for a moment."""
_REASON_LETTERS = 300


class RunInUse(PCPError):
    """Another process trains in the folder of the run."""


@dataclass(frozen=True, slots=True)
class Life:
    """Of the process of a run of one process.

    Arguments:
        alive: whether it is there.
        complete: whether it trained to the end.
        reason: why it ended; None where it is there, or was killed.
    """

    alive: bool
    complete: bool = False
    reason: str | None = None


@contextmanager
def running(folder: RunFolder) -> Iterator[None]:
    """Be the process that trains there, until the block is done.

    Raises:
        RunInUse: another one does.
    """
    descriptor = os.open(folder.running_file, os.O_RDWR | os.O_CREAT | CLOSED_IN_CHILDREN, 0o644)
    try:
        until = time.monotonic() + _PATIENCE_SECONDS
        while not _taken(descriptor):
            if time.monotonic() >= until:
                raise RunInUse(
                    f"another process trains in {folder.path}; wait for its end or stop it, or begin another run with --run"
                )
            time.sleep(0.05)
        _tell(descriptor, b"")
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            _tell_end(descriptor, False, "interrupted")
            raise
        except Exception as error:
            _tell_end(descriptor, False, f"failed: {type(error).__name__}: {error}")
            raise
        _tell_end(descriptor, True, "the run is complete")
    finally:
        os.close(descriptor)


def life_of(folder: RunFolder) -> Life | None:
    """Of the process that trains or trained there; None where none ever did, or it cannot be known."""
    try:
        descriptor = os.open(folder.running_file, os.O_RDWR | CLOSED_IN_CHILDREN)
    except OSError:
        return None
    try:
        if not _taken(descriptor):
            return Life(alive=True)
        told = json.loads(os.read(descriptor, 1 << 16))
        return Life(False, told["complete"] is True, str(told["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Life(alive=False)
    finally:
        os.close(descriptor)


def _tell_end(descriptor: int, complete: bool, reason: str) -> None:
    _tell(descriptor, json.dumps({"complete": complete, "reason": reason[:_REASON_LETTERS]}).encode())


def _tell(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):  # a full disk
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, data)


def _taken(descriptor: int) -> bool:
    try:
        lock(descriptor, wait=False)
    except OSError:
        return False
    return True
