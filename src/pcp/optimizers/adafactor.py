"""Adafactor: steps scaled by the squares of gradients, of which matrices keep the means of rows and columns only."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.ir.tree import flatten
from pcp.ops.elementwise import convert, maximum, power, rsqrt, sqrt
from pcp.ops.movement import expand_dims
from pcp.ops.reductions.primitives import mean
from pcp.optimizers.base import (
    DecayMask,
    Parameters,
    Schedule,
    State,
    by_parameter,
    check_decay,
    in_full,
    is_number,
    is_within,
    matrices,
    rate_at,
    require,
    scalar_type,
)
from pcp.tensor import Tensor, as_tensor

SMALLEST_SCALE = 1e-3
"""Of a parameter, by which its steps are scaled: so that one that is 0 moves."""


@dataclass(frozen=True, slots=True)
class Adafactor:
    """Adafactor without momentum, as that of optax: a matrix of p rows and q columns keeps p + q numbers.

    Arguments:
        learning_rate: a number or a schedule, relative to the size of each parameter if `multiply_by_parameter_scale`.
        min_dim_size_to_factor: arrays whose two largest axes are at least so long keep means over each of the two.
        decay_rate: c of the decay 1 - t^-c of the squares at their t-th update.
        multiply_by_parameter_scale: whether the step of a parameter is as large as the root of its mean square, times the rate.
        clipping_threshold: largest root mean square of a direction; None does not clip.
        epsilon: added to squares of gradients.
        weight_decay: fraction of a parameter, times the learning rate, taken off at each step, as of AdamW (optax's is not
            multiplied by the rate).
        decays: which parameters are decayed, by name and shape.

    State:
        by the names of parameters `rows` and `columns`, the means of those that are factored, and `second` of all others; and
        `count`, the updates they have seen.

    Raises:
        InvalidOptimizer: a number is out of its range.

    Source: Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018, algorithms 4 and 5.
    """

    learning_rate: float | Schedule
    min_dim_size_to_factor: int = 128
    decay_rate: float = 0.8
    multiply_by_parameter_scale: bool = True
    clipping_threshold: float | None = 1.0
    epsilon: float = 1e-30
    weight_decay: float = 0.0
    decays: DecayMask = matrices

    def __post_init__(self) -> None:
        check_decay(self)
        require(is_within(self.decay_rate, 0, 1), self, "a decay rate of at least 0 and below 1")
        require(is_number(self.epsilon) and self.epsilon > 0, self, "an epsilon above 0")
        limit = self.clipping_threshold
        require(
            limit is None or (is_number(limit) and limit > 0), self, "a clipping threshold above 0, or None"
        )
        least = self.min_dim_size_to_factor
        require(
            type(least) is int and least >= 1,
            self,
            "a smallest size to factor that is a whole number above 0",
        )

    @property
    def kept(self) -> dict[str, float]:
        """The squares show in the update and are judged by their values."""
        return {"rows": 0.0, "columns": 0.0, "second": 0.0}

    def initial_state(self, parameters: Parameters) -> State:
        """Means of zero."""
        leaves, tree = flatten(parameters)
        state: dict[str, Any] = {"count": np.zeros((), np.int32), "rows": {}, "columns": {}, "second": {}}
        for name, leaf in zip(tree.names(), leaves, strict=True):
            for entry, without in self._means(leaf.shape).items():
                shape = [size for axis, size in enumerate(leaf.shape) if axis != without]
                state[entry][name] = np.zeros(shape, leaf.dtype)
        return state

    def _means(self, shape: tuple[int, ...]) -> dict[str, int | None]:
        """For every entry of the state that an array has, the axis of the array over which it is a mean."""
        order = [int(axis) for axis in np.argsort(shape, kind="stable")]
        if len(shape) < 2 or shape[order[-2]] < self.min_dim_size_to_factor:
            return {"second": None}
        return {"rows": order[-1], "columns": order[-2]}

    def update(
        self, gradients: Parameters, state: State, parameters: Parameters, step: Tensor
    ) -> tuple[Parameters, State, dict[str, Tensor]]:
        """One step; see `Optimizer`."""
        scalar = scalar_type(parameters)
        rate = rate_at(self.learning_rate, step, scalar)
        count = state["count"] + 1
        decay = 1 - power(convert(count, scalar), as_tensor(-self.decay_rate, scalar))
        new: dict[str, Any] = {"count": count, "rows": {}, "columns": {}, "second": {}}

        def moved(name: str, parameter: Tensor, gradient: Tensor) -> tuple[Tensor, ...]:
            own = self._means(parameter.shape)
            kept = parameter.dtype
            before = {entry: state[entry][name] for entry in own}
            parameter, gradient, *held = in_full(scalar, parameter, gradient, *before.values())
            share, squares = convert(decay, parameter.dtype), gradient * gradient + self.epsilon
            means = {}
            for (entry, axis), old in zip(own.items(), held, strict=True):
                means[entry] = share * old + (1 - share) * (squares if axis is None else mean(squares, axis))
                new[entry][name] = convert(means[entry], kept)
                means[entry] = convert(new[entry][name], parameter.dtype)
            direction = gradient * _factor(means, own)
            if self.clipping_threshold is not None:
                direction = direction / maximum(
                    sqrt(mean(direction * direction)) / self.clipping_threshold, 1
                )
            direction = direction * convert(rate, parameter.dtype)
            if self.multiply_by_parameter_scale:
                direction = direction * maximum(sqrt(mean(parameter * parameter)), SMALLEST_SCALE)
            if self.weight_decay and self.decays(name, parameter.shape):
                direction = direction + convert(rate, parameter.dtype) * self.weight_decay * parameter
            return (convert(parameter - direction, kept),)

        (updated,) = by_parameter(moved, 1, parameters, gradients)
        return updated, new, {"learning_rate": rate}


def _factor(means: dict[str, Tensor], axes: dict[str, int | None]) -> Tensor:
    """What a gradient is multiplied by: the root of one over the squares, from their means."""
    if "second" in means:
        return rsqrt(means["second"])
    over_rows, over_columns = axes["rows"], axes["columns"]
    assert over_rows is not None
    assert over_columns is not None
    rest = over_columns - 1 if over_columns > over_rows else over_columns
    rows = means["rows"] / mean(means["rows"], rest, keepdims=True)
    return expand_dims(rsqrt(rows), over_rows) * expand_dims(rsqrt(means["columns"]), over_columns)


adafactor = Adafactor
