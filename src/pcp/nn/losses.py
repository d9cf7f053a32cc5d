"""Losses: the mean over all examples, as a scalar, computed in f32 from 16-bit floats."""

from pcp.composites import named
from pcp.ir import DType
from pcp.ir.composites.records import CROSS_ENTROPY
from pcp.nn.regression import difference_of
from pcp.ops.elementwise import convert, equal, where
from pcp.ops.movement import expand_dims, iota
from pcp.ops.normalizing import logsumexp
from pcp.ops.promotion import promoted
from pcp.ops.reductions.primitives import mean, narrowed, sum_, widened
from pcp.tensor import DTypeMismatch, ShapeMismatch, Tensor, TensorLike, as_tensor, explained


@explained
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
    losses, dtype = _losses(logits, targets), as_tensor(logits).dtype
    if weights is None:
        return narrowed(mean(losses), dtype)
    wide = widened(weights)
    return narrowed(sum_(losses * wide) / sum_(wide), promoted(as_tensor(logits), weights)[0].dtype)


@explained
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
    return narrowed(_losses(logits, targets), as_tensor(logits).dtype)


def _losses(logits: TensorLike, targets: TensorLike) -> Tensor:
    scores, classes = widened(logits), as_tensor(targets)
    if scores.ndim < 1 or scores.shape[:-1] != classes.shape:
        raise ShapeMismatch(
            f"cross_entropy: logits {scores.shape} need targets of shape {scores.shape[:-1]}; "
            f"{classes.shape} was given"
        )
    if not classes.dtype.is_integer:
        raise DTypeMismatch(
            f"cross_entropy: targets of {classes.dtype} were given; expected integers, the index of the class"
        )
    if classes.dtype.itemsize < 4:  # a narrow type may not count that far
        classes = convert(classes, DType.i32)
    attributes = {"axis": scores.ndim - 1, "wraps": False, "clamps": False, "outside": 0.0, "negated": False}
    return named(CROSS_ENTROPY, _losses_form, [scores, classes], attributes)


def _losses_form(scores: Tensor, classes: Tensor) -> Tensor:
    chosen = equal(iota(scores.shape, scores.ndim - 1, classes.dtype), expand_dims(classes, classes.ndim))
    return logsumexp(scores, -1) - sum_(where(chosen, scores, 0), -1)


@explained
def mse(prediction: TensorLike, target: TensorLike) -> Tensor:
    """The mean of the squared differences of two tensors of shapes that broadcast, as a scalar."""
    difference, dtype = difference_of("mse", prediction, target)
    return narrowed(mean(difference * difference), dtype)
