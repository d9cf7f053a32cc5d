"""Softmax and its relatives, as composites, in the form that does not overflow; 16-bit floats in f32 inside."""

import math

from pcp.composites import named
from pcp.ir.composites.records import LOG_SOFTMAX, SOFTMAX
from pcp.ops.elementwise import exp, is_finite, log
from pcp.ops.elementwise import where as chosen
from pcp.ops.movement import ravel, reshape, squeeze, stop_gradient
from pcp.ops.movement.axes import checked_axis
from pcp.ops.reductions.primitives import largest_along, narrowed, sum_, widened
from pcp.tensor import DTypeMismatch, Tensor, TensorLike, as_tensor, export_operations, operation


@operation
def softmax(x: TensorLike, axis: int = -1, where: TensorLike | None = None) -> Tensor:
    """e^x divided by its sum along an axis; the same shape. Integers are converted to f32 first.

    Arguments:
        where: only elements for which it holds count, the others are 0; shape that broadcasts to that of x.
    """
    tensor, place = _along("softmax", _masked(x, where), axis)
    shares = named(SOFTMAX, lambda t: softmax_form(t, place), [tensor], {"axis": place})
    return narrowed(shares if where is None else chosen(where, shares, 0), as_tensor(x).dtype)


@operation
def log_softmax(x: TensorLike, axis: int = -1, where: TensorLike | None = None) -> Tensor:
    """The logarithm of softmax along an axis, without loss of accuracy where softmax is near 0; the same shape.

    Arguments:
        where: only elements for which it holds count, the others are -inf; shape that broadcasts to that of x.
    """
    tensor, place = _along("log_softmax", _masked(x, where), axis)
    logarithms = named(LOG_SOFTMAX, lambda t: _log_softmax_form(t, place), [tensor], {"axis": place})
    return narrowed(logarithms if where is None else chosen(where, logarithms, -math.inf), as_tensor(x).dtype)


def _masked(x: TensorLike, where: TensorLike | None) -> TensorLike:
    return x if where is None else chosen(where, widened(x), -math.inf)


@operation
def logsumexp(
    x: TensorLike, axis: int | None = None, keepdims: bool = False, *, where: TensorLike | None = None
) -> Tensor:
    """The logarithm of the sum of e^x along an axis (all elements if None), without overflow; -inf of no elements.

    Arguments:
        where: only elements for which it holds count; shape that broadcasts to that of x.
    """
    whole = as_tensor(_masked(x, where))
    if axis is None:
        of_all = logsumexp(ravel(whole), 0)
        return reshape(of_all, (1,) * whole.ndim) if keepdims else of_all
    tensor, place = _along("logsumexp", whole, axis)
    largest = _largest(tensor, place)
    finite = chosen(is_finite(largest), largest, 0)  # nothing can be taken off an infinity
    total = log(sum_(exp(tensor - finite), place, keepdims=True)) + finite
    return narrowed(total if keepdims else squeeze(total, place), whole.dtype)


def softmax_form(x: Tensor, axis: int) -> Tensor:
    """e^(x - max x) divided by its sum: what softmax is made of."""
    weights = exp(_shifted(x, axis))
    return weights / sum_(weights, axis, keepdims=True)


def _log_softmax_form(x: Tensor, axis: int) -> Tensor:
    shifted = _shifted(x, axis)
    return shifted - log(sum_(exp(shifted), axis, keepdims=True))


def _along(name: str, x: TensorLike, axis: int) -> tuple[Tensor, int]:
    tensor = widened(x)
    if tensor.dtype.kind == "complex":
        raise DTypeMismatch(f"{name}: element type {tensor.dtype} was given; complex numbers have no largest")
    return tensor, checked_axis(name, axis, tensor.ndim)


def _largest(x: Tensor, axis: int) -> Tensor:
    """The maximum, without a gradient: adding a constant changes no result here."""
    return stop_gradient(largest_along(x, axis))


def _shifted(x: Tensor, axis: int) -> Tensor:
    return x - _largest(x, axis)


export_operations(__name__)
