"""Memory that this process frees is kept for its next call, instead of being given back to the system.

XLA on a processor allocates the temporaries of every call anew. The C library gives such large blocks back to the system as
soon as they are freed, and the system fills them with zeros, page by page, when the next call touches them: a quarter of the
time of a small training step.
"""

import ctypes
import functools
import mmap
import os
from typing import Any

import numpy as np

from pcp.backends.base import Device
from pcp.backends.switches import is_switched_off
from pcp.ir import TensorSpec
from pcp.systems import memory_bytes

VARIABLE = "PCP_KEEP_FREED_MEMORY"
"""`0` leaves the C library as it is."""
KEPT_BYTES = 256 << 20
"""Free memory beyond this, at the end of the heap, is given back."""
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # parameters of mallopt, as malloc.h numbers them
SETTINGS_OF_MALLOC = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
"""Variables of the C library; where one is set, somebody has chosen already."""


@functools.cache
def keep_freed_memory() -> bool:
    """Whether this process keeps what it frees from now on.

    It does with glibc, unless the environment says otherwise, by `PCP_KEEP_FREED_MEMORY=0` or by settings of malloc's own.
    """
    if not _is_wanted() or not is_glibc():
        return False
    library = ctypes.CDLL(None)
    return bool(library.mallopt(_MMAP_MAX, 0) and library.mallopt(_TRIM_THRESHOLD, KEPT_BYTES))


def take_one_heap() -> bool:
    """Let all threads of this process allocate from one heap, whose freed memory is kept, too; returns whether they do.

    For a process that computes beside its main thread, in vectors of about one size. Memory that is needed for one large
    program after another lies in more pieces then. To be called before other threads allocate.
    """
    return keep_freed_memory() and bool(ctypes.CDLL(None).mallopt(_ARENA_MAX, 1))


def give_back_freed_memory() -> None:
    """Give what this process keeps back to the system, as what took much memory once will not need it again."""
    if keep_freed_memory():
        ctypes.CDLL(None).malloc_trim(0)


def _is_wanted() -> bool:
    is_off = is_switched_off(VARIABLE, "freed memory is kept")
    tuned = "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")
    return not is_off and not tuned and not any(name in os.environ for name in SETTINGS_OF_MALLOC)


def is_glibc() -> bool:
    """Whether the C library of this process is the one that can be told."""
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (AttributeError, OSError, ValueError):  # no such function, or no such name
        return False


def host_capacity() -> int:
    """The memory of the host, or of what this process may use of it, in bytes."""
    return min([memory_bytes(), *_cgroup_limits()])


def _cgroup_limits() -> list[int]:
    limits = []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):  # no such hierarchy, or "max"
            continue
    return limits


def is_read_only(array: np.ndarray[Any, Any]) -> bool:
    """Whether nobody in this process can write to its memory: it belongs to `bytes`, or to a file mapped for reading."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    if isinstance(base, memoryview):  # as `numpy.frombuffer` makes one
        base = base.obj
    return isinstance(base, bytes | mmap.mmap) and memoryview(base).readonly


def no_room(spec: TensorSpec, device: Device) -> str:
    """What to say where an argument finds no memory."""
    return (
        f"there is no memory left on {device} for an argument of {spec}, {spec.bytes} bytes; free others, or, for a "
        "processor, give a `numpy.memmap` of a file, opened with mode 'r', which is used where it lies"
    )
