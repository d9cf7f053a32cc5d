"""Activation functions whose derivatives at their kinks PyTorch's decompositions do not keep."""

from pcp import ops
from pcp.errors import PCPError
from pcp.importers.torch.table import row
from pcp.tensor import Tensor


@row("hardsigmoid.default", promotion="default")
def hardsigmoid(x: Tensor) -> Tensor:
    """(x + 3) / 6 between 0 and 1; at both ends the derivative is 0."""
    return ops.where(ops.less_equal(x, -3), 0, ops.where(ops.greater_equal(x, 3), 1, (x + 3) / 6))


@row("hardswish.default", promotion="default")
def hardswish(x: Tensor) -> Tensor:
    """x times hardsigmoid of x; the derivative is 0 at -3 and 1 at 3."""
    inside = ops.where(ops.less(ops.abs(x), 3), x, 0)  # infinity times a cotangent of 0 is NaN
    return ops.where(
        ops.less_equal(x, -3), 0, ops.where(ops.greater_equal(x, 3), x, inside * (inside + 3) / 6)
    )


@row("rrelu_with_noise_functional.default")
def rrelu(
    x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False
) -> tuple[Tensor, Tensor]:
    """x, and where it is negative times the mean of two bounds."""
    if training:
        raise RandomSlope(
            "rrelu draws its slopes in training; expected the mode eval(): use leaky_relu, or call module.eval()"
        )
    return ops.where(ops.greater(x, 0), x, x * ((lower + upper) / 2)), noise


class RandomSlope(PCPError):
    """A slope that is drawn at random."""
