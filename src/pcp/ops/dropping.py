"""Random elements replaced by zeros: one operation of the program, `pcp.dropout`, which its name says to kernels."""

from pcp.composites import named
from pcp.ir.composites.records import DROPOUT
from pcp.ops.elementwise import where
from pcp.ops.random import bernoulli
from pcp.ops.threefry import checked_key
from pcp.tensor import Tensor, TensorLike


def dropped(x: Tensor, key: TensorLike, rate: float, divides: bool) -> Tensor:
    """x with random elements set to 0 and the others scaled, so that the mean stays.

    Arguments:
        key: u32[2], of the random numbers.
        rate: the probability that an element is dropped, 0 < rate < 1.
        divides: whether what is left is divided by 1 - rate; else it is multiplied by 1 / (1 - rate), as PyTorch does.
    """

    def form(key: Tensor, x: Tensor) -> Tensor:
        scaled = x / (1 - rate) if divides else x * (1 / (1 - rate))
        return where(bernoulli(key, 1 - rate, x.shape), scaled, 0)

    rate = float(rate)  # one of NumPy's would decide about element types
    return named(DROPOUT, form, [checked_key(key), x], {"rate": rate, "divides": divides})
