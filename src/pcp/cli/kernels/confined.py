"""Executing python that a stranger wrote: in a process without network, programs or files, but those that it needs."""

import os
from dataclasses import replace
from pathlib import Path

from pcp.distributed.sandbox import Policy, protection
from pcp.errors import PCPError
from pcp.planning.added.lowering_process import LONGEST_TEXT, SECONDS
from pcp.planning.workbench.endpoint import KEY
from pcp.processes.child import Start


class NothingConfines(PCPError):
    """A machine on which a process cannot be confined, and code from a stranger that would run there."""


def check_confined(allowed: bool) -> str:
    """What confines processes here, for people.

    Arguments:
        allowed: whether the user wants to go on without.

    Raises:
        NothingConfines: something is missing, and the user does not.
    """
    means = protection()
    if not means.is_full and not allowed:
        raise NothingConfines(
            f"what an endpoint answers is executed, and here it would be kept back by {means} only: it needs Landlock (Linux "
            "5.13) and seccomp; run this in a virtual machine of its own, and give --allow-unconfined there"
        )
    return str(means)


def confined(module: str, writable: Path, readable: Path) -> Start:
    """How a module is started so that it can do little else than compute."""
    policy = Policy(
        writable / "jail",
        "cpu:0",
        writable=(writable,),
        readable=(readable,),
        file_bytes=2 * LONGEST_TEXT,
        cpu_seconds=SECONDS * (os.cpu_count() or 1),
    )
    policy.prepare()
    start = policy.start(module)
    variables = {name: value for name, value in start.environment.items() if name != KEY}
    return replace(start, environment=variables | {"JAX_PLATFORMS": "cpu"})
