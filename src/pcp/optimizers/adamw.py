"""AdamW: steps scaled by running moments of the gradient, and weight decay apart from them."""

from dataclasses import dataclass

import numpy as np

from pcp.ir.tree import flatten
from pcp.ops.elementwise import convert, power, sqrt
from pcp.optimizers.base import (
    DecayMask,
    Parameters,
    Schedule,
    State,
    is_number,
    is_within,
    rate_at,
    rate_is_valid,
    require,
    scalar_type,
    zeros_like,
)
from pcp.tensor import Tensor, as_tensor


def matrices(_name: str, shape: tuple[int, ...]) -> bool:
    """The usual mask: matrices are decayed, vectors (biases, normalisations) are not."""
    return len(shape) >= 2


@dataclass(frozen=True, slots=True)
class AdamW:
    """AdamW with bias correction and decoupled weight decay.

    Arguments:
        learning_rate: a number, or a schedule.
        betas: decay of the first and second moment.
        epsilon: added to the root of the second moment.
        weight_decay: fraction of a parameter, times the learning rate, taken off at each step.
        decays: which parameters are decayed, by name and shape.

    State:
        `first` and `second`, the moments, nested like the parameters, and `count`, the updates they have seen (which is not
        the training step where moments begin anew in the middle of a run).

    Raises:
        InvalidOptimizer: a number is out of its range.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2.
    """

    learning_rate: float | Schedule
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.01
    decays: DecayMask = matrices

    def __post_init__(self) -> None:
        require(rate_is_valid(self.learning_rate), self, "a learning rate of at least 0, or a schedule")
        pair = isinstance(self.betas, tuple | list) and len(self.betas) == 2
        require(
            pair and all(is_within(beta, 0, 1) for beta in self.betas),
            self,
            "betas of at least 0 and below 1, two of them",
        )
        require(is_number(self.epsilon) and self.epsilon > 0, self, "an epsilon above 0")
        require(is_within(self.weight_decay, 0), self, "a weight decay of at least 0")
        require(
            callable(self.decays), self, "decays that is a function of the name and the shape of a parameter"
        )

    @property
    def kept(self) -> dict[str, float]:
        """The first moment stands for the gradient; the second, of squares, shows in the update and is judged by its value."""
        return {"first": self.betas[0], "second": 0.0}

    def initial_state(self, parameters: Parameters) -> State:
        """Moments of zero."""
        return {
            "count": np.zeros((), np.int32),
            "first": zeros_like(parameters),
            "second": zeros_like(parameters),
        }

    def update(
        self, gradients: Parameters, state: State, parameters: Parameters, step: Tensor
    ) -> tuple[Parameters, State, dict[str, Tensor]]:
        """One step; see `Optimizer`."""
        scalar = scalar_type(parameters)
        rate = rate_at(self.learning_rate, step, scalar)
        count = state["count"] + 1
        beta1, beta2 = self.betas
        correction1 = 1 - power(as_tensor(beta1, scalar), convert(count, scalar))
        correction2 = 1 - power(as_tensor(beta2, scalar), convert(count, scalar))
        leaves, tree = flatten(parameters)
        columns = (
            leaves,
            flatten(gradients)[0],
            flatten(state["first"])[0],
            flatten(state["second"])[0],
            tree.names(),
        )
        new: list[tuple[Tensor, Tensor, Tensor]] = []
        for parameter, gradient, first, second, name in zip(*columns, strict=True):
            # The coefficients are no bfloat16 numbers: 0.999 would be 1. What is kept is as wide as the parameter.
            kept, dtype = parameter.dtype, scalar if parameter.dtype.bits < 32 else parameter.dtype
            parameter, gradient, first, second = (
                convert(each, dtype) for each in (parameter, gradient, first, second)
            )
            m = beta1 * first + (1 - beta1) * gradient
            v = beta2 * second + (1 - beta2) * (gradient * gradient)
            direction = (m / convert(correction1, dtype)) / (
                sqrt(v / convert(correction2, dtype)) + self.epsilon
            )
            if self.weight_decay and self.decays(name, parameter.shape):
                direction = direction + self.weight_decay * parameter
            moved = parameter - convert(rate, dtype) * direction
            new.append((convert(moved, kept), convert(m, kept), convert(v, kept)))
        updated, firsts, seconds = (tree.unflatten([each[index] for each in new]) for index in range(3))
        return updated, {"count": count, "first": firsts, "second": seconds}, {"learning_rate": rate}


adamw = AdamW
