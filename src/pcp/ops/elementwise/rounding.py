"""Elementwise operations that round to integers; they have no derivative but zero."""

from functools import partial

import numpy as np

from pcp.ir import DType
from pcp.ops.elementwise.comparison import less, where
from pcp.ops.elementwise.conversion import complex_, convert, imag, real
from pcp.ops.elementwise.forms import BITS, REAL, by_numpy, elementwise, unary
from pcp.ops.record import Cost
from pcp.tensor import Tensor, TensorLike, WrongArgument, as_tensor, export_operations, operation

_unary = partial(unary, cost=Cost.arithmetic, rounds=False, derivative=None)

floor = _unary("floor", "floor", REAL, "largest integer not above x", fold=by_numpy(np.floor))
ceil = _unary("ceil", "ceil", REAL, "smallest integer not below x", fold=by_numpy(np.ceil))
rint = _unary("rint", "round_nearest_even", REAL, "nearest integer, ties to even", fold=by_numpy(np.rint))
elementwise("round_nearest_afz", cost=Cost.arithmetic, rounds=False, derivative=None)
elementwise("chlo.next_after", cost=Cost.arithmetic, rounds=False, derivative=None)


@operation
def round_(x: TensorLike, decimals: int = 0) -> Tensor:
    """x rounded to so many decimal digits, ties to even, elementwise; integers stay as they are, unless `decimals` is below 0.

    Complex numbers are rounded by their parts.
    """
    tensor = as_tensor(x)
    if tensor.dtype.kind == "complex":
        return complex_(round_(real(tensor), decimals), round_(imag(tensor), decimals))
    if tensor.dtype.kind in BITS:
        if decimals >= 0 or tensor.dtype is DType.bool:
            return tensor
        return convert(rint(convert(tensor, DType.f64) * 10.0**decimals) * 10**-decimals, tensor.dtype)
    if not decimals:
        return rint(tensor)
    most = 4 if tensor.dtype is DType.f16 else 38
    if abs(decimals) > most:
        raise WrongArgument(
            f"round: decimals = {decimals} was given; expected {-most} to {most} in {tensor.dtype}"
        )
    return rint(tensor * 10.0**decimals) / 10.0**decimals


@operation
def trunc(x: TensorLike) -> Tensor:
    """x rounded to an integer towards 0, elementwise; integers stay as they are."""
    tensor = as_tensor(x)
    if not tensor.dtype.is_float:
        return tensor
    return where(less(tensor, 0), ceil(tensor), floor(tensor))


export_operations(__name__)
