"""What a confined process takes of the disk: there is no limit of the kernel's for all its files together."""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path


def taken(folders: Iterable[Path], process: int | None = None) -> int:
    """Bytes on disk.

    Arguments:
        folders: whose files count, at any depth.
        process: whose open files count that have no name any more.
    """
    total = sum(_taken_below(folder) for folder in folders)
    return total + (0 if process is None else _nameless(process))


def _taken_below(folder: str | Path) -> int:
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # removed meanwhile
                if entry.is_dir(follow_symlinks=False):
                    total += _taken_below(entry.path)
                else:
                    total += 512 * entry.stat(follow_symlinks=False).st_blocks
    return total


def _nameless(process: int) -> int:
    sizes: dict[tuple[int, int], int] = {}
    with contextlib.suppress(OSError), os.scandir(f"/proc/{process}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                facts = os.stat(entry.path)
                if stat.S_ISREG(facts.st_mode) and not facts.st_nlink:
                    sizes[facts.st_dev, facts.st_ino] = 512 * facts.st_blocks
    return sum(sizes.values())
