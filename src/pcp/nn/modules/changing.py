"""Layers that change while they are trained: batch normalisation keeps running means, dropout counts its calls."""

from typing import Any, Self

from pcp.nn import initializers
from pcp.nn.dropout import dropout
from pcp.nn.initializers import Key, generator_of
from pcp.nn.modules.module import Layer, buffer
from pcp.nn.normalization import scaled
from pcp.ops.elementwise import convert, rsqrt
from pcp.ops.random import fold_in
from pcp.ops.random import key as key_of
from pcp.ops.reductions.primitives import mean, widened
from pcp.tensor import Tensor, TensorLike, as_tensor

Array = Any


class BatchNorm(Layer):
    """Mean 0 and variance 1 of every channel over the batch, then times `scale` plus `bias`; channels are the last axis.

    In training, the running `mean` and `variance` become momentum times the old plus (1 - momentum) times those of the
    batch. In evaluation (`model.eval()`) the running ones are used.

    Source: Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift",
    2015, algorithms 1 and 2.
    """

    scale: Array
    bias: Array = None
    mean: Array = buffer(default=None)
    variance: Array = buffer(default=None)
    momentum: float = 0.99
    epsilon: float = 1e-5
    training: bool = True

    @classmethod
    def init(cls, channels: int, momentum: float = 0.99, epsilon: float = 1e-5) -> Self:
        """One with a scale and variances of ones, a bias and means of zeros."""
        ones, zeros = (make(0, (channels,)) for make in (initializers.ones, initializers.zeros))
        return cls(ones, zeros, zeros.copy(), ones.copy(), momentum, epsilon)

    def __call__(self, x: TensorLike) -> Tensor:
        wide = widened(as_tensor(x))
        center, variance = as_tensor(self.mean), as_tensor(self.variance)
        if self.training:
            axes = tuple(range(wide.ndim - 1))
            own = mean(wide, axes)
            spread = mean((wide - own) * (wide - own), axes)
            self.mean = _moved(center, own, self.momentum)
            self.variance = _moved(variance, spread, self.momentum)
            center, variance = own, spread
        return scaled((wide - center) * rsqrt(variance + self.epsilon), x, self.scale, self.bias)


def _moved(old: Tensor, new: Tensor, momentum: float) -> Tensor:
    return convert(momentum * convert(old, new.dtype) + (1 - momentum) * new, old.dtype)


class Dropout(Layer):
    """Random features set to 0 in training: others in every step and every call, and the same in every run.

    Arguments:
        count: the calls so far; a training step carries it.
        seed: of this layer.
        rate: the probability that a feature is dropped.
    """

    count: Array = buffer()
    seed: int = 0
    rate: float = 0.1
    training: bool = True

    @classmethod
    def init(cls, key: Key, rate: float = 0.1) -> Self:
        """One with a seed of its own."""
        seed = int(generator_of(key).integers(1 << 31))
        return cls(initializers.zeros(0, (), "i32"), seed, rate)

    def __call__(self, x: TensorLike) -> Tensor:
        if not self.training:
            return as_tensor(x)
        count = as_tensor(self.count)
        self.count = count + 1
        return dropout(x, fold_in(key_of(self.seed), count), self.rate)
