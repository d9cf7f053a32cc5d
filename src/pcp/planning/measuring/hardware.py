"""What a measurement was taken on: a fingerprint of the processor or accelerator, and the versions of what generates code."""

import functools
import hashlib
import platform
from dataclasses import dataclass

from pcp import backends
from pcp.backends import Placement, Target
from pcp.backends.registry import DEFAULT
from pcp.ir.program_file import library_version

RULES = 6
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

    def digest_by(self, backend: str) -> str:
        """The digest, and the backend's name unless it is XLA: what others measured with one says nothing of another."""
        return self.digest if backend == DEFAULT else f"{backend}-{self.digest}"


def hardware_of(target: Target) -> Hardware:
    """The hardware behind the device of a target.

    Raises:
        InvalidTarget, UnknownBackend: as `Target.device`, `Target.runner`.
    """
    return Hardware(*target.runner.hardware(target))


@functools.cache
def versions(backend: str = DEFAULT) -> str:
    """The versions that decide what code a program becomes and how it is judged, as one line.

    XLA's bear no name, as in rows and paths that are older than the other backends; another backend's begin with its name.

    Raises:
        UnknownBackend: there is no such backend.
    """
    code = backends.backend(backend).versions
    return ", ".join(
        [
            code if backend == DEFAULT else f"{backend}: {code}",
            f"planetary-compute-protocol {library_version()}",
            f"Python {platform.python_version()}",
            f"rules {RULES}",
        ]
    )


def made_with(target: Target, placement: Placement | None) -> tuple[str, str]:
    """The hardware and the versions that the numbers of a path depend on: of its target, and of all its other places.

    Raises:
        UnknownBackend, UnknownDevice, InvalidTarget: as `Placement.targets`, `hardware_of`.
    """
    every = (target, *(() if placement is None else placement.targets()))
    others = [(hardware_of(each).digest_by(each.backend), versions(each.backend)) for each in every[1:]]
    first = (hardware_of(target).digest, versions(target.backend))
    hardware, version = zip(first, *others, strict=True)
    return "+".join(hardware), "; ".join(version)
