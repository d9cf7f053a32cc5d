"""Linear layers, embeddings and the feed-forward block."""

from collections.abc import Callable, Mapping
from typing import Any

from pcp.nn.activations import gelu
from pcp.nn.quantised import quantised_product, quantised_rows
from pcp.ops.indexing.reading import take
from pcp.tensor import Tensor, TensorLike, as_tensor, explained

Parameters = dict[str, Any]


@explained
def linear(
    x: TensorLike, weight: TensorLike | Mapping[str, TensorLike], bias: TensorLike | None = None
) -> Tensor:
    """x @ weight + bias.

    Arguments:
        x: shape (..., inputs).
        weight: shape (inputs, outputs); or what `quantise` makes of its transpose.
        bias: shape (outputs,), or None.

    Returns:
        Shape (..., outputs).
    """
    product = quantised_product(x, weight) if isinstance(weight, Mapping) else as_tensor(x) @ weight
    return product if bias is None else product + bias


@explained
def embedding(tokens: TensorLike, table: TensorLike | Mapping[str, TensorLike]) -> Tensor:
    """Rows of a table.

    Arguments:
        tokens: integers, any shape.
        table: shape (vocabulary, width); or what `quantise` makes of it.

    Returns:
        Shape of `tokens` with a last axis of `width`. Gradients of repeated tokens add up.
    """
    return quantised_rows(table, tokens) if isinstance(table, Mapping) else take(table, tokens, 0)


@explained
def unembedding(x: TensorLike, table: TensorLike | Mapping[str, TensorLike]) -> Tensor:
    """The product of x with every row of a table: scores of tokens.

    Arguments:
        x: shape (..., width).
        table: shape (vocabulary, width); or what `quantise` makes of it.

    Returns:
        Shape (..., vocabulary).
    """
    return quantised_product(x, table) if isinstance(table, Mapping) else as_tensor(x) @ as_tensor(table).T


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
