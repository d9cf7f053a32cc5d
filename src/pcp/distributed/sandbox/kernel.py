"""System calls that Python does not offer, on Linux."""

import ctypes
import os
import sys
from typing import Any

_libc = None if sys.platform == "win32" else ctypes.CDLL(None, use_errno=True)

SET_NO_NEW_PRIVILEGES = 38


def call(number: int, *arguments: Any) -> int:
    """Make a system call.

    Raises:
        OSError: it failed.
    """
    assert _libc is not None
    result = int(_libc.syscall(ctypes.c_long(number), *map(_wide, arguments)))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def prctl(option: int, value: int = 0) -> None:
    """Change how the kernel treats this thread.

    Raises:
        OSError: it did not.
    """
    assert _libc is not None
    if _libc.prctl(option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _wide(argument: Any) -> Any:
    """Whole numbers take a register; ctypes would pass the lower half of one."""
    return ctypes.c_long(argument) if isinstance(argument, int) else argument
