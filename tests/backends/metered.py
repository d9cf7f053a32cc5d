"""A backend for tests that runs programs in the arena, and charges made-up times for operations and copies to a meter.

It has two devices with memories of their own: `host:0`, and `chip:0`, which is faster at all operations but sines. Nothing is
timed, so what a meter says is the same on every machine. The meter also counts the bytes that lie on each device: arrays that
are alive, and what a program that runs there needs besides.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcp.backends import Device, Executable, MemoryUse, Target
from pcp.backends.arena.array import ArenaArray
from pcp.backends.arena.backend import ArenaBackend
from pcp.ir import Program, TensorSpec
from pcp.planning.placing.cheapest import CopyCost, Costs
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
    """What was charged since it was reset.

    Arguments:
        lying: bytes on each device now.
        most: the most of them.
        inside: called while a program runs.
        compiled: the digests of what was compiled.
    """

    copies: list[tuple[Device, Device, int]] = field(default_factory=list)
    seconds: float = 0.0
    lying: Counter[Device] = field(default_factory=Counter)
    most: Counter[Device] = field(default_factory=Counter)
    inside: Callable[[], object] = lambda: None
    compiled: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def reset(self) -> None:
        self.copies.clear()
        self.seconds = 0.0
        self.most.clear()
        self.inside = lambda: None

    def take(self, device: Device, count: int) -> None:
        with self.changed:
            self.lying[device] += count
            self.most[device] = max(self.most[device], self.lying[device])

    def copy(self, source: Device, place: Device, count: int) -> None:
        with self.changed:
            self.copies.append((source, place, count))
            self.seconds += COPY.seconds(count)
            self.changed.notify_all()


METER = Meter()


class MeteredArray(ArenaArray):
    """An array on one of the two devices."""

    __slots__ = ("device",)

    def __init__(self, array: np.ndarray[Any, Any], device: Device) -> None:
        super().__init__(array)
        self.device = device
        METER.take(device, array.nbytes)

    def __del__(self) -> None:
        METER.take(self.device, -self.array.nbytes)


class MeteredExecutable:
    """A program in the arena; a call charges for its operations."""

    def __init__(self, inner: Executable, program: Program, device: Device) -> None:
        self._inner, self._device = inner, device
        found = operations_in(program)
        pairs = zip(found.names, found.counts, strict=True)
        self._price = sum(count * _seconds(name, device) for name, count in pairs)
        self._besides = inner.memory.temporaries + sum(entry.spec.bytes for entry in program.results)

    @property
    def memory(self) -> MemoryUse:
        return self._inner.memory

    def run(self, buffers: Sequence[MeteredArray]) -> list[MeteredArray]:
        assert all(buffer.device == self._device for buffer in buffers)
        METER.seconds += self._price
        METER.take(self._device, self._besides)
        try:
            METER.inside()
            made = self._inner.run(buffers)
        finally:
            METER.take(self._device, -self._besides)
        return [MeteredArray(each.array, self._device) for each in made]


class MeteredBackend(ArenaBackend):
    """The backend."""

    name = "metered"
    versions = "metered 1"

    def devices(self) -> list[Device]:
        return [CHIP, HOST]

    def compile(self, program: Program, target: Target, *, cache: bool) -> MeteredExecutable:  # type: ignore[override]  # another executable
        METER.compiled.append(program.digest)
        return MeteredExecutable(super().compile(program, target, cache=cache), program, target.device)

    def place(self, array: Any, spec: TensorSpec, target: Target, *, alias: bool) -> MeteredArray:
        del alias
        device = target.device
        if isinstance(array, MeteredArray) and array.device != device:
            METER.copy(array.device, device, spec.bytes)
        return MeteredArray(np.array(array, spec.dtype.numpy).reshape(spec.shape), device)

    def is_on(self, buffer: ArenaArray, target: Target) -> bool:
        return isinstance(buffer, MeteredArray) and buffer.device == target.device


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
