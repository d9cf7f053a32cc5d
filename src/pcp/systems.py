"""What operating systems do differently: locks of files, limits of processes, the size of memory.

Linux and macOS have all of it. Where a system lacks something, each function says what stands for it.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from typing import Any

try:
    import fcntl
    import resource
except ModuleNotFoundError:  # Windows
    fcntl = resource = None  # type: ignore[assignment]  # asked for before each use

CLOSED_IN_CHILDREN = getattr(os, "O_CLOEXEC", 0)
"""For `os.open`; where it is missing, files are closed in children anyway."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""For `os.open`; where it is missing, links are followed."""
_ASSUMED_BYTES = 8 << 30
_PARENT_DEATH_SIGNAL = 1


def lock(descriptor: int, *, wait: bool) -> None:
    """Lock a file for this process alone, until it is closed.

    Windows locks its first byte, and waits for ten seconds at most.

    Raises:
        OSError: another process holds it.
    """
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    with contextlib.suppress(ModuleNotFoundError):
        windows: Any = __import__("msvcrt")
        windows.locking(descriptor, windows.LK_LOCK if wait else windows.LK_NBLCK, 1)


def is_of_this_user(owner: int) -> bool:
    """Whether a file with the owner that `os.stat` tells is this user's; Windows keeps users' temporary folders apart."""
    return not hasattr(os, "getuid") or owner == os.getuid()


def exit_in_words(code: int) -> str:
    """An exit code as people say it."""
    if code >= 0:
        return f"code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def leave_no_core() -> None:
    """Have this process write no core when it crashes; Windows writes none."""
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_address_space(more: int) -> None:
    """Bound the address space of this process to what it takes now and some bytes more.

    Where there is no /proc, what it takes now is not known, and nothing is bounded.
    """
    if resource is None:
        return
    with contextlib.suppress(OSError, ValueError):  # not Linux, or a lower limit already holds
        with open("/proc/self/statm", encoding="ascii") as file:
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + more, taken + more))


def end_with_parent() -> None:
    """Have this process end when the one that started it does, even while it stands still; only Linux can."""
    if sys.platform == "linux":
        c_library().prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def end_group(process: "subprocess.Popen[Any]") -> None:
    """End a process with all that it started and that stayed in its session; Windows ends the process alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, 9)
    process.kill()


def memory_bytes() -> int:
    """The memory of this machine."""
    if hasattr(os, "sysconf"):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return _memory_of_windows()


def _memory_of_windows() -> int:
    """By GlobalMemoryStatusEx, whose structure begins with its size and the load, then all bytes and those that are free."""
    library = getattr(ctypes, "windll", None)
    status = (ctypes.c_uint64 * 8)(64)
    if library is None or not library.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return _ASSUMED_BYTES
    return int(status[1])


def c_library() -> Any:
    """The C library of this process; None on Windows, which has none under that name."""
    return None if sys.platform == "win32" else ctypes.CDLL(None, use_errno=True)
