"""Losses: the mean over all examples, as a scalar."""

from pcp.ops.elementwise import equal, where
from pcp.ops.movement import expand_dims, iota
from pcp.ops.normalizing import logsumexp
from pcp.ops.reduction import mean, sum_
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor, TensorLike, as_tensor


def cross_entropy(logits: TensorLike, targets: TensorLike, weights: TensorLike | None = None) -> Tensor:
    """The mean of -log softmax(logits)[target], in nats.

    Arguments:
        logits: shape (..., classes).
        targets: integers of shape (...), each below `classes`.
        weights: shape (...), how much each example counts, or None for all alike.

    Returns:
        A scalar.

    Raises:
        ShapeMismatch: the shapes do not correspond.
        DTypeMismatch: the targets are no integers.
    """
    losses = negative_log_likelihood(logits, targets)
    if weights is None:
        return mean(losses)
    return sum_(losses * weights) / sum_(weights)


def negative_log_likelihood(logits: TensorLike, targets: TensorLike) -> Tensor:
    """-log softmax(logits)[target] of every example, in nats.

    Arguments:
        logits: shape (..., classes).
        targets: integers of shape (...), each below `classes`.

    Returns:
        Shape (...).

    Raises:
        ShapeMismatch: the shapes do not correspond.
        DTypeMismatch: the targets are no integers.
    """
    scores, classes = as_tensor(logits), as_tensor(targets)
    if scores.ndim < 1 or scores.shape[:-1] != classes.shape:
        raise ShapeMismatch(
            f"cross_entropy: logits {scores.shape} need targets of shape {scores.shape[:-1]}; "
            f"{classes.shape} was given"
        )
    if not classes.dtype.is_integer:
        raise DTypeMismatch(
            f"cross_entropy: targets of {classes.dtype} were given; expected integers, the index of the class"
        )
    chosen = equal(iota(scores.shape, scores.ndim - 1, classes.dtype), expand_dims(classes, classes.ndim))
    return logsumexp(scores) - sum_(where(chosen, scores, 0), -1)


def mse(prediction: TensorLike, target: TensorLike) -> Tensor:
    """The mean of the squared differences of two tensors of shapes that broadcast, as a scalar."""
    difference = as_tensor(prediction) - target
    return mean(difference * difference)
