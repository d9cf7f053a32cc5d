"""Recurrent layers: cells as functions of a carry and an input, for `pcp.scan`, and whole layers by scan."""

from typing import Any

from pcp.ops.elementwise import sigmoid, tanh
from pcp.ops.movement import split, swapaxes, zeros
from pcp.ops.scanning import scan
from pcp.tensor import ShapeMismatch, Tensor, TensorLike, as_tensor, explained

Parameters = dict[str, Any]
State = tuple[Tensor, Tensor]


@explained
def lstm_cell(state: State, x: TensorLike, parameters: Parameters) -> State:
    """One step of a long short-term memory.

    Arguments:
        state: hidden and cell, each of shape (..., width).
        x: shape (..., inputs).
        parameters: `input` (inputs, 4 width), `hidden` (width, 4 width) and perhaps `bias` (4 width,); the four parts are
            input gate, forget gate, candidate, output gate.

    Returns:
        The next hidden and cell.

    Raises:
        ShapeMismatch: the shapes do not correspond.

    Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; with forget gates: Gers, Schmidhuber and Cummins, 2000.
    """
    hidden, cell = state
    gates = _mixed(x, hidden, parameters)
    enter, forget, candidate, leave = split(gates, 4, -1)
    following = sigmoid(forget) * cell + sigmoid(enter) * tanh(candidate)
    return sigmoid(leave) * tanh(following), following


@explained
def gru_cell(hidden: Tensor, x: TensorLike, parameters: Parameters) -> Tensor:
    """One step of a gated recurrent unit.

    Arguments:
        hidden: shape (..., width).
        x: shape (..., inputs).
        parameters: `input` (inputs, 3 width), `hidden` (width, 3 width) and perhaps `bias` and `hidden_bias` (3 width,);
            the three parts are reset gate, update gate, candidate. The reset gate acts on the product with `hidden`.

    Returns:
        The next hidden, shape (..., width).

    Raises:
        ShapeMismatch: the shapes do not correspond.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014, section 2.3; reset after the
    product as in cuDNN.
    """
    from_input = _biased(as_tensor(x) @ parameters["input"], parameters.get("bias"))
    from_hidden = _biased(hidden @ parameters["hidden"], parameters.get("hidden_bias"))
    reset_x, update_x, candidate_x = split(from_input, 3, -1)
    reset_h, update_h, candidate_h = split(from_hidden, 3, -1)
    update = sigmoid(update_x + update_h)
    candidate = tanh(candidate_x + sigmoid(reset_x + reset_h) * candidate_h)
    return (1 - update) * candidate + update * hidden


@explained
def lstm(
    x: TensorLike, parameters: Parameters, initial: State | None = None, reverse: bool = False
) -> tuple[Tensor, State]:
    """A layer of long short-term memory over sequences.

    Arguments:
        x: shape (batch, length, inputs).
        parameters: as of `lstm_cell`.
        initial: hidden and cell to begin with, each of shape (batch, width); None means zeros.
        reverse: whether to go from the end to the beginning.

    Returns:
        The hidden after every step, shape (batch, length, width), and the last hidden and cell.

    Raises:
        ShapeMismatch: the shapes do not correspond.
    """
    rows, start = _rows("lstm", x, parameters)

    def step(state: State, row: Tensor) -> tuple[State, Tensor]:
        following = lstm_cell(state, row, parameters)
        return following, following[0]

    final, hidden = scan(step, (start, start) if initial is None else initial, rows, reverse=reverse)
    return swapaxes(hidden, 0, 1), final


@explained
def gru(
    x: TensorLike, parameters: Parameters, initial: Tensor | None = None, reverse: bool = False
) -> tuple[Tensor, Tensor]:
    """A layer of gated recurrent units over sequences.

    Arguments:
        x: shape (batch, length, inputs).
        parameters: as of `gru_cell`.
        initial: hidden to begin with, shape (batch, width); None means zeros.
        reverse: whether to go from the end to the beginning.

    Returns:
        The hidden after every step, shape (batch, length, width), and the last one.

    Raises:
        ShapeMismatch: the shapes do not correspond.
    """
    rows, start = _rows("gru", x, parameters)

    def step(hidden: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        following = gru_cell(hidden, row, parameters)
        return following, following

    final, hidden = scan(step, start if initial is None else initial, rows, reverse=reverse)
    return swapaxes(hidden, 0, 1), final


def _rows(name: str, x: TensorLike, parameters: Parameters) -> tuple[Tensor, Tensor]:
    """The inputs of every step along the first axis, and zeros to begin with."""
    tensor = as_tensor(x)
    if tensor.ndim != 3:
        raise ShapeMismatch(f"{name}: x of shape {tensor.shape} was given; expected (batch, length, inputs)")
    width = as_tensor(parameters["hidden"]).shape[0]
    return swapaxes(tensor, 0, 1), zeros((tensor.shape[0], width), tensor.dtype)


def _mixed(x: TensorLike, hidden: Tensor, parameters: Parameters) -> Tensor:
    return _biased(as_tensor(x) @ parameters["input"] + hidden @ parameters["hidden"], parameters.get("bias"))


def _biased(product: Tensor, bias: TensorLike | None) -> Tensor:
    return product if bias is None else product + bias
