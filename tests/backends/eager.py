"""A second backend, for tests: NumPy evaluates one operation after another. Its arrays are its own, and no `jax.Array`s."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from pcp.backends import CompilationFailed, Device, MemoryUse, Target
from pcp.backends.base import CompileOptions
from pcp.ir import Program, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.planning.instrument import flat

DEVICES = [Device("cpu", 0, 1 << 30), Device("cpu", 1, 1 << 29)]

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "stablehlo.add": np.add,
    "stablehlo.multiply": np.multiply,
    "stablehlo.sine": np.sin,
    "stablehlo.tanh": np.tanh,
    "stablehlo.convert": lambda x: x,
}


class HostArray:
    """An array on devices of such a backend; no `jax.Array`."""

    def __init__(self, array: np.ndarray[Any, Any], devices: tuple[Device, ...]) -> None:
        self.array, self.devices = array, devices
        self.shape, self.dtype = array.shape, array.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.array, dtype, copy=True if copy else None)


class HostBackend:
    """A backend but for its name, its versions, its devices and what it compiles."""

    hardware_model: ClassVar[str]
    devices_here: ClassVar[list[Device]]
    is_deleted = staticmethod(lambda _: False)

    def devices(self) -> list[Device]:
        return self.devices_here

    def place(self, array: Any, spec: TensorSpec, target: Target, *, alias: bool) -> HostArray:
        del alias
        return HostArray(np.array(array, spec.dtype.numpy).reshape(spec.shape), target.devices)

    def aside(self, buffer: HostArray) -> None:
        """None: its devices have no such memory."""

    def is_buffer(self, value: object) -> bool:
        return isinstance(value, HostArray)

    def facts(self, target: Target) -> Callable[[HostArray], object]:
        del target
        return lambda buffer: (buffer.shape, buffer.dtype, buffer.devices)

    def is_on(self, buffer: HostArray, target: Target) -> bool:
        return buffer.devices == target.devices

    def wait(self, buffers: Sequence[HostArray]) -> None:
        """Nothing is ever late."""

    def hardware(self, target: Target) -> tuple[str, str]:
        return self.hardware_model, target.places

    def quick_options(self, target: Target) -> CompileOptions:
        del target
        return {}


class EagerExecutable:
    """A program whose operations are looked up in a table."""

    def __init__(self, program: Program, target: Target) -> None:
        self._module, self._devices = flat(program).module(), target.devices
        self._program = program
        *self._operations, self._end = (op.operation for op in main_of(self._module).regions[0].blocks[0])
        for op in self._operations:
            if op.name not in _OPERATIONS:
                raise CompilationFailed(
                    f"eager does not know {op.name}; it knows {', '.join(sorted(_OPERATIONS))}"
                )

    @property
    def memory(self) -> MemoryUse:
        """Every value is kept until the end."""
        specs = [spec_of(result.type) for op in self._operations for result in op.results]
        takes, gives = (
            sum(e.spec.bytes for e in each) for each in (self._program.arguments, self._program.results)
        )
        return MemoryUse(takes, gives, 0, sum(spec.bytes for spec in specs) - gives, exact=False)

    def run(self, buffers: Sequence[Any]) -> list[Any]:
        """The results."""
        block: ir.Block = main_of(self._module).regions[0].blocks[0]
        values = dict(zip(block.arguments, (buffer.array for buffer in buffers), strict=True))
        for op in self._operations:
            [result] = op.results
            made = _OPERATIONS[op.name](*(values[operand] for operand in op.operands))
            values[result] = np.asarray(made, spec_of(result.type).dtype.numpy)
        return [HostArray(values[each], self._devices) for each in self._end.operands]


class EagerBackend(HostBackend):
    """The backend."""

    name, versions, hardware_model, devices_here = "eager", "eager 1", "NumPy", DEVICES
    runs_on_several = True
    """Each of them computes the same."""

    def compile(self, program: Program, target: Target, *, cache: bool) -> EagerExecutable:
        del cache
        return EagerExecutable(program, target)


class TunedBackend(EagerBackend):
    """The same with options: `slow` for programs with a sine, `wide` for those with a product."""

    name, versions = "tuned", "tuned 1"
    options_on = ("cpu",)
    told: ClassVar[list[tuple[str, dict[str, object]]]] = []
    """What was compiled with which options."""

    def options_for(self, program: Program, target: Target) -> CompileOptions:
        assert target.platform == "cpu"
        text = program.text
        suits = {"slow": ("sine", True), "wide": ("multiply", 2)}
        return {name: value for name, (word, value) in suits.items() if word in text}

    def compile(self, program: Program, target: Target, *, cache: bool) -> EagerExecutable:
        self.told.append((program.digest, dict(target.options)))
        return super().compile(program, target, cache=cache)
