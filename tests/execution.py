"""Run a Program on NumPy arrays: for tests of what does not need a Plan of its own."""

import functools
from typing import Any

import numpy as np

import pcp
from pcp.ir.tree import map_tree

# Test programs run a few times on small arrays: compiling is what takes the time.
QUICK = {"xla_backend_optimization_level": 0}


@functools.lru_cache(maxsize=64)
def _planned(program: pcp.Program) -> Any:
    return pcp.plan(program, cache=False, options=QUICK)


def run(program: pcp.Program, *arguments: Any) -> Any:
    """The results, as NumPy arrays nested as the program's, of nested arguments whose leaves are arrays or numbers."""
    leaves = program.flatten_arguments(*arguments)
    typed = [
        np.asarray(leaf, entry.spec.dtype.numpy)
        for leaf, entry in zip(leaves, program.arguments, strict=True)
    ]
    results = _planned(program).run(*program.argument_tree.unflatten(typed))
    return map_tree(np.asarray, results)
