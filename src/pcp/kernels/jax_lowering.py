"""A python function of JAX arrays as StableHLO: what is kept of it, and what stands in programs."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np
from jax._src.config import traceback_in_locations_limit

from pcp.errors import PCPError
from pcp.ir import DType, Program, TensorSpec

LEAST = "NVIDIA A100"
"""The oldest GPU that kernels are lowered for."""


class NotLowered(PCPError):
    """A function of JAX arrays that cannot be lowered to StableHLO."""


def lowered_text(function: Callable[..., Any], specs: Sequence[TensorSpec], platform: str = "cpu") -> str:
    """The text of the module that `jax.jit` makes of a function.

    Arguments:
        function: of JAX arrays, to one array or a tuple of them.
        specs: of its arguments.
        platform: the kind of device that it is lowered for. No such device need be here, unless the function asks for one.

    Raises:
        NotLowered: the function raised an exception, or cannot be lowered.
    """
    shapes: list[Any] = [np.broadcast_to(np.zeros((), spec.dtype.numpy), spec.shape) for spec in specs]
    try:
        # Kernels in Pallas hold their locations in bytes: a line that moves would make another program.
        with jax.enable_x64(has_wide(specs)), traceback_in_locations_limit(0), _device_of(platform):
            traced = jax.jit(function, keep_unused=True).trace(*shapes)
            return str(traced.lower(lowering_platforms=(platform,)).as_text())
    except Exception as error:  # whatever somebody else's function raises
        raise NotLowered(f"{type(error).__name__}: {error}") from None


def has_wide(specs: Sequence[TensorSpec]) -> bool:
    """Whether JAX needs its types of 64 bits for arguments."""
    return any(spec.dtype in (DType.i64, DType.u64, DType.f64, DType.c128) for spec in specs)


def _device_of(platform: str) -> AbstractContextManager[Any]:
    """Where jax asks what GPU Pallas lowers for and there is none, one that has what all of them have (jax 0.11)."""
    if platform != "cuda" or jax.default_backend() == "gpu":
        return nullcontext()
    device = jax.sharding.AbstractDevice(device_kind=LEAST, num_cores=None, platform="gpu")
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device))


@functools.lru_cache(maxsize=256)
def lowered_program(function: Callable[..., Any], specs: tuple[TensorSpec, ...], platform: str) -> Program:
    """The program that a function becomes for these arguments, made once for each.

    Raises:
        NotLowered: as `lowered_text`.
    """
    return Program.parse(lowered_text(function, specs, platform))
