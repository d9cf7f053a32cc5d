"""Programs that run in a process of their own, which has little memory beyond what it took so far."""

import os
import resource
import subprocess
import sys
from pathlib import Path

RETURNED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 17)}
"""Arrays go back to the system when they are freed: what a process holds is what it uses."""


def run_alone(code: str, *arguments: str | os.PathLike[str]) -> list[str]:
    """The lines that a program prints, in a process whose arrays go back to the system when they are freed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | RETURNED,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def allow_further(most: int) -> None:
    """Let this process take so many bytes beyond those it holds; threads and pools that it has started are among these."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData"):
            limit = (int(line.split()[1]) << 10) + most
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
