"""Elementwise operations that round to integers; they have no derivative but zero."""

from functools import partial

import numpy as np

from pcp.ops.elementwise.comparison import less, where
from pcp.ops.elementwise.forms import REAL, by_numpy, elementwise, unary
from pcp.ops.record import Cost
from pcp.tensor import Tensor, TensorLike, as_tensor, export_operations, operation

_unary = partial(unary, cost=Cost.arithmetic, rounds=False, derivative=None)

floor = _unary("floor", "floor", REAL, "largest integer not above x", fold=by_numpy(np.floor))
ceil = _unary("ceil", "ceil", REAL, "smallest integer not below x", fold=by_numpy(np.ceil))
round_ = _unary("round", "round_nearest_even", REAL, "nearest integer, ties to even", fold=by_numpy(np.rint))
elementwise("round_nearest_afz", cost=Cost.arithmetic, rounds=False, derivative=None)
elementwise("chlo.next_after", cost=Cost.arithmetic, rounds=False, derivative=None)


@operation
def trunc(x: TensorLike) -> Tensor:
    """x rounded to an integer towards 0, elementwise; integers stay as they are."""
    tensor = as_tensor(x)
    if not tensor.dtype.is_float:
        return tensor
    return where(less(tensor, 0), ceil(tensor), floor(tensor))


export_operations(__name__)
