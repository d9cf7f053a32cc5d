"""Matrix products."""

from pcp import ops
from pcp.importers.torch.table import row, rows
from pcp.tensor import Tensor

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
