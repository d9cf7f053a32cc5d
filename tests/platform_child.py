"""A process in which PCP's own modules see another system than the one that they run on: for `test_platforms`.

Libraries that PCP uses see the system as it is. What is hidden is hidden from every import and attribute access in `pcp`.
"""

import builtins
import ctypes
import io
import os
import runpy
import select
import signal
import sys
import types
from typing import Any

LINUX_ONLY = {
    os: {
        "sched_getaffinity", "sched_setaffinity", "memfd_create", "posix_fallocate", "posix_fadvise", "pidfd_open", "eventfd",
        "O_PATH", "O_TMPFILE", "copy_file_range", "splice", "getrandom", "pipe2", "setns", "unshare", "fdatasync",
    },
    select: {"epoll"},
    signal: {"pidfd_send_signal", "SIGPWR", "SIGSTKFLT"},
}  # fmt: skip
POSIX_ONLY = {
    os: {
        "fork", "killpg", "getuid", "geteuid", "getgid", "uname", "setsid", "getpgid", "preadv", "pwritev", "pread", "pwrite",
        "statvfs", "confstr", "nice", "mkfifo", "register_at_fork", "sysconf", "getloadavg", "posix_spawn", "fchmod", "chown",
        "wait4", "O_CLOEXEC", "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_SYNC", "WNOHANG",
    },
    select: {"poll", "kqueue"},
    signal: {"SIGKILL", "SIGSTOP", "SIGCONT", "SIGHUP", "SIGUSR1", "SIGUSR2", "pthread_sigmask", "setitimer", "alarm"},
}  # fmt: skip
SYSTEMS: dict[str, tuple[str, set[str], list[dict[Any, set[str]]]]] = {
    "macos": ("darwin", {"epoll"}, [LINUX_ONLY]),
    "windows": (
        "win32",
        {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"},
        [LINUX_ONLY, POSIX_ONLY],
    ),
}


class Seen(types.ModuleType):
    """A module without some of its attributes."""

    def __init__(self, module: types.ModuleType, hidden: set[str], instead: dict[str, Any]) -> None:
        super().__init__(module.__name__)
        self.__dict__.update({"_module": module, "_hidden": hidden, "_instead": instead})

    def __getattr__(self, name: str) -> Any:
        if name in self._hidden:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r} on this system")
        return self._instead[name] if name in self._instead else getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)


def no_library(*arguments: Any, **options: Any) -> Any:
    """Stands for `ctypes.CDLL`: there is no library of C in the process itself."""
    if not arguments or arguments[0] is None:
        raise TypeError("there is no library without a name on this system")
    return ctypes.CDLL(*arguments, **options)


def become(system: str) -> None:
    """Hide from PCP what a system lacks."""
    platform, modules, tables = SYSTEMS[system]
    hidden: dict[Any, set[str]] = {os: set(), select: set(), signal: set(), sys: set(), ctypes: set()}
    for table in tables:
        for module, names in table.items():
            hidden[module] |= names
    instead: dict[Any, dict[str, Any]] = {sys: {"platform": platform}}
    if system == "windows":
        instead[ctypes] = {"CDLL": no_library}
    seen = {each.__name__: Seen(each, names, instead.get(each, {})) for each, names in hidden.items()}
    really, opened = builtins.__import__, io.open

    def imported(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        asking = str((globals or {}).get("__package__") or (globals or {}).get("__name__"))
        if asking.partition(".")[0] == "pcp" and level == 0:
            if name in modules:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in seen:
                return seen[name]
        return really(name, globals, locals, fromlist, level)

    def opens(file: Any, *arguments: Any, **options: Any) -> Any:
        if str(file).startswith("/proc/"):
            raise FileNotFoundError(2, "No such file or directory", str(file))
        return opened(file, *arguments, **options)

    builtins.__import__ = imported
    builtins.open = io.open = opens


USE = """
import json
import numpy as np
import pcp

weights = np.ones((3, 1), np.float32)
program = pcp.trace(lambda w, x: ((x @ w) ** 2).mean(), weights, pcp.spec((8, 3), "f32"))
step = pcp.training_step(program, pcp.optimizers.adamw(1e-2))
x = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
losses = {}
for device in ("cpu:0", "arena:cpu"):
    plan = pcp.plan(step, device)
    state = step.initial_state(weights)
    for _ in range(3):
        state, metrics = plan.run(state, (x,))
    losses[device] = float(metrics["loss"])
pcp.plan(program, tolerance=1e-2, budget=0)
print(json.dumps(losses))
"""


if __name__ == "__main__":
    become(sys.argv[1])
    for command in sys.argv[2:]:
        print(f"# {command}", flush=True)
        if command == "use":
            exec(compile(USE, "use", "exec"), {"__name__": "use"})
            continue
        sys.argv = ["pcp", *command.split()]
        try:
            runpy.run_module("pcp", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if end.code:
                raise
