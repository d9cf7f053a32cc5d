"""What a measurement was taken on: a fingerprint of the processor or accelerator, and the versions of what generates code."""

import functools
import hashlib
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from pcp.backends import Device

RULES = 2
"""Raised whenever measurements are judged by other rules, so that what older ones accepted is measured again."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Where a measurement was taken.

    Arguments:
        name: for people: the model of the processor or accelerator, and how many cores may be used.
        facts: all that the speed and the numbers depend on: instruction sets, driver, memory.
    """

    name: str
    facts: str

    @property
    def digest(self) -> str:
        """Equal for hardware that measurements may be compared on."""
        return hashlib.sha256(f"{self.name}\n{self.facts}".encode()).hexdigest()[:16]


def hardware_of(device: Device) -> Hardware:
    """The hardware behind a device."""
    from pcp.backends.xla import (
        device_facts,  # jax takes its time, and not everybody who imports this needs it
    )

    name, facts = device_facts(device)
    return Hardware(name, facts)


@functools.cache
def versions() -> str:
    """The versions that decide what code a program becomes and how it is judged, as one line."""
    found = []
    for package in ("jaxlib", "planetary-compute-protocol"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # run from a source tree that is not installed
            found.append(f"{package} unknown")
    return ", ".join([*found, f"Python {platform.python_version()}", f"rules {RULES}"])
