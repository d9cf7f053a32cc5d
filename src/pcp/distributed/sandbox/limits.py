"""What a confined process may use up, and what it may do as an administrator: nothing."""

import contextlib
import ctypes
import os
import threading
from typing import Any

from pcp.distributed.sandbox.kernel import call

try:
    import resource
except ModuleNotFoundError:  # Windows has no limits of this kind
    resource = None  # type: ignore[assignment]  # asked for before each use

_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522


def give_up_privileges() -> None:
    """Give up every capability: a container's root has some, such as that to raise limits.

    Raises:
        OSError: the kernel does not do it.
    """
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    call(_CAPSET[os.uname().machine], ctypes.byref(header), ctypes.byref(nothing))


def limit(limits: dict[str, Any]) -> None:
    """Lower the limits of this process; those that are lower already stay.

    Arguments:
        limits: `open_files`, `file_bytes`, `cpu_seconds` and `threads`; those that are missing or None stay.
    """
    if resource is None:
        return
    _lower(resource.RLIMIT_CORE, 0)
    kinds = {
        "open_files": resource.RLIMIT_NOFILE,
        "file_bytes": resource.RLIMIT_FSIZE,
        "cpu_seconds": resource.RLIMIT_CPU,
    }
    for name, kind in kinds.items():
        if limits.get(name) is not None:
            _lower(kind, int(limits[name]))
    if limits.get("threads") is not None:
        _limit_threads(int(limits["threads"]))


def limit_memory(memory_bytes: int) -> None:
    """Bound the address space that this process may take beyond what it has now."""
    if resource is None:
        return
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        taken = 0
    _lower(resource.RLIMIT_AS, taken + memory_bytes)


def limit_data(memory_bytes: int) -> None:
    """Bound the memory that this process may write to beyond what it has now; files that it maps for reading do not count."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[5])
    except OSError:  # not Linux, where what it has now is not told
        return
    taken = pages * resource.getpagesize()
    _lower(resource.RLIMIT_DATA, taken + memory_bytes)


def data_bytes() -> int | None:
    """Memory that this process, and each that it starts, may write to (`limit_data`); None where nothing bounds it."""
    if resource is None:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard == resource.RLIM_INFINITY or value < hard:
        resource.setrlimit(kind, (value, value))


def _limit_threads(more: int) -> None:
    """Bound the threads of this user, which is what the kernel counts, to some more than there are now.

    Where other containers run as the same user, they count, too, and are not seen here; then there is no bound.
    """
    old = resource.getrlimit(resource.RLIMIT_NPROC)
    hard = old[1] if old[1] != resource.RLIM_INFINITY else 1 << 30
    resource.setrlimit(resource.RLIMIT_NPROC, (min(_threads_of_user() + more, hard), old[1]))
    try:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
    except RuntimeError:
        resource.setrlimit(resource.RLIMIT_NPROC, old)
    else:
        soft = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, soft))


def _threads_of_user() -> int:
    own, count = os.getuid(), 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == own:
                count += len(os.listdir(f"/proc/{name}/task"))
    return count
