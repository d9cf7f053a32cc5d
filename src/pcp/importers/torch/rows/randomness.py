"""Random numbers, from PCP's own generator: the distributions are PyTorch's, the numbers are not."""

from collections.abc import Callable
from typing import Any

from pcp import ops
from pcp.importers.torch.table import row
from pcp.ir import DType, TensorSpec
from pcp.ops import random
from pcp.ops.dropping import dropped
from pcp.tensor import Tensor


@row("native_dropout.default", is_random=True)
def native_dropout(
    x: Tensor, rate: float, train: bool | None = True, *, key: Tensor
) -> tuple[Tensor, Tensor]:
    """x with elements replaced by 0 at a rate, the others scaled up; and which were kept."""
    if not train or rate == 0:
        return x, ops.full(x.shape, True, DType.bool)
    if rate == 1:
        return ops.zeros(x.shape, x.dtype), ops.full(x.shape, False, DType.bool)
    return dropped(x, key, rate, divides=False), random.bernoulli(key, 1 - rate, x.shape)


@row("rand.default", "rand_like.default", knows_result=True, is_random=True)
def uniform(*_: object, key: Tensor, result: TensorSpec, **__: object) -> Tensor:
    """Evenly distributed over 0 <= x < 1."""
    return random.uniform(key, result.shape, result.dtype)


@row("randn.default", "randn_like.default", knows_result=True, is_random=True)
def normal(*_: object, key: Tensor, result: TensorSpec, **__: object) -> Tensor:
    """Normally distributed with mean 0 and variance 1."""
    return random.normal(key, result.shape, result.dtype)


@row("bernoulli.default", is_random=True)
def bernoulli(chance: Tensor, *, key: Tensor, **_: object) -> Tensor:
    """1 with a probability, else 0."""
    return random.bernoulli(key, chance)


@row("bernoulli.p", is_random=True)
def bernoulli_like(x: Tensor, chance: float = 0.5, *, key: Tensor, **_: object) -> Tensor:
    """1 with a probability, else 0, in the shape of x."""
    return random.bernoulli(key, chance, x.shape)


def _integers(bounds: Callable[..., tuple[int, int]]) -> Callable[..., Tensor]:
    """Evenly distributed integers, from the arguments that say from where up to where."""

    def draw(*arguments: Any, key: Tensor, result: TensorSpec, **_: object) -> Tensor:
        return random.randint(key, result.shape, *bounds(*arguments))

    return draw


_BOUNDS: dict[str, Callable[..., tuple[int, int]]] = {
    "randint.default": lambda high, *_: (0, high),
    "randint.low": lambda low, high, *_: (low, high),
    "randint_like.default": lambda _, high, *__: (0, high),
    "randint_like.low_dtype": lambda _, low, high, *__: (low, high),
}
for _name, _bounds in _BOUNDS.items():
    row(_name, knows_result=True, is_random=True)(_integers(_bounds))


@row("randperm.default", knows_result=True, is_random=True)
def permutation(count: int, *, key: Tensor, result: TensorSpec, **_: object) -> Tensor:
    """The integers below a number in random order."""
    del result
    return random.permutation(key, count)
