"""Functions of the C library that Python does not offer; where the system lacks one, it does nothing."""

import ctypes
from collections.abc import Callable

from pcp.systems import c_library

_LIBRARY = c_library()


def _function(name: str, *types: type) -> Callable[..., object]:
    function = getattr(_LIBRARY, name, None)
    if function is None:
        return lambda *_: None
    function.argtypes = types
    return function  # type: ignore[no-any-return]  # ctypes looks it up


_sync_file_range = _function("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_fallocate = _function("fallocate", ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_malloc_trim = _function("malloc_trim", ctypes.c_size_t)


def write_back(descriptor: int, offset: int, count: int) -> None:
    """Begins to write a range of a file to its disk, so that `fsync` waits for little in the end."""
    _sync_file_range(descriptor, offset, count, 2)  # SYNC_FILE_RANGE_WRITE


def set_room_aside(descriptor: int, size: int) -> None:
    """Finds the place on the disk of a file that will be so large; where there is none, writing to it will tell."""
    _fallocate(descriptor, 1, 0, size)  # FALLOC_FL_KEEP_SIZE


def give_memory_back() -> None:
    """Returns free memory to the system: `malloc` keeps what lies between blocks that are in use."""
    _malloc_trim(0)
