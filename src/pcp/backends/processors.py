"""The processors and the memory that this process may use."""

import functools
import os
import platform
from pathlib import Path


def core_count() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_memory() -> int:
    """Bytes of memory that this process may use at most."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_cgroup_limits()])


def _cgroup_limits() -> list[int]:
    limits = []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):  # no such hierarchy, or "max"
            continue
    return limits


def processor_model() -> tuple[str, str]:
    """The model and how many cores may be used, for people; and the instructions, one fact a line."""
    machine, cores, model, *flags = processor_facts().split("\n")
    name = model.partition(":")[2].strip() or machine
    return f"{name}, {cores} cores", "\n".join(flags)


@functools.cache
def processor_facts() -> str:
    """The processor's instructions and how many cores this process may use: code is generated for both."""
    cores = str(core_count())
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return " ".join([*platform.uname()[4:], cores])
    facts = {line.partition("\t")[0]: line for line in lines}
    return "\n".join(
        [
            platform.machine(),
            cores,
            facts.get("model name", ""),
            facts.get("flags", ""),
            facts.get("Features", ""),
        ]
    )
