"""What a process does to itself before it meets bytes from the network: afterwards it can do little else than compute.

It must have one thread then, since Landlock confines the thread that asks and those that it starts.
"""

import glob
import os
import sys
from typing import Any

from pcp.distributed.sandbox import landlock, limits, seccomp
from pcp.distributed.sandbox.landlock import LIST, READ, RUN, TRUNCATE, USE_DEVICE, WRITE, WRITE_FILE

_SYSTEM = (
    "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo",
    "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/self", "/sys/devices/system", "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
)  # fmt: skip
"""What the interpreter, numpy and the compiler read of a system."""
_OF_DRIVERS = ("/dev", "/proc", "/sys", "/usr", "/opt", "/etc/nvidia", "/run/nvidia-persistenced")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def confine(policy: dict[str, Any]) -> dict[str, str]:
    """Confine this process, by whatever the system offers.

    Arguments:
        policy: what `Policy.to_json` wrote.

    Returns:
        What protects: `files`, `calls` and `privileges`, each with the name of the mechanism, empty where there is none.
    """
    active = {"files": "", "calls": "", "privileges": ""}
    limits.limit(policy["limits"])
    if not sys.platform.startswith("linux"):
        return active
    try:
        limits.give_up_privileges()
        active["privileges"] = "none"
    except (OSError, KeyError):
        pass
    if version := landlock.version():
        try:
            landlock.restrict(version, _rules(policy))
            active["files"] = f"Landlock {version}"
        except OSError as error:
            active["files_error"] = str(error)
    if seccomp.available():
        try:
            seccomp.restrict(processes=policy["processes"], drivers=policy["drivers"])
            active["calls"] = "seccomp"
        except OSError as error:
            active["calls_error"] = str(error)
    return active


def _rules(policy: dict[str, Any]) -> list[tuple[str, int]]:
    rules = [(path, READ) for path in (*_SYSTEM, *policy["readable"])]
    rules += [(path, LIST) for path in sys.path]
    rules += [(path, USE_DEVICE) for path in _DEVICES]
    rules += [(path, WRITE) for path in policy["writable"]]
    if policy["processes"]:
        loaders = glob.glob("/lib*/ld-*.so*") + glob.glob("/lib/*/ld-*.so*")
        programs = (sys.executable, *loaders, *policy["programs"])
        rules += [(os.path.realpath(path), RUN) for path in programs]
        rules += [("/proc", READ)]
    if policy["drivers"]:
        rules += [(path, READ) for path in _OF_DRIVERS]
        # CUDA does not begin where it may not name its threads. What this process starts has another folder, and finds no GPU.
        rules += [("/dev", USE_DEVICE), ("/proc/self/task", READ | WRITE_FILE | TRUNCATE)]
    return rules
