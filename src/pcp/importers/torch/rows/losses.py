"""Losses that PyTorch has operations for."""

from pcp import ops
from pcp.importers.torch.rows.reduction import wide
from pcp.importers.torch.table import row
from pcp.tensor import Tensor

NONE, MEAN = 0, 1
"""How PyTorch numbers what is made of the losses of all examples; 2 is their sum."""


@row("nll_loss_forward.default", "nll_loss2d_forward.default")
def nll_loss(
    x: Tensor, targets: Tensor, weight: Tensor | None, reduction: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """Minus the numbers of x at the targets, and the weights of all examples that count. The axis of classes is the second, or
    the only one; it comes last here, where cross entropy is recognised.
    """
    order = (0, *range(2, x.ndim), 1) if x.ndim > 1 else (0,)
    moved = ops.transpose(wide(x), order)
    examples = tuple(size for size in moved.shape[:-1] if size != 1)
    counts = ops.not_equal(targets, ignored)
    safe = ops.where(counts, targets, 0)
    places = ops.reshape(safe, (*examples, 1))
    loss = -ops.take_along_axis(ops.reshape(moved, (*examples, moved.shape[-1])), places, -1)
    loss = ops.reshape(loss, targets.shape)
    weights = ops.convert(counts, loss.dtype)
    if weight is not None:
        weights = ops.where(counts, ops.take(ops.convert(weight, loss.dtype), safe, 0), 0)
        loss = loss * weights
    loss = ops.where(counts, loss, 0)
    if reduction == NONE:
        return loss, ops.full((), 0, loss.dtype)
    total, all_weights = ops.sum(loss), ops.sum(weights)
    return total / all_weights if reduction == MEAN else total, all_weights
