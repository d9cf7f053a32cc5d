"""Stochastic gradient descent, with Nesterov's momentum; also the outer optimizer of DiLoCo."""

from dataclasses import dataclass

from pcp.ir.tree import map_tree
from pcp.ops.elementwise import convert
from pcp.optimizers.base import (
    DecayMask,
    Parameters,
    Schedule,
    State,
    by_parameter,
    check_decay,
    is_within,
    matrices,
    rate_at,
    require,
    scalar_type,
    zeros_like,
)
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True)
class SGD:
    """Gradient descent with momentum, in the form that PyTorch uses: b = momentum b + g.

    Arguments:
        learning_rate: a number, or a schedule.
        momentum: decay of the velocity b; 0 is plain gradient descent and keeps no state.
        nesterov: step along g + momentum b instead of b.
        weight_decay: fraction of a parameter, times the learning rate, taken off at each step, as of AdamW.
        decays: which parameters are decayed, by name and shape.

    State:
        `velocity`, nested like the parameters, if there is momentum.

    Raises:
        InvalidOptimizer: a number is out of its range.

    Source: Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013, equations 3 and 4.
    """

    learning_rate: float | Schedule
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decays: DecayMask = matrices

    def __post_init__(self) -> None:
        check_decay(self)
        require(is_within(self.momentum, 0, 1), self, "a momentum of at least 0 and below 1")

    @property
    def kept(self) -> dict[str, float]:
        """The velocity stands for the gradient."""
        return {"velocity": self.momentum}

    def initial_state(self, parameters: Parameters) -> State:
        """A velocity of zero."""
        return {"velocity": zeros_like(parameters)} if self.momentum else {}

    def update(
        self, gradients: Parameters, state: State, parameters: Parameters, step: Tensor
    ) -> tuple[Parameters, State, dict[str, Tensor]]:
        """One step; see `Optimizer`."""
        rate = rate_at(self.learning_rate, step, scalar_type(parameters))

        def moved(name: str, parameter: Tensor, direction: Tensor) -> tuple[Tensor, ...]:
            if self.weight_decay and self.decays(name, parameter.shape):
                direction = direction + self.weight_decay * parameter
            return (parameter - convert(rate, parameter.dtype) * direction,)

        if not self.momentum:
            return by_parameter(moved, 1, parameters, gradients)[0], {}, {"learning_rate": rate}
        velocity = map_tree(lambda b, g: self.momentum * b + g, state["velocity"], gradients)
        direction = (
            map_tree(lambda b, g: g + self.momentum * b, velocity, gradients) if self.nesterov else velocity
        )
        (updated,) = by_parameter(moved, 1, parameters, direction)
        return updated, {"velocity": velocity}, {"learning_rate": rate}


sgd = SGD


def nesterov(learning_rate: float | Schedule, momentum: float = 0.9, weight_decay: float = 0.0) -> SGD:
    """Gradient descent with Nesterov's momentum; see `SGD`."""
    return SGD(learning_rate, momentum, nesterov=True, weight_decay=weight_decay)
