"""The processors that this process may use."""

import functools
import os
import platform
from pathlib import Path


def core_count() -> int:
    """How many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def processor() -> str:
    """The processor's instructions and how many cores this process may use: code is generated for both."""
    cores = str(core_count())
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "\n".join(
            [platform.machine(), cores, f"model name\t: {platform.processor() or platform.machine()}"]
        )
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


def processor_name() -> str:
    """The model of the processor; where nobody tells it, its instructions."""
    machine, _, model, *_ = processor().split("\n")
    return model.partition(":")[2].strip() or machine


def processor_hardware() -> tuple[str, str]:
    """The model of the processor, for people, and all facts about it that speed and numbers depend on."""
    _, cores, _, *flags = processor().split("\n")
    return f"{processor_name()}, {cores} cores", "\n".join(flags)
