"""Stochastic gradient descent, with Nesterov's momentum; also the outer optimizer of DiLoCo."""

from dataclasses import dataclass

from pcp.ir.tree import map_tree
from pcp.ops.elementwise import convert
from pcp.optimizers.base import (
    Parameters,
    Schedule,
    State,
    is_within,
    rate_at,
    rate_is_valid,
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

    State:
        `velocity`, nested like the parameters, if there is momentum.

    Raises:
        InvalidOptimizer: a number is out of its range.

    Source: Sutskever et al., "On the importance of initialization and momentum in deep learning", 2013, equations 3 and 4.
    """

    learning_rate: float | Schedule
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        require(rate_is_valid(self.learning_rate), self, "a learning rate of at least 0, or a schedule")
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

        def moved(parameter: Tensor, direction: Tensor) -> Tensor:
            return parameter - convert(rate, parameter.dtype) * direction

        if not self.momentum:
            return map_tree(moved, parameters, gradients), {}, {"learning_rate": rate}
        velocity = map_tree(lambda b, g: self.momentum * b + g, state["velocity"], gradients)
        direction = (
            map_tree(lambda b, g: g + self.momentum * b, velocity, gradients) if self.nesterov else velocity
        )
        return map_tree(moved, parameters, direction), {"velocity": velocity}, {"learning_rate": rate}


sgd = SGD


def nesterov(learning_rate: float | Schedule, momentum: float = 0.9) -> SGD:
    """Gradient descent with Nesterov's momentum; see `SGD`."""
    return SGD(learning_rate, momentum, nesterov=True)
