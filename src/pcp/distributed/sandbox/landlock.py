"""Landlock: what files a process may touch, by folders; it needs no privileges (Linux 5.13 and newer).

A process in a Landlock domain cannot trace processes outside of it, nor read their memory or environment through /proc.
From version 6 on (Linux 6.12) it cannot send them signals, nor connect to abstract Unix sockets of theirs.
"""

import ctypes
import os
import stat
from collections.abc import Iterable

from pcp.distributed.sandbox.kernel import SET_NO_NEW_PRIVILEGES, call, prctl

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_ASK_VERSION = 1
_PATH_BENEATH = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_FOLDER, REMOVE_FOLDER, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_FOLDER, MAKE_FILE, TRUNCATE = 1 << 7, 1 << 8, 1 << 14
DEVICE_CONTROL = 1 << 15
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_CONTROL

READ = READ_FILE | READ_FOLDER
LIST = READ_FOLDER
RUN = READ_FILE | EXECUTE
WRITE = READ | WRITE_FILE | REMOVE_FILE | REMOVE_FOLDER | MAKE_FOLDER | MAKE_FILE | TRUNCATE
USE_DEVICE = READ | WRITE_FILE | DEVICE_CONTROL

_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Rights to files by version, the lowest bits; later versions have as many as the fifth."""
_NETWORK = 0b11
_SCOPED = 0b11


def version() -> int:
    """The kernel's version of Landlock; 0 where it has none, or does not let processes use it."""
    try:
        return call(_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def restrict(version: int, rules: Iterable[tuple[str, int]]) -> None:
    """Take from this thread, and from all that it starts, every access to files but some; and TCP.

    Arguments:
        version: of Landlock.
        rules: a path, and what is allowed below it; paths that do not exist are left out.

    Raises:
        OSError: the kernel does not do it.
    """
    handled = (1 << _RIGHTS[min(version, 5)]) - 1
    attributes = (ctypes.c_uint64 * 3)(
        handled, _NETWORK if version >= 4 else 0, _SCOPED if version >= 6 else 0
    )
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = call(_CREATE_RULESET, ctypes.byref(attributes), size, 0)
    try:
        for path, rights in rules:
            _allow(ruleset, path, rights & handled)
        prctl(SET_NO_NEW_PRIVILEGES, 1)
        call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        # struct landlock_path_beneath_attr is packed: eight bytes, then four.
        rule = (ctypes.c_uint32 * 3)(rights & 0xFFFFFFFF, rights >> 32, place)
        call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(place)
