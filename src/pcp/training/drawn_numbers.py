"""The random numbers that a loss draws in a training step: they follow from seed, step and batch, and are no state."""

from typing import Any

from pcp.errors import PCPError
from pcp.ir import DType
from pcp.ir.tree import flatten
from pcp.ops.elementwise import convert
from pcp.ops.random import fold_in, key
from pcp.ops.reductions.primitives import sum_
from pcp.tensor import Tensor
from pcp.tracing import ArgumentSpec, spec


class NotALoss(PCPError):
    """A program that cannot be trained: it has no parameters, or its result is no scalar loss, or it takes no key."""


def expect_key(batch: list[Any]) -> None:
    """Refuse a loss whose last argument is no key; raises NotALoss."""
    last = batch[-1].spec if batch and isinstance(batch[-1], ArgumentSpec) else None
    if last != spec((2,), "u32").spec:
        raise NotALoss(
            f"a seed was given, and the last argument of the loss is {last or 'nested'}; expected a key, u32[2], from which "
            "the loss draws its random numbers, as pcp.random.key makes one"
        )


def key_of(seed: int, count: Tensor, batch: tuple[Any, ...]) -> Tensor:
    """The key of a micro-batch: others for other steps and for other data."""
    folded = fold_in(key(seed), count)
    for leaf in flatten(batch)[0]:
        if leaf.dtype.is_integer:
            folded = fold_in(folded, sum_(convert(leaf, DType.u32)))
    return folded
