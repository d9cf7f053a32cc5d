"""Dropout: random features are set to 0 while a network is trained."""

from pcp.ops.dropping import dropped
from pcp.ops.movement import zeros
from pcp.tensor import Tensor, TensorLike, TracingError, as_tensor, explained


class InvalidRate(TracingError):
    """A share of features to drop that is no share."""


@explained
def dropout(x: TensorLike, key: TensorLike | None, rate: float = 0.1) -> Tensor:
    """x with random elements set to 0 and the others divided by 1 - rate, so that the mean stays.

    It is one operation of the program, `pcp.dropout`. Its derivative is the same operation with the same key, so a gradient
    keeps nothing of it but the key.

    Arguments:
        x: any shape.
        key: of the random numbers, used here only (see `pcp.random.split`); None leaves x as it is, for evaluation.
        rate: the probability that an element is dropped, 0 <= rate <= 1.

    Raises:
        InvalidRate: the rate is no probability.

    Source: Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", 2014, section 4.
    """
    if not 0 <= rate <= 1:
        raise InvalidRate(f"dropout: a rate of {rate} was given; expected 0 <= rate <= 1")
    tensor = as_tensor(x)
    if key is None or rate == 0:
        return tensor
    if rate == 1:
        return zeros(tensor.shape, tensor.dtype)
    return dropped(tensor, key, rate, divides=True)
