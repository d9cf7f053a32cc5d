"""Target: what a Program is compiled for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from pcp.backends.base import Backend, Buffer, CompileOptions, Device, Executable, TooFewDevices
from pcp.backends.registry import (
    DEFAULT,
    arrays_of,
    backend,
    backend_names,
    default_device,
    device,
    location_of,
    register_backend,
)
from pcp.errors import PCPError
from pcp.ir import Program, TensorSpec
from pcp.ir.toolkit.replicas import has_collectives, widest_collective

Option = str | int | float | bool


class InvalidTarget(PCPError):
    """A target that nothing can be compiled for."""


@dataclass(frozen=True, slots=True)
class Target:
    """A backend, the devices that it compiles for, and the options of its compiler; equal where all three are.

    Arguments:
        backend: its name, as `xla`.
        devices: one or more; so far a Program is compiled for one.
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
            place: the device or its name, with or without that of a backend before it: `cpu:0`, `arena:cpu`; None takes the
                default one. A target is returned as it is.
            options: of the compiler.
            backend: its name.

        Raises:
            UnknownBackend: no backend has that name.
            UnknownDevice: the backend has no such device.
            InvalidTarget: options are given beside a target that has others.
        """
        given = tuple(sorted(options.items()))
        if isinstance(place, Target):
            if given and given != place.options:
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
        return Target(backend, (device(place, backend),), given)

    @property
    def device(self) -> Device:
        """Its one device.

        Raises:
            InvalidTarget: it has none, or several, which no plan uses yet.
        """
        if len(self.devices) != 1:
            shown = ", ".join(map(str, self.devices)) or "none"
            raise InvalidTarget(
                f"the target has {len(self.devices)} devices: {shown}; a program is compiled for one device so far: "
                "give a target with one, as pcp.Target.of('cpu:0')"
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
            TooFewDevices: its collectives need more devices.
            InvalidTarget, UnknownBackend: as `device`, `runner`.
        """
        self._expect_devices(program)
        return self.runner.compile(program, self.device, dict(self.options), cache=cache)

    def _expect_devices(self, program: Program) -> None:
        """Refuse a program of several devices, which would compute with the values of one alone."""
        if not has_collectives(program.bytecode):
            return
        widest = widest_collective(program.module())
        if widest is not None and widest.devices > len(self.devices):
            place = f"\n  at {widest.place}" if widest.place else ""
            raise TooFewDevices(
                f"{widest.shown} needs {widest.devices} devices, and the program is compiled for {len(self.devices)}: "
                f"{', '.join(map(str, self.devices))}; give groups of one, [[0]], or compute in one program what the devices "
                f"would: with their values along one more axis, pcp.sum(x, 0) is the sum over them{place}"
            )

    def place(self, array: Any, spec: TensorSpec, *, alias: bool = False) -> Buffer:
        """An array, of shape and element type `spec`, in the memory of the device; `alias` as in `Backend.place`."""
        return self.runner.place(array, spec, self.device, alias=alias)

    def holds(self, value: Any) -> bool:
        """Whether a value is a buffer of the backend that lies on the device."""
        return self.runner.is_buffer(value) and self.runner.is_on(value, self.device)

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
        return f"{', '.join(map(str, self.devices))} by {self.backend}"
