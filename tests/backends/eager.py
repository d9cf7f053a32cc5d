"""A second backend, for tests: NumPy evaluates one operation after another. Its arrays are its own, and no `jax.Array`s."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcp.backends import CompilationFailed, Device, MemoryUse
from pcp.backends.base import CompileOptions
from pcp.ir import Program, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.planning.instrument import flat

DEVICES = [Device("cpu", 0, 1 << 30), Device("cpu", 1, 1 << 30)]

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "stablehlo.add": np.add,
    "stablehlo.multiply": np.multiply,
    "stablehlo.sine": np.sin,
    "stablehlo.tanh": np.tanh,
    "stablehlo.convert": lambda x: x,
}


class Eager:
    """An array on a device of this backend."""

    def __init__(self, array: np.ndarray[Any, Any], device: Device) -> None:
        self.array, self.device = array, device
        self.shape, self.dtype = array.shape, array.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.array, dtype, copy=True if copy else None)


class EagerExecutable:
    """A program whose operations are looked up in a table."""

    def __init__(self, program: Program, device: Device) -> None:
        self._module, self._device = flat(program).module(), device
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
        return [Eager(values[each], self._device) for each in self._end.operands]


class EagerBackend:
    """The backend."""

    name = "eager"
    versions = "eager 1"
    is_deleted = staticmethod(lambda _: False)

    def devices(self) -> list[Device]:
        return DEVICES

    def compile(
        self, program: Program, device: Device, options: CompileOptions, *, cache: bool
    ) -> EagerExecutable:
        del options, cache
        return EagerExecutable(program, device)

    def place(self, array: Any, spec: TensorSpec, device: Device, *, alias: bool) -> Eager:
        del alias
        return Eager(np.array(array, spec.dtype.numpy).reshape(spec.shape), device)

    def aside(self, buffer: Eager) -> None:
        """None: its devices have no such memory."""

    def is_buffer(self, value: object) -> bool:
        return isinstance(value, Eager)

    def facts(self, device: Device) -> Callable[[Eager], object]:
        del device
        return lambda buffer: (buffer.shape, buffer.dtype, buffer.device)

    def is_on(self, buffer: Eager, device: Device) -> bool:
        return buffer.device == device

    def wait(self, buffers: Sequence[Eager]) -> None:
        """Nothing is ever late."""

    def hardware(self, device: Device) -> tuple[str, str]:
        return "NumPy", str(device)

    def quick_options(self, device: Device) -> CompileOptions:
        del device
        return {}
