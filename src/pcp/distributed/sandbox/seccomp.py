"""seccomp: which system calls a process may make. All that are not listed fail with EPERM.

So there are no sockets, no new programs, no tracing, no signals to others, no links, no changes of owners or modes, and none
of the calls that nobody here needs, in which kernels had their holes.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator

from pcp.distributed.sandbox.kernel import SET_NO_NEW_PRIVILEGES, call, prctl

_NUMBERS: dict[str, tuple[int, int]] = {
    # name: (x86_64, aarch64); -1 where there is none
    "read": (0, 63), "write": (1, 64), "open": (2, -1), "close": (3, 57), "stat": (4, -1), "fstat": (5, 80),
    "lstat": (6, -1), "poll": (7, -1), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215),
    "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66), "access": (21, -1),
    "select": (23, -1), "sched_yield": (24, 124), "mremap": (25, 216), "msync": (26, 227), "mincore": (27, 232),
    "madvise": (28, 233), "nanosleep": (35, 101), "getpid": (39, 172), "exit": (60, 93), "uname": (63, 160),
    "fcntl": (72, 25), "flock": (73, 32), "fsync": (74, 82), "fdatasync": (75, 83), "ftruncate": (77, 46),
    "getcwd": (79, 17), "rename": (82, -1), "mkdir": (83, -1), "rmdir": (84, -1), "unlink": (87, -1),
    "readlink": (89, -1), "umask": (95, 166), "gettimeofday": (96, 169), "getrlimit": (97, 163), "getrusage": (98, 165),
    "sysinfo": (99, 179), "times": (100, 153), "getuid": (102, 174), "getgid": (104, 176), "geteuid": (107, 175),
    "getegid": (108, 177), "getppid": (110, 173), "sigaltstack": (131, 132), "statfs": (137, 43), "fstatfs": (138, 44),
    "sched_getparam": (143, 121), "sched_getscheduler": (145, 120), "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126), "arch_prctl": (158, -1), "gettid": (186, 178), "time": (201, -1),
    "futex": (202, 98), "sched_getaffinity": (204, 123), "getdents64": (217, 61), "set_tid_address": (218, 96),
    "fadvise64": (221, 223), "clock_gettime": (228, 113), "clock_getres": (229, 114), "clock_nanosleep": (230, 115),
    "exit_group": (231, 94), "epoll_wait": (232, -1), "epoll_ctl": (233, 21), "mbind": (237, 235),
    "get_mempolicy": (239, 236), "openat": (257, 56), "mkdirat": (258, 34), "newfstatat": (262, 79), "unlinkat": (263, 35),
    "renameat": (264, 38), "readlinkat": (267, 78), "faccessat": (269, 48), "pselect6": (270, 72), "ppoll": (271, 73),
    "set_robust_list": (273, 99), "epoll_pwait": (281, 22), "eventfd2": (290, 19), "epoll_create1": (291, 20),
    "preadv": (295, 69), "pwritev": (296, 70), "getcpu": (309, 168), "sched_getattr": (315, 275), "renameat2": (316, 276),
    "getrandom": (318, 278), "membarrier": (324, 283), "statx": (332, 291), "rseq": (334, 293), "close_range": (436, 436),
    "faccessat2": (439, 439), "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24),
}  # fmt: skip
_OF_PROCESSES: dict[str, tuple[int, int]] = {
    # What who starts Python again needs, and who confines that further; `confine` says what may be executed.
    "fork": (57, -1), "vfork": (58, -1), "execve": (59, 221), "wait4": (61, 260), "kill": (62, 129), "pipe2": (293, 59),
    "setpgid": (109, 154), "getpgid": (121, 155), "setsid": (112, 157),
    "waitid": (247, 95), "prctl": (157, 167), "capset": (126, 91), "seccomp": (317, 277), "utimensat": (280, 88),
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446),
}  # fmt: skip
_OF_DRIVERS: dict[str, tuple[int, int]] = {
    "memfd_create": (319, 279), "mlock": (149, 228), "munlock": (150, 229), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "set_mempolicy": (238, 237), "pipe2": (293, 59),
    # CUDA listens where nobody may connect: these do nothing without a socket, and there are Unix sockets only.
    "bind": (49, 200), "listen": (50, 201), "setsockopt": (54, 208),
}  # fmt: skip
_CLONE, _CLONE3, _CONTROL, _PRCTL = (56, 220), (435, 435), (16, 29), (157, 167)
_LIMITS, _SIGNAL_THREAD = (302, 261), (234, 131)
_SOCKET, _UNIX = (41, 198), 1

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000
_CLONE_THREAD, _CLONE_VM = 0x10000, 0x100
_NEW_NAMESPACES = 0x7E020000
_GET_SECCOMP = 21
_HARMLESS_CONTROLS = [0x5401, 0x5450, 0x5451]  # TCGETS, which isatty asks; whether a descriptor is inherited
_SET_NAME, _GET_NAME, _NAME_MEMORY = 15, 16, 0x53564D41

_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_SET_MODE_FILTER = 1
_ALL_THREADS = 1

Instruction = tuple[int, int, int, int]


def available() -> bool:
    """Whether a filter for this machine is known here, and the kernel knows filters."""
    if platform.machine() not in _ARCHITECTURES:
        return False
    try:
        prctl(_GET_SECCOMP)
    except OSError:
        return False
    return True


def restrict(*, processes: bool, drivers: bool) -> None:
    """Take from every thread of this process, and from all that it starts, every system call but those listed.

    Arguments:
        processes: whether it may start processes, and confine them further.
        drivers: whether it may speak to devices.

    Raises:
        OSError: the kernel does not do it.
    """
    program = list(_program(platform.machine(), os.getpid(), processes, drivers))
    packed = b"".join(struct.pack("<HBBI", *each) for each in program)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    # struct sock_fprog: a count, then, aligned, a pointer
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(buffer)))
    prctl(SET_NO_NEW_PRIVILEGES, 1)
    number = _OF_PROCESSES["seccomp"][_ARCHITECTURES[platform.machine()][0]]
    call(number, _SET_MODE_FILTER, _ALL_THREADS, ctypes.byref(header))


def _program(machine: str, own: int, processes: bool, drivers: bool) -> Iterator[Instruction]:
    column, architecture = _ARCHITECTURES[machine]
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _EQUAL, 1, 0, architecture
    yield _RETURN, 0, 0, _KILL
    yield _LOAD, 0, 0, _NUMBER
    if machine == "x86_64":
        yield _AT_LEAST, 0, 1, _X32
        yield _RETURN, 0, 0, _KILL
    listed = _NUMBERS | (_OF_PROCESSES if processes else {}) | (_OF_DRIVERS if drivers else {})
    for numbers in listed.values():
        if numbers[column] >= 0:
            yield _EQUAL, 0, 1, numbers[column]
            yield _RETURN, 0, 0, _ALLOW
    yield from _when(_CLONE3[column], [(_RETURN, 0, 0, _FAIL | errno.ENOSYS)])  # libraries then use clone
    yield from _when(_CLONE[column], _cloning(processes))
    if drivers:
        yield from _when(_CONTROL[column], [(_RETURN, 0, 0, _ALLOW)])
        yield from _when(_SOCKET[column], _if_argument(0, [_UNIX]))
    else:
        yield from _when(_CONTROL[column], _if_argument(1, _HARMLESS_CONTROLS))
    yield from _when(_PRCTL[column], _if_argument(0, [_SET_NAME, _GET_NAME, _NAME_MEMORY]))
    # What was forked has another number than this process; 0 is whoever asks.
    yield from _when(_LIMITS[column], _if_argument(0, [0, own]))
    yield from _when(
        _SIGNAL_THREAD[column],
        [(_RETURN, 0, 0, _ALLOW)] if processes else _if_argument(0, [own]),
    )
    yield _RETURN, 0, 0, _FAIL | errno.EPERM


def _when(number: int, then: list[Instruction]) -> Iterator[Instruction]:
    """`then` decides a call; it must return in every case."""
    yield _EQUAL, 0, len(then), number
    yield from then


def _if_argument(place: int, values: list[int]) -> list[Instruction]:
    """Allow a call whose argument, the lower half of it, is one of these."""
    return [
        (_LOAD, 0, 0, _ARGUMENTS + 8 * place),
        *((_EQUAL, len(values) - count, 0, value) for count, value in enumerate(values)),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _cloning(processes: bool) -> list[Instruction]:
    """Allow threads; and processes, if these are allowed, but never in namespaces of their own."""
    refused: Instruction = (_RETURN, 0, 0, _FAIL | errno.EPERM)
    threads = _CLONE_THREAD | _CLONE_VM
    return [
        (_LOAD, 0, 0, _ARGUMENTS),
        (_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        refused,
        *([] if processes else [(_AND, 0, 0, threads), (_EQUAL, 1, 0, threads), refused]),
        (_RETURN, 0, 0, _ALLOW),
    ]
