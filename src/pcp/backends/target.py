"""Target: what a Program is compiled for; and Backend: what compiles it for one, and runs it on buffers there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from pcp.backends.base import Buffer, CompileOptions, Device, Executable, TooFewDevices, names_in
from pcp.backends.registry import (
    DEFAULT,
    arrays_of,
    backend_names,
    default_device,
    device,
    instance_of,
    location_of,
    register_backend,
)
from pcp.errors import PCPError
from pcp.ir import Program, TensorSpec
from pcp.ir.toolkit.replicas import has_collectives, widest_collective

Option = str | int | float | bool


class InvalidTarget(PCPError):
    """A target that nothing can be compiled for."""


class Backend(Protocol):
    """Something that compiles Programs for its devices.

    Every method takes the whole `Target`, whose backend it is: devices of one kind, and options of the compiler. A class that
    derives from this one need not have memory aside, quick options, or calls that return before their results are there. It may
    say more than is asked of all: `runs_on_several = True`, that targets may have several devices; otherwise PCP refuses them
    before it asks, and `target.device` is the one. `chooses_once = True`, that a path that was found for one size of a symbolic
    program is followed at all. `options_on`, kinds of devices, and `options_for(program, target)`, which options of its
    compiler suit a program there: that is asked when a path is made, for the program that the path has compiled.
    """

    @property
    def name(self) -> str:
        """What it is called in a Path: `xla`, `iree`, `arena`."""

    def devices(self) -> list[Device]:
        """The devices of this machine that it compiles for."""

    def compile(self, program: Program, target: "Target", *, cache: bool) -> Executable:
        """The program ready to run on a target, by its options; `cache` keeps the compiled form on disk.

        Raises:
            CompilationFailed: the compiler refuses the program or an option.
        """

    def place(self, array: Any, spec: TensorSpec, target: "Target", *, alias: bool) -> Buffer:
        """An array (NumPy's or a buffer), of shape and element type `spec`, in the memory of a target's devices.

        Arguments:
            alias: whether read-only host memory may be used where it lies; otherwise it is copied.
        """

    def aside(self, buffer: Buffer) -> Buffer | None:
        """A copy in memory of the host that the array's device reads and writes by itself, which `place` takes back to it.

        Returns:
            None where there is no such memory.
        """
        del buffer
        return None

    def is_buffer(self, value: object) -> bool:
        """Whether a value is an array of this backend, on whatever device."""

    def facts(self, target: "Target") -> Callable[[Buffer], object]:
        """A cheap function of a buffer; equal results mean equal shape, type and place."""

    @property
    def is_deleted(self) -> Callable[[Buffer], bool]:
        """Whether the memory of a buffer was given back or donated; a function that is cheap to map."""

    def is_on(self, buffer: Buffer, target: "Target") -> bool:
        """Whether a buffer lies on exactly the devices of a target."""

    def wait(self, buffers: Sequence[Buffer]) -> None:
        """Return when the values of all buffers are there.

        Raises:
            OutOfMemory: the device ran out of memory while it computed one.
            ExecutionFailed: the device stopped.
        """

    def hardware(self, target: "Target") -> tuple[str, str]:
        """The model of a target's hardware, for people, and all facts about it that speed and numbers depend on."""

    @property
    def versions(self) -> str:
        """What generates code, and its version: measurements and bits count for one version only."""

    def quick_options(self, target: "Target") -> CompileOptions:
        """The options with which a program that is called once is ready soonest."""
        del target
        return {}


class Replicating(Backend, Protocol):
    """A backend that runs a program of several devices, as `pcp.rewrite.layout` makes one, as a replica on each."""

    def compile_replicas(
        self, program: Program, target: "Target", results: Sequence[int | None], *, cache: bool
    ) -> Executable:
        """A program with local shapes and collectives, ready to run on all devices of a target.

        Arguments:
            results: along which axis each result is cut over the devices; None where each has all of it.

        Raises:
            CompilationFailed: the compiler refuses the program or an option.
        """

    def place_replicas(self, array: Any, spec: TensorSpec, target: "Target", axis: int | None) -> Buffer:
        """An array, of shape and element type `spec`, on all devices, or cut along an axis over them.

        Raises:
            OutOfMemory: a device has too little memory left.
        """

    def are_replicas(self, buffer: Buffer, target: "Target", axis: int | None) -> bool:
        """Whether a buffer lies so."""


@dataclass(frozen=True, slots=True)
class Target:
    """A backend, the devices that it compiles for, and the options of its compiler; equal where all three are.

    Arguments:
        backend: its name, as `xla`.
        devices: one or more of one kind; over several, XLA runs what `pcp.plan` lays out.
        options: of the compiler by their own names, in order of these.
    """

    backend: str
    devices: tuple[Device, ...]
    options: tuple[tuple[str, Option], ...] = ()

    @staticmethod
    def of(
        place: "str | Device | Target | None" = None,
        options: CompileOptions = MappingProxyType({}),
        backend: str = DEFAULT,
    ) -> "Target":
        """The target of one device.

        Arguments:
            place: the device or its name, with or without a backend's name before it: `cpu:0`, `arena:cpu`; None takes the
                default one. A target is returned as it is.
            options: of the compiler.
            backend: its name.

        Raises:
            UnknownBackend: no backend has that name.
            UnknownDevice: the backend has no such device.
            InvalidTarget: options are given beside a target that has others.
        """
        pairs = tuple(sorted(options.items()))
        if isinstance(place, Target):
            if pairs and pairs != place.options:
                raise InvalidTarget(
                    f"the options {dict(options)} were given beside a target with {dict(place.options)}; "
                    "give options in the target only"
                )
            return place
        if place is None and backend == DEFAULT:
            place = default_device()
        head, _, rest = place.partition(":") if isinstance(place, str) else ("", "", "")
        if head in backend_names():
            backend, place = head, rest or None
        return Target(backend, (device(place, backend),), pairs)

    @staticmethod
    def over(
        places: "str | Target | Sequence[str | Device]", options: CompileOptions = MappingProxyType({})
    ) -> "Target":
        """The target of several devices.

        Arguments:
            places: `cuda:0-3`, `cuda:0,cuda:2`, a list of such names or devices, or a target, which is returned as it is.
            options: of the compiler.

        Raises:
            InvalidTarget: they are of several kinds or backends, or one is named twice, or none is.
            UnknownDevice: one is not there.
        """
        if isinstance(places, Target):
            return Target.of(places, options)
        named = places.split(",") if isinstance(places, str) else list(places)
        every = [each for name in named for each in (names_in(name) if isinstance(name, str) else [name])]
        targets = [Target.of(each, options) for each in every]
        if len({each.backend for each in targets}) > 1:
            raise InvalidTarget(
                f"devices are {places!r}, of the backends {', '.join(each.backend for each in targets)}; expected devices of "
                "one backend"
            )
        return Target(
            targets[0].backend if targets else DEFAULT,
            tuple(each.device for each in targets),
            tuple(sorted(options.items())),
        )

    def __post_init__(self) -> None:
        if len({each.kind for each in self.devices}) != 1 or len(set(self.devices)) != len(self.devices):
            raise InvalidTarget(
                f"the target has {len(self.devices)} devices: {self.places or 'none'}; expected one or more of one kind, each "
                "once: give a target with one, as pcp.Target.of('cpu:0')"
            )

    @property
    def platform(self) -> str:
        """The kind of its devices: `cpu`, `cuda`, ..."""
        return self.devices[0].kind

    @property
    def capacity(self) -> int:
        """Bytes that the smallest of its devices has."""
        return min(each.capacity for each in self.devices)

    @property
    def places(self) -> str:
        """The names of its devices, for people."""
        return ", ".join(map(str, self.devices))

    @property
    def device(self) -> Device:
        """Its one device, for what runs on one.

        Raises:
            InvalidTarget: it has several.
        """
        if len(self.devices) > 1:
            raise InvalidTarget(
                f"the target has {len(self.devices)} devices: {self.places}; here a program is compiled for one: give "
                f"{self.backend} a target with one, as pcp.Target.of('{self.backend}:{self.devices[0]}')"
            )
        return self.devices[0]

    @property
    def runner(self) -> Backend:
        """The backend itself.

        Raises:
            UnknownBackend: it is not registered in this process.
        """
        return backend(self.backend)

    def with_options(self, options: CompileOptions) -> "Target":
        """The same with these options of the compiler instead."""
        return replace(self, options=tuple(sorted(options.items())))

    @property
    def has_options(self) -> bool:
        """Whether its backend has options that suit some programs on its kind of device."""
        return self.platform in getattr(self.runner, "options_on", ())

    def suited(self, program: Program) -> "Target":
        """The same with the options that suit a program, beside its own, which win."""
        if not self.has_options:
            return self
        suiting: CompileOptions = self.runner.options_for(program, self)  # type: ignore[attr-defined]  # if it has some
        return self.with_options({**suiting, **dict(self.options)})

    def on(self, place: Device) -> "Target":
        """The same on one other device of its backend."""
        return replace(self, devices=(place,))

    def compile(self, program: Program, *, cache: bool = True) -> Executable:
        """A program ready to run.

        Arguments:
            program: any.
            cache: whether the compiled form is kept on disk.

        Raises:
            CompilationFailed: the compiler refuses the program or an option.
            TooFewDevices, InvalidTarget, UnknownBackend: as `expect`.
        """
        self.expect(program)
        return self.runner.compile(program, self, cache=cache)

    def expect(self, program: Program) -> None:
        """Look whether its backend runs programs on so many devices, and whether there are as many as this one needs.

        Raises:
            InvalidTarget: the backend runs programs on one device, and the target has several.
            TooFewDevices: a collective of the program needs more devices.
            UnknownBackend: as `runner`.
        """
        if not getattr(self.runner, "runs_on_several", False):
            _ = self.device
        expect_devices(program, len(self.devices), self.places)

    @property
    def replicates(self) -> bool:
        """Whether it has several devices, and its backend runs a replica of a program on each."""
        return len(self.devices) > 1 and hasattr(self.runner, "compile_replicas")

    def compile_replicas(
        self, program: Program, results: Sequence[int | None], *, cache: bool = True
    ) -> Executable:
        """A program with local shapes ready to run on all devices, as `Replicating.compile_replicas`.

        Raises:
            CompilationFailed: the compiler refuses the program or an option.
        """
        runner: Replicating = self.runner  # type: ignore[assignment]  # whoever asks has looked
        return runner.compile_replicas(program, self, results, cache=cache)

    def place(self, array: Any, spec: TensorSpec, *, alias: bool = False, axis: int | None = None) -> Buffer:
        """An array in the memory of the devices.

        Arguments:
            spec: its shape and element type.
            alias: as in `Backend.place`.
            axis: along which it is cut over several devices; None where each has all of it.
        """
        if self.replicates:
            runner: Replicating = self.runner  # type: ignore[assignment]  # as it replicates
            return runner.place_replicas(array, spec, self, axis)
        return self.runner.place(array, spec, self, alias=alias)

    def has(self, buffer: Buffer, axis: int | None = None) -> bool:
        """Whether a buffer lies on exactly the devices, cut along an axis where one is given."""
        if self.replicates:
            runner: Replicating = self.runner  # type: ignore[assignment]  # as it replicates
            return runner.are_replicas(buffer, self, axis)
        return self.runner.is_on(buffer, self)

    def holds(self, value: Any) -> bool:
        """Whether a value is a buffer of the backend that lies on the devices."""
        return self.runner.is_buffer(value) and self.has(value)

    def shares_arrays_with(self, other: "Target") -> bool:
        """Whether each takes the arrays of the other where they lie."""
        return (arrays_of(self.backend), self.devices) == (arrays_of(other.backend), other.devices)

    def described(self) -> dict[str, Any]:
        """What another process needs to make the same target, as values of JSON."""
        return {
            "backend": self.backend,
            "location": location_of(self.backend),
            "devices": [str(each) for each in self.devices],
            "options": dict(self.options),
        }

    @staticmethod
    def from_description(described: Mapping[str, Any]) -> "Target":
        """The target that another process of this machine described.

        Raises:
            UnknownDevice: this process does not see the device.
        """
        name = str(described["backend"])
        register_backend(name, str(described["location"]))
        devices: Sequence[str] = described["devices"]
        return Target(
            name, tuple(device(each, name) for each in devices), tuple(sorted(described["options"].items()))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as described, for another process of this machine."""
        return Target.from_description, (self.described(),)

    def __str__(self) -> str:
        return f"{self.places} by {self.backend}"


def expect_devices(program: Program, count: int, places: str) -> None:
    """Refuse a program of more devices than there are, which would compute with the values of those alone.

    Raises:
        TooFewDevices: one of its collectives needs more.
    """
    widest = widest_collective(program.module()) if has_collectives(program.bytecode) else None
    if widest is not None and widest.devices > count:
        place = f"\n  at {widest.place}" if widest.place else ""
        raise TooFewDevices(
            f"{widest.shown} needs {widest.devices} devices, and the program is compiled for {count}: {places}; give groups of "
            "one, [[0]], or compute in one program what the devices would: with their values along one more axis, "
            f"pcp.sum(x, 0) is the sum over them{place}"
        )


def backend(name: str = DEFAULT) -> Backend:
    """The backend of that name.

    Raises:
        UnknownBackend: there is none, or its module cannot be imported.
    """
    instance: Backend = instance_of(name)
    return instance
