"""AdamW: steps scaled by running moments of the gradient, and weight decay apart from them."""

from dataclasses import dataclass

import numpy as np

from pcp.ops.elementwise import convert, power, sqrt
from pcp.optimizers.base import (
    DecayMask,
    Parameters,
    Schedule,
    State,
    by_parameter,
    check_betas,
    check_decay,
    in_full,
    is_number,
    matrices,
    rate_at,
    require,
    scalar_type,
    zeros_like,
)
from pcp.tensor import Tensor, as_tensor


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
        check_betas(self)
        require(is_number(self.epsilon) and self.epsilon > 0, self, "an epsilon above 0")
        check_decay(self)

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

        def moved(name: str, *tensors: Tensor) -> tuple[Tensor, ...]:
            kept = tensors[0].dtype
            parameter, gradient, first, second = in_full(scalar, *tensors)
            dtype = parameter.dtype
            m = beta1 * first + (1 - beta1) * gradient
            v = beta2 * second + (1 - beta2) * (gradient * gradient)
            direction = (m / convert(correction1, dtype)) / (
                sqrt(v / convert(correction2, dtype)) + self.epsilon
            )
            if self.weight_decay and self.decays(name, parameter.shape):
                direction = direction + self.weight_decay * parameter
            new = parameter - convert(rate, dtype) * direction
            return convert(new, kept), convert(m, kept), convert(v, kept)

        updated, first, second = by_parameter(
            moved, 3, parameters, gradients, state["first"], state["second"]
        )
        return updated, {"count": count, "first": first, "second": second}, {"learning_rate": rate}


adamw = AdamW


def adam(
    learning_rate: float | Schedule, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8
) -> AdamW:
    """Adam: AdamW without weight decay; see `AdamW`. Source: Kingma and Ba, "Adam", 2015, algorithm 1."""
    return AdamW(learning_rate, betas, epsilon, weight_decay=0.0)
