"""Matrix products."""

from collections.abc import Sequence

from pcp import ops
from pcp.importers.torch.table import row, rows
from pcp.tensor import Tensor

Axes = Sequence[int]

rows({"bmm.default matmul.default mm.default mv.default dot.default": ops.matmul})


@row("linear.default")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias."""
    product = ops.dot_general(x, weight, ((x.ndim - 1,), (weight.ndim - 1,)))
    return product if bias is None else product + bias


@row("addmm.default", "baddbmm.default")
def add_product(added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * added + alpha * x y."""
    product = ops.matmul(x, y)
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return (added if beta == 1 else added * beta) + scaled


@row("addbmm.default")
def add_products(added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * added + alpha * the sum of all x y."""
    product = ops.dot_general(x, y, ((0, 2), (0, 1))) * alpha
    return product if beta == 0 else added * beta + product


@row("_trilinear.default")
def trilinear(
    x: Tensor, y: Tensor, z: Tensor, new_x: Axes, new_y: Axes, new_z: Axes, summed: Axes, _: int = 1
) -> Tensor:
    """The sum along axes of x y z, each with some new axes."""
    for axis in new_x:
        x = ops.expand_dims(x, axis)
    for axis in new_y:
        y = ops.expand_dims(y, axis)
    for axis in new_z:
        z = ops.expand_dims(z, axis)
    return ops.sum(x * y * z, tuple(summed)) if summed else x * y * z
