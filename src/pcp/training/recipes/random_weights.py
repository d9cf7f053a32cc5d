"""Random weights for a loss that came without any: matrices as GPT-2 draws them, scales of one, and shifts of zero."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pcp.ir import Argument, Program
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.rewrite.outline import SHAPES

Array = np.ndarray[Any, Any]

RANDOM = "random"
"""What stands in the place of a file of weights."""

DEVIATION = 0.02
"""Standard deviation of matrices, as in GPT-2 (Radford et al. 2019)."""

_CARRIES = (*SHAPES, "stablehlo.convert")


def random_weights(program: Program, indices: Sequence[int], seed: int) -> dict[int, Array]:
    """Arrays for some arguments of a program.

    An argument with at most one axis longer than 1 is a vector. One that the program only multiplies by is ones, and one that
    it only adds is zeros. Everything else is normal with standard deviation 0.02.

    Arguments:
        seed: equal seeds give equal arrays.

    Returns:
        For each of these arguments an array of its shape and element type.
    """
    module = program.module()
    inline_calls(module)
    values = entry_block(module).arguments
    draws = np.random.default_rng(seed)
    return {index: _drawn(program.arguments[index], values[index], draws) for index in indices}


def _drawn(entry: Argument, value: Value, draws: np.random.Generator) -> Array:
    shape, dtype = entry.spec.shape, entry.spec.dtype.numpy
    if sum(size > 1 for size in shape) <= 1:
        uses = set(_uses(value))
        if uses and uses <= {"stablehlo.multiply"}:
            return np.ones(shape, dtype)
        if uses and uses <= {"stablehlo.add"}:
            return np.zeros(shape, dtype)
    return (draws.standard_normal(shape, np.float32) * DEVIATION).astype(dtype)


def _uses(value: Value) -> Iterator[str]:
    """The names of the first operations that use a value otherwise than in another shape or element type."""
    waiting = [value]
    while waiting:
        for use in waiting.pop().uses:
            op: ir.Operation = use.owner.operation
            if op.name in _CARRIES:
                waiting.extend(op.results)
            else:
                yield op.name
