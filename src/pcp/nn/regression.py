"""Losses of numbers and of yes or no: the mean over all elements, as a scalar."""

from pcp.ops.elementwise import abs_, less_equal, where
from pcp.ops.promotion import broadcast_shape
from pcp.ops.reduction import mean
from pcp.ops.special import softplus
from pcp.tensor import Tensor, TensorLike, as_tensor


def mae(prediction: TensorLike, target: TensorLike) -> Tensor:
    """The mean of the absolute differences of two tensors of shapes that broadcast, as a scalar."""
    return mean(abs_(as_tensor(prediction) - target))


def huber(prediction: TensorLike, target: TensorLike, delta: float = 1.0) -> Tensor:
    """The mean of d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), of the differences d.

    Arguments:
        prediction, target: shapes that broadcast.
        delta: where the square goes over into a line.

    Returns:
        A scalar.

    Source: Huber, "Robust Estimation of a Location Parameter", 1964, section 1.
    """
    difference = as_tensor(prediction) - target
    size = abs_(difference)
    return mean(where(less_equal(size, delta), 0.5 * difference * difference, delta * (size - 0.5 * delta)))


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
    scores = as_tensor(logits)
    wanted = as_tensor(targets).astype(scores.dtype)
    broadcast_shape("binary_cross_entropy", scores.shape, wanted.shape)
    return mean(softplus(scores) - scores * wanted)
