"""What a backend is: something that compiles a Program for a device and runs it on buffers there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pcp.errors import PCPError
from pcp.ir import Program, TensorSpec

Buffer = Any
"""An array in the memory of a device, of whatever class the backend says: a `jax.Array` for XLA.

It has a `shape` and a `dtype`, `numpy.asarray` reads it, and `delete` gives its memory back; whatever else is to be known of it
the backend is asked."""

CompileOptions = Mapping[str, str | int | float | bool]
"""Settings of a backend's compiler by their own names."""


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
    """A program compiled for one device."""

    @property
    def memory(self) -> MemoryUse:
        """What one call takes, as the compiler reports it."""

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results for flat arguments, whose shapes, element types and device the caller has checked.

        Raises:
            OutOfMemory: the device has too little memory left.
            ExecutionFailed: the device stopped.
        """


class Backend(Protocol):
    """Something that compiles Programs for its devices.

    With an attribute `chooses_once` that is true, a path that was found for one size of a symbolic program is followed at all.
    """

    @property
    def name(self) -> str:
        """What it is called in a Path: `xla`, `iree`, `arena`."""

    def devices(self) -> list[Device]:
        """The devices of this machine that it compiles for."""

    def compile(
        self, program: Program, device: Device, options: CompileOptions, *, cache: bool
    ) -> Executable:
        """The program ready to run on a device; `cache` keeps the compiled form on disk.

        Raises:
            CompilationFailed: the compiler refuses the program.
        """

    def place(self, array: Any, spec: TensorSpec, device: Device, *, alias: bool) -> Buffer:
        """An array (NumPy's or a buffer), of shape and element type `spec`, in the memory of a device.

        Arguments:
            alias: whether read-only host memory may be used where it lies; otherwise it is copied.
        """

    def aside(self, buffer: Buffer) -> Buffer | None:
        """A copy in memory of the host that the array's device reads and writes by itself, which `place` takes back to it.

        Returns:
            None where there is no such memory.
        """

    def is_buffer(self, value: object) -> bool:
        """Whether a value is an array of this backend, on whatever device."""

    def facts(self, device: Device) -> Callable[[Buffer], object]:
        """A cheap function of a buffer; equal results mean equal shape, type and device."""

    @property
    def is_deleted(self) -> Callable[[Buffer], bool]:
        """Whether the memory of a buffer was given back or donated; a function that is cheap to map."""

    def is_on(self, buffer: Buffer, device: Device) -> bool:
        """Whether a buffer lies on exactly this device."""

    def wait(self, buffers: Sequence[Buffer]) -> None:
        """Return when the values of all buffers are there.

        Raises:
            OutOfMemory: the device ran out of memory while it computed one.
            ExecutionFailed: the device stopped.
        """

    def hardware(self, device: Device) -> tuple[str, str]:
        """The model of a device's hardware, for people, and all facts about it that speed and numbers depend on."""

    @property
    def versions(self) -> str:
        """What generates code, and its version: measurements and bits count for one version only."""

    def quick_options(self, device: Device) -> CompileOptions:
        """The options with which a program that is called once is ready soonest."""
