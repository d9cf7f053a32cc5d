"""A backend that runs nothing: a processor and a GPU that every machine has, whose memory and times are made up.

What a program takes in memory is what its values take that are alive at once, by its text alone. Results are ones, but where a
test says that a program computes something else here. Copies take time by the clock of `tests.replay.machine`.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from pcp.backends import Device, MemoryUse, Target
from pcp.ir import Program, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.planning.capacity import lower_bound
from pcp.planning.instrument import flat
from tests.backends.eager import HostArray, HostBackend
from tests.replay.clock import CLOCK

DEVICES = [Device("cpu", 0, 16 << 30), Device("cuda", 0, 80 << 30)]
LATENCY, RATE = 1e-5, 1e10
"""Of a copy: seconds, and bytes a second."""


class NullExecutable:
    """A program that is not run."""

    def __init__(self, program: Program, target: Target) -> None:
        self._program, self._devices = program, target.devices

    @property
    def memory(self) -> MemoryUse:
        """Arguments and results, and the most that is alive at once besides."""
        least, module = lower_bound(self._program), flat(self._program).module()
        between = alive(entry_block(module))
        return MemoryUse(least.arguments, least.results, least.aliased, between, True)

    def run(self, buffers: Sequence[HostArray]) -> list[HostArray]:
        """Ones, or twos where this is said to compute something else here."""
        del buffers
        value = 2 if NullBackend.is_wrong(self._program) else 1
        return [
            HostArray(np.full(entry.spec.shape, value, entry.spec.dtype.numpy), self._devices)
            for entry in self._program.results
        ]


def alive(block: ir.Block) -> int:
    """The bytes of the values of a block that are alive at once, at most; a value is from its operation to its last reader."""
    ops = [view.operation for view in block.operations]
    made: dict[Any, Any] = {}
    for op in ops:
        if op.name == "stablehlo.optimization_barrier":  # whose results are what it is given
            made |= {
                result: made.get(given, given) for given, result in zip(op.operands, op.results, strict=True)
            }
    last = {made.get(read, read): place for place, op in enumerate(ops) for read in _read(op)}
    now, most, ends = 0, 0, [0] * (len(ops) + 1)
    for place, op in enumerate(ops):
        inner = max((alive(each) for region in op.regions for each in region.blocks), default=0)
        for result in op.results:
            spec = None if result in made else spec_if_tensor(result.type)
            size = 0 if spec is None else spec.bytes
            now += size
            ends[last.get(result, place)] += size
        most = max(most, now + inner)
        now -= ends[place]
    return most


def _read(op: ir.Operation) -> list[Any]:
    blocks = [block for region in op.regions for block in region.blocks]
    return [
        *op.operands,
        *(value for block in blocks for view in block.operations for value in _read(view.operation)),
    ]


class NullBackend(HostBackend):
    """The backend."""

    name, versions, hardware_model, devices_here = "null", "null 1", "no hardware", DEVICES
    is_wrong: ClassVar[Callable[[Program], bool]] = staticmethod(lambda _: False)

    def compile(self, program: Program, target: Target, *, cache: bool) -> NullExecutable:
        del cache
        return NullExecutable(program, target)

    def place(self, array: Any, spec: TensorSpec, target: Target, *, alias: bool) -> HostArray:
        CLOCK.pass_by(LATENCY + spec.bytes / RATE)
        return super().place(array, spec, target, alias=alias)


class OtherBackend(NullBackend):
    """The same elsewhere, so that operations may be placed there."""

    name = "other"
