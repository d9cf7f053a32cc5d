"""Elimination with exchanged rows, in StableHLO, so that it runs everywhere."""

from pcp.ops.control.loops import fori_loop
from pcp.ops.elementwise import abs_, convert, equal, greater, less, where
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.movement import broadcast_to, expand_dims, iota, ones, squeeze, stop_gradient, zeros
from pcp.ops.reductions.extremes import argmax
from pcp.ops.reductions.primitives import sum_
from pcp.tensor import Tensor


def eliminated(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """L and U of a square matrix, packed in one, with its rows exchanged; their order, and the sign of that.

    Source: Golub and Van Loan, "Matrix Computations", 4th edition, 2013, algorithm 3.4.1.
    """
    lead, n = a.shape[:-2], a.shape[-1]
    rows_, columns = iota((n, n), 0), iota((n, n), 1)
    numbers = broadcast_to(iota(n), (*lead, n))

    def turn(i: Tensor, state: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        packed, order, sign = state
        column = sum_(where(equal(columns, i), packed, zeros((), a.dtype)), -1)
        size = where(less(numbers, i), -1.0, abs_(stop_gradient(column)))
        pivot = expand_dims(convert(argmax(size, size.ndim - 1), numbers.dtype), len(lead))
        new = where(equal(numbers, i), pivot, where(equal(numbers, pivot), i, numbers))
        packed = take_along_axis(packed, broadcast_to(expand_dims(new, len(lead) + 1), packed.shape), -2)
        row_ = sum_(where(equal(rows_, i), packed, zeros((), a.dtype)), -2, True)
        head = sum_(where(equal(columns, i), row_, zeros((), a.dtype)), -1, True)
        column = sum_(where(equal(columns, i), packed, zeros((), a.dtype)), -1, True)
        below, right = greater(rows_, i), greater(columns, i)
        is_zero = equal(head, zeros((), a.dtype))
        factors = column / where(is_zero, ones((), a.dtype), head)
        packed = where(
            below & right,
            packed - factors * row_,
            where(below & equal(columns, i), broadcast_to(factors, packed.shape), packed),
        )
        flips = where(equal(squeeze(pivot, -1), i), 1.0, -1.0)
        return packed, take_along_axis(order, new, -1), sign * convert(flips, sign.dtype)

    packed, order, sign = fori_loop(0, n, turn, (a, numbers, ones(lead, a.dtype)))
    return packed, order, sign


def rows_in(order: Tensor, x: Tensor) -> Tensor:
    """x with its rows in another order."""
    return take_along_axis(x, broadcast_to(expand_dims(order, order.ndim), x.shape), -2)
