"""Losses of numbers and of yes or no: the mean over all elements, as a scalar, computed in f32 from 16-bit floats."""

from pcp.ir import DType
from pcp.ops.elementwise import abs_, less_equal, softplus, where
from pcp.ops.promotion import aligned, broadcast_shape
from pcp.ops.reductions.primitives import mean, narrowed, widened
from pcp.tensor import Tensor, TensorLike, as_tensor, explained


@explained
def mae(prediction: TensorLike, target: TensorLike) -> Tensor:
    """The mean of the absolute differences of two tensors of shapes that broadcast, as a scalar."""
    difference, dtype = difference_of("mae", prediction, target)
    return narrowed(mean(abs_(difference)), dtype)


@explained
def huber(prediction: TensorLike, target: TensorLike, delta: float = 1.0) -> Tensor:
    """The mean of d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), of the differences d.

    Arguments:
        prediction, target: shapes that broadcast.
        delta: where the square goes over into a line.

    Returns:
        A scalar.

    Source: Huber, "Robust Estimation of a Location Parameter", 1964, section 1.
    """
    difference, dtype = difference_of("huber", prediction, target)
    size = abs_(difference)
    losses = where(less_equal(size, delta), 0.5 * difference * difference, delta * (size - 0.5 * delta))
    return narrowed(mean(losses), dtype)


@explained
def binary_cross_entropy(logits: TensorLike, targets: TensorLike) -> Tensor:
    """The mean of -t log p - (1 - t) log(1 - p) with p = sigmoid(logit), in nats, without overflow.

    Arguments:
        logits: any shape.
        targets: probabilities or 0 and 1 (booleans, too), of a shape that broadcasts to that of the logits.

    Returns:
        A scalar.

    Raises:
        ShapeMismatch: the shapes do not broadcast.
    """
    scores = widened(logits)
    wanted = as_tensor(targets).astype(scores.dtype)
    broadcast_shape("binary_cross_entropy", scores.shape, wanted.shape)
    return narrowed(mean(softplus(scores) - scores * wanted), as_tensor(logits).dtype)


def difference_of(name: str, prediction: TensorLike, target: TensorLike) -> tuple[Tensor, DType]:
    """The widened difference of two tensors, and the element type that they meet in."""
    left, right = aligned(name, prediction, target)
    return widened(left) - widened(right), left.dtype
