"""Run a Program on NumPy arrays, straight through XLA's client: for tests of what does not need a Plan."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxlib import xla_client

from pcp.ir import Program


@functools.lru_cache(maxsize=64)
def _compiled(program: Program) -> Any:
    (device, *_) = jax.devices("cpu")
    devices = xla_client._xla.DeviceList((device,))
    return device, device.client.compile_and_load(program.module(), devices, xla_client.CompileOptions())


def run(program: Program, *arguments: Any) -> Any:
    """The results, nested as the program's, of nested arguments whose leaves are arrays."""
    device, executable = _compiled(program)
    leaves = [
        np.asarray(leaf, entry.spec.dtype.numpy)
        for leaf, entry in zip(program.flatten_arguments(*arguments), program.arguments, strict=True)
    ]
    with jax.enable_x64(True):
        buffers = [jax.device_put(leaf, device) for leaf in leaves]
        shards: Sequence[Any] = executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
        return program.unflatten_results([np.asarray(shard[0]) for shard in shards])
