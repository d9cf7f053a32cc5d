"""A python function of JAX arrays as StableHLO text: what is kept of a kernel from outside that is to be used."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from pcp.backends.base import CompilationFailed
from pcp.ir import DType, TensorSpec


def lowered_text(function: Callable[..., Any], specs: Sequence[TensorSpec]) -> str:
    """The text of the module that `jax.jit` makes of a function.

    Arguments:
        function: of JAX arrays, to one array.
        specs: of its arguments.

    Raises:
        CompilationFailed: the function raised an exception, or cannot be lowered.
    """
    shapes: list[Any] = [np.broadcast_to(np.zeros((), spec.dtype.numpy), spec.shape) for spec in specs]
    wide = any(spec.dtype in (DType.i64, DType.u64, DType.f64, DType.c128) for spec in specs)
    try:
        with jax.enable_x64(wide):
            traced = jax.jit(function, keep_unused=True).trace(*shapes)
            return str(traced.lower(lowering_platforms=("cpu",)).as_text())
    except Exception as error:  # whatever somebody else's function raises
        raise CompilationFailed(f"{type(error).__name__}: {error}") from None
