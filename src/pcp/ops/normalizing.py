"""Softmax and its relatives, in the form that does not overflow and that planners recognise."""

from pcp.ops.elementwise import exp, log
from pcp.ops.movement import checked_axis, stop_gradient
from pcp.ops.promotion import promoted
from pcp.ops.reduction import max_, sum_
from pcp.tensor import Tensor, TensorLike, operation


@operation
def softmax(x: TensorLike, axis: int = -1) -> Tensor:
    """e^x divided by its sum along an axis; the same shape."""
    weights = _shifted_exp(x, axis)[0]
    return weights / sum_(weights, axis, keepdims=True)


@operation
def log_softmax(x: TensorLike, axis: int = -1) -> Tensor:
    """The logarithm of softmax along an axis, without loss of accuracy where softmax is near 0; the same shape."""
    weights, shifted, _ = _shifted_exp(x, axis)
    return shifted - log(sum_(weights, axis, keepdims=True))


@operation
def logsumexp(x: TensorLike, axis: int = -1, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum of e^x along an axis, without overflow."""
    weights, _, largest = _shifted_exp(x, axis)
    total = log(sum_(weights, axis, keepdims=True)) + largest
    return (
        total if keepdims else total.reshape([n for a, n in enumerate(total.shape) if a != axis % total.ndim])
    )


def _shifted_exp(x: TensorLike, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """e^(x - max), x - max, and max. Adding a constant changes no result here, so the maximum carries no gradient."""
    (tensor,) = promoted(x)
    place = checked_axis("softmax", axis, tensor.ndim)
    largest = stop_gradient(max_(tensor, place, keepdims=True))
    shifted = tensor - largest
    return exp(shifted), shifted, largest
