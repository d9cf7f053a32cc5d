"""A python function of JAX arrays as an executable: how a candidate kernel from outside is run."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from pcp.backends.base import Buffer, CompilationFailed, ExecutionFailed, MemoryUse, OutOfMemory, memory_use
from pcp.backends.target import Target
from pcp.backends.xla import native_device
from pcp.ir import DType, TensorSpec
from pcp.ir.types import dtype_of


class JAXFunction:
    """A function compiled by `jax.jit`; an `Executable` of its flat arguments.

    Arguments:
        function: of JAX arrays, to one array or a flat tuple of them.
        specs: of its arguments.
        target: where it runs.

    Raises:
        CompilationFailed: the function or the compiler raised an exception.
    """

    def __init__(self, function: Callable[..., Any], specs: Sequence[TensorSpec], target: Target) -> None:
        shapes: list[Any] = [np.broadcast_to(np.zeros((), spec.dtype.numpy), spec.shape) for spec in specs]
        # Functions are written for jax as it comes: without 64 bits what they make themselves has 32.
        self._wide = any(spec.dtype in (DType.i64, DType.u64, DType.f64, DType.c128) for spec in specs)
        try:
            with jax.enable_x64(self._wide), jax.default_device(native_device(target.device)):
                lowered = jax.jit(lambda *arrays: _flat(function(*arrays))).lower(*shapes)
                self._compiled = lowered.compile()
        except Exception as error:  # whatever somebody else's function raises
            if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
                raise OutOfMemory(f"memory ran out while the function was compiled: {error}") from None
            raise CompilationFailed(f"{type(error).__name__}: {error}") from None
        self.results = tuple(TensorSpec(info.shape, dtype_of(info.dtype)) for info in lowered.out_info)

    @property
    def memory(self) -> MemoryUse:
        """Bytes that one call takes."""
        return memory_use(self._compiled.memory_analysis())

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results for flat arguments.

        Raises:
            OutOfMemory: the device has too little memory left.
            ExecutionFailed: anything else that went wrong.
        """
        try:
            with jax.enable_x64(self._wide):
                return list(self._compiled(*buffers))
        except Exception as error:  # whatever a callback in somebody else's function raises
            if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
                raise OutOfMemory(f"memory ran out while the function ran: {error}") from None
            raise ExecutionFailed(f"{type(error).__name__}: {error}") from None


def _flat(results: Any) -> tuple[Any, ...]:
    return tuple(jax.tree.leaves(results))
