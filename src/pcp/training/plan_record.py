"""What a run was computed with, kept in its checkpoints: a resumed run is compared with it.

Equal records mean equal results, bit for bit. Others may differ in the last bits: compilers order sums anew.
"""

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pcp.backends.processors import core_count, processor_name
from pcp.planning import Plan

LIBRARIES = ("planetary-compute-protocol", "jax", "jaxlib", "numpy")


def plan_record(plan: Plan) -> dict[str, Any]:
    """Describe a plan, and what its results depend on, in JSON.

    Returns:
        A flat dictionary: the program's digest, the device, options, versions and the machine.
    """
    record: dict[str, Any] = {
        "program": plan.program.digest,
        "device": plan.target.places,
        "options": dict(plan.target.options),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        **({} if plan.path.is_plain else {"path": plan.path.digest[:12]}),
        "processor": processor_name(),
        "cores": core_count(),
        "python": platform.python_version(),
    }
    return record | {name: _version(name) for name in LIBRARIES}


def differences(stored: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Say what two records differ in, one sentence part for each entry: "jaxlib was 0.10.2 and is 0.11.2"."""
    return [
        f"{name} was {_shown(stored.get(name))} and is {_shown(current.get(name))}"
        for name in dict.fromkeys([*stored, *current])
        if stored.get(name) != current.get(name)
    ]


def _shown(value: Any) -> str:
    return "not recorded" if value is None else str(value) or "empty"


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
