"""A native kernel for dropout, whose random bits are made in registers.

The mask is the program's, bit for bit: a number is kept where the upper 23 bits of its random word are below the
share that is kept, as `pcp.random.bernoulli` compares them in float32. What is kept is scaled as the program says.
"""

import math
from dataclasses import dataclass

import numpy as np

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.composites.records import DROPOUT
from pcp.kernels.artifact import Native
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named, tensors
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.ops.movement import reshape
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["dropout"]
BITS = 23
"""Of a random word, from the top: as many as a float32's mantissa has."""


@dataclass(frozen=True, slots=True)
class Draw:
    """What is kept, and what becomes of it.

    Arguments:
        below: the upper bits of a random word are below this where a number is kept.
        by: what is left is divided by it, or multiplied.
        divides: which of the two.
    """

    below: int
    by: float
    divides: bool

    @classmethod
    def of(cls, op: ir.Operation) -> "Draw":
        """Of an operation `pcp.dropout`."""
        attributes = Named.of(op).attributes
        left = 1 - attributes["rate"]
        divides: bool = attributes["divides"]
        below = math.ceil(float(np.float32(left)) * 2**BITS)
        return cls(below, float(np.float32(left if divides else 1 / left)), divides)


def applies_to_floats(op: ir.Operation) -> bool:
    """Whether it drops some elements of a float32 array, by a key."""
    named = Named.of(op)
    if len(named.operands) != 2 or not 0 < named.attributes["rate"] < 1:
        return False
    key, x = named.operands
    return (key.shape, key.dtype) == ((2,), DType.u32) and named.results == (x,) and x.dtype is DType.f32


def _build(op: ir.Operation) -> list[Tensor]:
    draw, (key, x) = Draw.of(op), tensors(op)
    flat = reshape(x, (-1,))
    told = {"below": draw.below, "by": draw.by, "divides": int(draw.divides)}
    (y,) = native_call(_LIBRARY, "dropout", (key, flat), (flat.spec,), told)
    return [reshape(y, x.shape)]


def _has_elements(op: ir.Operation) -> bool:
    return applies_to_floats(op) and Named.of(op).results[0].size > 0


register_family(
    Family(
        "dropout",
        "random elements set to 0, and the others scaled; its gradient is the same of the cotangent",
        is_named(DROPOUT.name),
        gradient="dropout",
    )
)
register_kernel(
    Kernel(
        "dropout.native",
        "random bits in registers, made again from the key in the backward pass",
        _has_elements,
        Native(_LIBRARY, _build),
        nonfinite="exact",
    )
)
