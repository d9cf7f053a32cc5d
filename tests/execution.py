"""Run a Program, or a function of JAX, on NumPy arrays: for tests of what does not need a Plan of its own."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jaxlib.version
import numpy as np

import pcp
from pcp.ir.tree import map_tree
from pcp.planning.judging.oracle import widened, widened_arrays

# Test programs run a few times on small arrays: compiling is what takes the time.
QUICK: dict[str, bool | int] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_parallel_codegen_split_count": 1,
}
if jaxlib.version.__version_info__ < (0, 11):
    # Twice as much again; later compilers have no such option.
    QUICK["xla_cpu_use_fusion_emitters"] = False

OPTIMISED: dict[str, bool | int] = {
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
}
"""As users compile, for tests of how optimised code rounds: see `tests/conftest.py`."""


@functools.lru_cache(maxsize=64)
def _planned(program: pcp.Program, device: str | None) -> Any:
    return pcp.plan(program, device, cache=False, options=QUICK)


def run(program: pcp.Program, *arguments: Any, device: str | None = None) -> Any:
    """The results, as NumPy arrays nested as the program's, of nested arguments whose leaves are arrays or numbers.

    Arguments:
        device: where; if None, on that of the platform that is tested.
    """
    leaves = program.flatten_arguments(*arguments)
    typed = [
        np.asarray(leaf, entry.spec.dtype.numpy)
        for leaf, entry in zip(leaves, program.arguments, strict=True)
    ]
    results = _planned(program, device).run(*program.argument_tree.unflatten(typed))
    return map_tree(np.asarray, results)


def exactly(program: pcp.Program, *arguments: Any) -> Any:
    """The results in float64, nested as the program's, by a backend that compiles nothing."""
    leaves = widened_arrays(program.arguments, program.flatten_arguments(*arguments))
    given = program.argument_tree.unflatten(list(leaves))
    return map_tree(np.array, pcp.plan(widened(program), "arena:cpu").run(*given))


def run_in_jax(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of JAX gives, compiled as quickly."""
    return jax.jit(function, compiler_options=QUICK)(*arguments)
