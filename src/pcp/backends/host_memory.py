"""Memory that this process frees is kept for its next call, instead of being given back to the system.

XLA on a processor allocates the temporaries of every call anew. The C library gives such large blocks back to the system as
soon as they are freed, and the system fills them with zeros, page by page, when the next call touches them: a quarter of the
time of a small training step. Settings of the C library keep blocks of up to 64 MiB, which is all that a heap of a thread
holds; larger ones a native library keeps, between XLA and the C library.
"""

import ctypes
import functools
import logging
import mmap
import os
from typing import Any

import numpy as np

from pcp.backends.base import Device, MemoryUse
from pcp.backends.switches import is_switched_off
from pcp.ir import TensorSpec
from pcp.kernels.native import NativeUnavailable, opened
from pcp.kernels.native.building import build_here
from pcp.systems import memory_bytes

log = logging.getLogger("pcp.backends")

VARIABLE = "PCP_KEEP_FREED_MEMORY"
"""`0` leaves the C library as it is."""
KEPT_BYTES = 256 << 20
"""Free memory beyond this, at the end of the heap, is given back."""
LARGE_BYTES = 16 << 20
"""A program whose calls take so many bytes has its temporaries kept."""
MOST = 4
"""Of the memory of the host a part of one in so many is kept as freed temporaries, at most."""
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


def keep_temporaries_of(memory: MemoryUse, platform: str) -> None:
    """Keep what XLA frees of large blocks from now on, if a call takes much memory of a processor, where that can be.

    The process takes no more memory for it than XLA did before: what is kept goes back before XLA gets new memory.
    """
    if platform == "cpu" and memory.peak >= LARGE_BYTES:
        _temporaries()


@functools.cache
def _temporaries() -> "ctypes.CDLL | None":
    """The library that keeps large blocks; None where there is none, or these are not to be kept."""
    if not keep_freed_memory():
        return None
    try:
        library = opened(build_here("temporaries"))
    except NativeUnavailable as error:
        log.info("temporaries of programs are new memory in every call: %s", error)
        return None
    library.pcp_keep_temporaries.argtypes = (ctypes.c_int64,)
    library.pcp_keep_temporaries.restype = ctypes.c_int64
    if not library.pcp_keep_temporaries(host_capacity() // MOST):
        log.info("temporaries of programs are new memory in every call: this build of XLA cannot be told")
    return library


def give_back_freed_memory() -> None:
    """Give what this process keeps back to the system, as what took much memory once will not need it again."""
    if _temporaries.cache_info().currsize and (library := _temporaries()) is not None:
        library.pcp_give_back_temporaries()
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
