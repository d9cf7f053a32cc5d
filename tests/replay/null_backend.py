"""A backend that runs nothing: a processor and a GPU that every machine has, whose memory and times are made up.

What a program takes in memory is what its values take that are alive at once, by its text alone. Results are ones, but where a
test says that a program computes something else here. Copies take time by the clock of `tests.replay.machine`.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from pcp.backends import Device, MemoryUse
from pcp.backends.base import CompileOptions
from pcp.ir import Program, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.planning.capacity import lower_bound
from pcp.planning.instrument import flat
from tests.replay.clock import CLOCK

DEVICES = [Device("cpu", 0, 16 << 30), Device("cuda", 0, 80 << 30)]
LATENCY, RATE = 1e-5, 1e10
"""Of a copy: seconds, and bytes a second."""


class NullArray:
    """An array on a device of this backend."""

    def __init__(self, array: np.ndarray[Any, Any], device: Device) -> None:
        self.array, self.device = array, device
        self.shape, self.dtype = array.shape, array.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.array, dtype, copy=True if copy else None)


class NullExecutable:
    """A program that is not run."""

    def __init__(self, program: Program, device: Device) -> None:
        self._program, self._device = program, device

    @property
    def memory(self) -> MemoryUse:
        """Arguments and results, and the most that is alive at once besides."""
        least, module = lower_bound(self._program), flat(self._program).module()
        between = alive(entry_block(module))
        return MemoryUse(least.arguments, least.results, least.aliased, between, True)

    def run(self, buffers: Sequence[NullArray]) -> list[NullArray]:
        """Ones, or twos where this is said to compute something else here."""
        del buffers
        value = 2 if NullBackend.is_wrong(self._program) else 1
        return [
            NullArray(np.full(entry.spec.shape, value, entry.spec.dtype.numpy), self._device)
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


class NullBackend:
    """The backend."""

    name = "null"
    versions = "null 1"
    is_deleted = staticmethod(lambda _: False)
    is_wrong: ClassVar[Callable[[Program], bool]] = staticmethod(lambda _: False)

    def devices(self) -> list[Device]:
        return DEVICES

    def compile(
        self, program: Program, device: Device, options: CompileOptions, *, cache: bool
    ) -> NullExecutable:
        del options, cache
        return NullExecutable(program, device)

    def place(self, array: Any, spec: TensorSpec, device: Device, *, alias: bool) -> NullArray:
        del alias
        CLOCK.pass_by(LATENCY + spec.bytes / RATE)
        return NullArray(np.array(array, spec.dtype.numpy).reshape(spec.shape), device)

    def aside(self, buffer: NullArray) -> None:
        """None: its devices have no such memory."""

    def is_buffer(self, value: object) -> bool:
        return isinstance(value, NullArray)

    def facts(self, device: Device) -> Callable[[NullArray], object]:
        del device
        return lambda buffer: (buffer.shape, buffer.dtype, buffer.device)

    def is_on(self, buffer: NullArray, device: Device) -> bool:
        return buffer.device == device

    def wait(self, buffers: Sequence[NullArray]) -> None:
        """Nothing is ever late."""

    def hardware(self, device: Device) -> tuple[str, str]:
        return "no hardware", str(device)

    def quick_options(self, device: Device) -> CompileOptions:
        del device
        return {}


class OtherBackend(NullBackend):
    """The same elsewhere, so that operations may be placed there."""

    name = "other"
