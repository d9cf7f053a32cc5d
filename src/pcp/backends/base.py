"""What backends take and make: devices, buffers, compiled programs and the memory that they take; and what goes wrong."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pcp.errors import PCPError
from pcp.ir import TensorSpec

Buffer = Any
"""An array in the memory of a device, of whatever class the backend says: a `jax.Array` for XLA.

It has a `shape` and a `dtype`, `numpy.asarray` reads it, and `delete` gives its memory back; whatever else is to be known of it
the backend is asked."""

CompileOptions = Mapping[str, str | int | float | bool]
"""Settings of a backend's compiler by their own names."""


_RANGE = re.compile(r"(.+):(\d+)-(\d+)")


class UnknownDevice(PCPError):
    """A name that stands for no device of this machine."""


class UnknownBackend(PCPError):
    """A name that stands for no backend of this process."""


class CompilationFailed(PCPError):
    """A program that a backend's compiler refuses."""


class TooFewDevices(CompilationFailed):
    """A program whose collectives need more devices than it is compiled for."""


class ExecutionFailed(PCPError):
    """A compiled program that the device stopped running."""


class OutOfMemory(PCPError):
    """A program that needs more memory than its device has."""


@dataclass(frozen=True, slots=True)
class Device:
    """Memory that tensors live in.

    Arguments:
        kind: `cpu`, `cuda`, `rocm`, ...
        index: which of this kind, from 0.
        capacity: its memory in bytes.
    """

    kind: str
    index: int
    capacity: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes that one call takes on a device.

    Arguments:
        arguments: of all arguments.
        results: of all results.
        aliased: of results that take the place of donated arguments.
        temporaries: of everything between; 0 where it is not known yet.
        exact: whether the compiler reported it; otherwise it is a lower bound. (On the CPU, XLA fuses some products of
            floats into library calls whose own scratch memory it does not report.)
    """

    arguments: int
    results: int
    aliased: int
    temporaries: int
    exact: bool

    @property
    def peak(self) -> int:
        """The most that is taken at once."""
        return self.arguments + self.results - self.aliased + self.temporaries

    def without(self, arguments: int) -> "MemoryUse":
        """The same, where so many bytes of arguments lie elsewhere."""
        return replace(self, arguments=self.arguments - arguments)


class Executable(Protocol):
    """A program compiled for a target."""

    @property
    def memory(self) -> MemoryUse:
        """What one call takes, as the compiler reports it."""

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results for flat arguments, whose shapes, element types and place the caller has checked.

        Raises:
            OutOfMemory: the device has too little memory left.
            ExecutionFailed: the device stopped.
        """


def widened(spec: TensorSpec, axis: int, count: int) -> TensorSpec:
    """Of a tensor of which each of several devices has a part along an axis, the whole."""
    sizes = (size * count if place == axis else size for place, size in enumerate(spec.shape))
    return TensorSpec(tuple(sizes), spec.dtype)


def names_in(name: str) -> list[str]:
    """The names in one like `cuda:0-3`."""
    match = _RANGE.fullmatch(name.strip())
    if match is None:
        return [name.strip()]
    return [f"{match[1]}:{number}" for number in range(int(match[2]), int(match[3]) + 1)]


def memory_use(stats: Any) -> MemoryUse:
    """What the compiler reports of one call."""
    return MemoryUse(
        stats.argument_size_in_bytes,
        stats.output_size_in_bytes,
        stats.alias_size_in_bytes,
        stats.temp_size_in_bytes,
        exact=True,
    )
