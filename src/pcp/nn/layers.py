"""Linear layers, embeddings and the feed-forward block."""

from collections.abc import Callable
from typing import Any

from pcp.nn.activations import gelu
from pcp.ops.indexing.reading import take
from pcp.tensor import Tensor, TensorLike, as_tensor, explained

Parameters = dict[str, Any]


@explained
def linear(x: TensorLike, weight: TensorLike, bias: TensorLike | None = None) -> Tensor:
    """x @ weight + bias.

    Arguments:
        x: shape (..., inputs).
        weight: shape (inputs, outputs).
        bias: shape (outputs,), or None.

    Returns:
        Shape (..., outputs).
    """
    product = as_tensor(x) @ weight
    return product if bias is None else product + bias


@explained
def embedding(tokens: TensorLike, table: TensorLike) -> Tensor:
    """Rows of a table.

    Arguments:
        tokens: integers, any shape.
        table: shape (vocabulary, width).

    Returns:
        Shape of `tokens` with a last axis of `width`. Gradients of repeated tokens add up.
    """
    return take(table, tokens)


@explained
def mlp(x: TensorLike, parameters: Parameters, activation: Callable[[Tensor], Tensor] = gelu) -> Tensor:
    """The feed-forward block of a transformer: linear, activation, linear.

    Arguments:
        x: shape (..., width).
        parameters: `up` and `down`, each with `weight` and perhaps `bias` as `linear` takes them.

    Returns:
        Shape (..., width).
    """
    return linear(activation(linear(x, **parameters["up"])), **parameters["down"])
