"""A backend for tests that runs programs in the arena, and charges made-up times for operations and copies to a meter.

It has two devices with memories of their own: `host:0`, and `chip:0`, which is faster at all operations but sines. Nothing is
timed, so what a meter says is the same on every machine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcp.backends import Device, Executable, MemoryUse, Target
from pcp.backends.arena.array import ArenaArray, Facts
from pcp.backends.arena.backend import ArenaBackend
from pcp.backends.base import CompileOptions
from pcp.ir import Program, TensorSpec
from pcp.planning.placing.costs import CopyCost, Costs
from pcp.planning.placing.operations import operations_in

HOST, CHIP = Device("host", 0, 1 << 30), Device("chip", 0, 1 << 30)
COPY = CopyCost(latency=20.0, rate=64.0)
"""Seconds of a copy between the two."""
SECONDS = {
    HOST: {"dot_general": 400.0, "sine": 10.0},
    CHIP: {"dot_general": 5.0, "sine": 500.0},
}
"""Of an operation on each; others take `OTHERS`."""
OTHERS = {HOST: 12.0, CHIP: 1.0}


@dataclass
class Meter:
    """What was charged since it was reset."""

    copies: list[tuple[Device, Device, int]] = field(default_factory=list)
    seconds: float = 0.0

    def reset(self) -> None:
        self.copies.clear()
        self.seconds = 0.0


METER = Meter()


class MeteredArray(ArenaArray):
    """An array on one of the two devices."""

    __slots__ = ("device",)

    def __init__(self, array: np.ndarray[Any, Any], device: Device) -> None:
        super().__init__(array)
        self.device = device


class MeteredExecutable:
    """A program in the arena; a call charges for its operations."""

    def __init__(self, inner: Executable, program: Program, device: Device) -> None:
        self._inner, self._device = inner, device
        found = operations_in(program)
        pairs = zip(found.names, found.counts, strict=True)
        self._price = sum(count * _seconds(name, device) for name, count in pairs)

    @property
    def memory(self) -> MemoryUse:
        return self._inner.memory

    def run(self, buffers: Sequence[MeteredArray]) -> list[MeteredArray]:
        assert all(buffer.device == self._device for buffer in buffers)
        METER.seconds += self._price
        return [MeteredArray(each.array, self._device) for each in self._inner.run(buffers)]


class MeteredBackend(ArenaBackend):
    """The backend."""

    name = "metered"
    versions = "metered 1"

    def devices(self) -> list[Device]:
        return [CHIP, HOST]

    def compile(
        self, program: Program, device: Device, options: CompileOptions, *, cache: bool
    ) -> MeteredExecutable:  # type: ignore[override]  # another executable
        return MeteredExecutable(super().compile(program, device, options, cache=cache), program, device)

    def place(self, array: Any, spec: TensorSpec, device: Device, *, alias: bool) -> MeteredArray:
        del alias
        if isinstance(array, MeteredArray) and array.device != device:
            METER.copies.append((array.device, device, spec.bytes))
            METER.seconds += COPY.seconds(spec.bytes)
        return MeteredArray(np.array(array, spec.dtype.numpy).reshape(spec.shape), device)

    def is_on(self, buffer: ArenaArray, device: Device) -> bool:
        return isinstance(buffer, MeteredArray) and buffer.device == device

    def facts(self, device: Device) -> Callable[[ArenaArray], Facts]:
        return super().facts(device)


def costs_of(program: Program, home: Device, other: Device) -> Costs:
    """What the meter charges, as what a placement is found by."""
    operations = operations_in(program)
    return Costs(
        tuple(
            tuple(count * _seconds(name, device) for device in (home, other))
            for name, count in zip(operations.names, operations.counts, strict=True)
        ),
        operations.flows,
        {(0, 1): COPY, (1, 0): COPY},
    )


def charged(executable: Executable, program: Program, home: Target, arrays: Sequence[Any]) -> list[Any]:
    """The results of a call, which alone is on the meter."""
    given = [home.place(array, entry.spec) for array, entry in zip(arrays, program.arguments, strict=True)]
    METER.reset()
    return executable.run(given)


def _seconds(name: str, device: Device) -> float:
    return SECONDS[device].get(name, OTHERS[device])
