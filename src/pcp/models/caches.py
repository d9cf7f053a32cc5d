"""The cache of keys and values by which a decoder reads one token at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.ir import DTypeLike
from pcp.ir.types import dtype_of
from pcp.ops.indexing.blocks import dynamic_slice, dynamic_update_slice
from pcp.ops.movement import pad
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor


def zeros(blocks: int, shape: tuple[int, int, int, int], dtype: DTypeLike) -> list[dict[str, Any]]:
    """Keys and values of a whole context for each block, of shape (batch, context, heads, width)."""
    numpy_type = dtype_of(dtype).numpy
    return [{"key": np.zeros(shape, numpy_type), "value": np.zeros(shape, numpy_type)} for _ in range(blocks)]


def of_sequence(seen: Sequence[tuple[Tensor, Tensor]], context: int) -> list[dict[str, Tensor]]:
    """The cache after a sequence, from the keys and values of each block."""
    rest = [(0, 0), (0, context - seen[0][0].shape[1]), (0, 0), (0, 0)]
    return [{"key": pad(key, rest), "value": pad(value, rest)} for key, value in seen]


def grown(past: dict[str, Tensor], key: Tensor, value: Tensor, place: Tensor) -> dict[str, Tensor]:
    """The cache of one block with the key and the value of one token more."""
    start = (0, place, 0, 0)
    return {
        "key": dynamic_update_slice(past["key"], key, start),
        "value": dynamic_update_slice(past["value"], value, start),
    }


def last_place(x: Tensor, length: TensorLike) -> Tensor:
    """The residual stream of the last of `length` tokens, of shape (batch, 1, width)."""
    batch, _, width = x.shape
    return dynamic_slice(x, (0, as_tensor(length) - 1, 0), (batch, 1, width))


def checked_tokens(tokens: TensorLike, context: int, model: str) -> Tensor:
    """Tokens of shape (batch, length).

    Raises:
        ShapeMismatch: they have another rank, or are more than the context.
    """
    ids = as_tensor(tokens)
    if ids.ndim != 2 or ids.shape[1] > context:
        raise ShapeMismatch(
            f"tokens {ids.shape} do not fit a {model} with a context of {context}; expected (batch, length), "
            f"length at most {context}"
        )
    return ids
