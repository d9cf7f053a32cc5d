"""Elementwise operations on the bits of integers and on truth values; they have no derivative but zero."""

from functools import partial

import numpy as np

from pcp.ops.elementwise.forms import BITS, INTEGERS, binary, by_numpy, elementwise, require, unary
from pcp.ops.promotion import aligned
from pcp.ops.record import Cost
from pcp.tensor import Tensor, TensorLike, emit, export_operations, operation

_unary = partial(unary, cost=Cost.arithmetic, rounds=False, derivative=None)
_binary = partial(binary, cost=Cost.arithmetic, rounds=False, derivative=None)
_declared = partial(elementwise, cost=Cost.arithmetic, rounds=False, derivative=None)

bitwise_not = _unary(
    "bitwise_not", "not", BITS, "~x: all bits inverted; not x for booleans", fold=by_numpy(np.invert)
)
population_count = _unary("population_count", "popcnt", INTEGERS, "number of bits set")
count_leading_zeros = _unary(
    "count_leading_zeros", "count_leading_zeros", INTEGERS, "number of zero bits above the highest one set"
)
bitwise_and = _binary("bitwise_and", "and", BITS, "x & y", fold=by_numpy(np.bitwise_and))
bitwise_or = _binary("bitwise_or", "or", BITS, "x | y", fold=by_numpy(np.bitwise_or))
bitwise_xor = _binary("bitwise_xor", "xor", BITS, "x ^ y", fold=by_numpy(np.bitwise_xor))
shift_left = _binary("shift_left", "shift_left", INTEGERS, "x << y")
_declared("shift_right_arithmetic", functions=("shift_right",))
_declared("shift_right_logical", functions=("shift_right",))
_declared("chlo.mulhi")


@operation
def shift_right(x: TensorLike, y: TensorLike) -> Tensor:
    """x >> y, elementwise: arithmetic for signed, logical for unsigned integers; shapes broadcast."""
    left, right = aligned("shift_right", x, y)
    require("shift_right", left, INTEGERS)
    kind = "arithmetic" if left.dtype.kind == "signed" else "logical"
    return emit(f"shift_right_{kind}", (left, right), (left.spec,))


export_operations(__name__)
