"""Recurrent networks, as scans: the program does not grow with the length of the sequence."""

from collections.abc import Callable, Sequence
from typing import Any

from pcp import nn, ops
from pcp.errors import PCPError
from pcp.importers.torch.table import row
from pcp.tensor import Tensor

Parameters = dict[str, Tensor]
Layer = Callable[[Tensor, Parameters, Sequence[Tensor], bool], tuple[Tensor, Sequence[Tensor]]]


class DropoutBetweenLayers(PCPError):
    """A recurrent network with dropout between its layers, which has no counterpart."""


def _lstm(x: Tensor, parameters: Parameters, start: Sequence[Tensor], reverse: bool) -> Any:
    joined = {**parameters}
    if "hidden_bias" in joined:
        joined["bias"] = joined["bias"] + joined.pop("hidden_bias")
    return nn.lstm(x, joined, (start[0], start[1]), reverse)


def _gru(x: Tensor, parameters: Parameters, start: Sequence[Tensor], reverse: bool) -> Any:
    hidden, last = nn.gru(x, parameters, start[0], reverse)
    return hidden, (last,)


def _plain(activation: Callable[[Tensor], Tensor]) -> Layer:
    def layer(x: Tensor, parameters: Parameters, start: Sequence[Tensor], reverse: bool) -> Any:
        added = x @ parameters["input"]
        if "bias" in parameters:
            added = added + parameters["bias"] + parameters["hidden_bias"]

        def step(hidden: Tensor, at_step: Tensor) -> tuple[Tensor, Tensor]:
            following = activation(at_step + hidden @ parameters["hidden"])
            return following, following

        last, rows = ops.scan(step, start[0], ops.swapaxes(added, 0, 1), reverse=reverse)
        return ops.swapaxes(rows, 0, 1), (last,)

    return layer


def _network(layer: Layer) -> Callable[..., tuple[Tensor, ...]]:
    def apply(
        x: Tensor,
        initial: Tensor | Sequence[Tensor],
        weights: Sequence[Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        if train and dropout and layers > 1:
            raise DropoutBetweenLayers(
                f"a recurrent network has dropout={dropout} between its layers; expected 0: call module.eval()"
            )
        states = [initial] if isinstance(initial, Tensor) else list(initial)
        directions = 2 if bidirectional else 1
        each = len(weights) // (layers * directions)
        is_alone = x.ndim == 2  # one sequence, without an axis for the batch
        if is_alone:
            x, states = ops.expand_dims(x, 0), [ops.expand_dims(s, 1) for s in states]
        elif not batch_first:
            x = ops.swapaxes(x, 0, 1)
        last: list[Sequence[Tensor]] = []
        for depth in range(layers):
            of_ways = []
            for way in range(directions):
                place = depth * directions + way
                part = _parameters(weights[place * each : (place + 1) * each], has_biases)
                rows, final = layer(x, part, [s[place] for s in states], way == 1)
                of_ways.append(rows)
                last.append(final)
            x = ops.concatenate(of_ways, 2) if bidirectional else of_ways[0]
        finals = [ops.stack(column) for column in zip(*last, strict=True)]
        if is_alone:
            return ops.squeeze(x, 0), *(ops.squeeze(s, 1) for s in finals)
        return x if batch_first else ops.swapaxes(x, 0, 1), *finals

    return apply


def _parameters(weights: Sequence[Tensor], has_biases: bool) -> Parameters:
    named = {"input": weights[0].T, "hidden": weights[1].T}
    if has_biases:
        named |= {"bias": weights[2], "hidden_bias": weights[3]}
    if len(weights) > (4 if has_biases else 2):
        raise ProjectedState("an LSTM with proj_size was given; expected one without: set proj_size=0")
    return named


class ProjectedState(PCPError):
    """An LSTM whose hidden state is projected, which has no counterpart."""


# In PyTorch's GRU the update gate weighs the old state, as in nn.gru_cell, whose order of gates is PyTorch's, too.
row("lstm.input")(_network(_lstm))
row("gru.input")(_network(_gru))
row("rnn_tanh.input")(_network(_plain(ops.tanh)))
row("rnn_relu.input")(_network(_plain(nn.relu)))
