"""Lion: every step has the size of the learning rate, in the direction of a sign."""

from dataclasses import dataclass

from pcp.ops.elementwise import convert, sign
from pcp.optimizers.base import (
    DecayMask,
    Parameters,
    Schedule,
    State,
    by_parameter,
    check_betas,
    check_decay,
    in_full,
    matrices,
    rate_at,
    scalar_type,
    zeros_like,
)
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Lion:
    """Lion: theta <- theta - r (sign(b1 m + (1 - b1) g) + w theta), then m <- b2 m + (1 - b2) g.

    A usual rate r is a third to a tenth of AdamW's, with as much more decay w. Where a gradient is near 0 its sign is rounding:
    a step within a tolerance keeps that in mind as an error of the update.

    Arguments:
        learning_rate: r, a number or a schedule.
        betas: b1, of the direction, and b2, of the momentum.
        weight_decay: w.
        decays: which parameters are decayed, by name and shape.

    State:
        `momentum`, nested like the parameters: half of AdamW's.

    Raises:
        InvalidOptimizer: a number is out of its range.

    Source: Chen et al., "Symbolic Discovery of Optimization Algorithms" (2302.06675), algorithm 2.
    """

    learning_rate: float | Schedule
    betas: tuple[float, float] = (0.9, 0.99)
    weight_decay: float = 0.0
    decays: DecayMask = matrices

    def __post_init__(self) -> None:
        check_betas(self)
        check_decay(self)

    @property
    def kept(self) -> dict[str, float]:
        """The momentum stands for the gradient."""
        return {"momentum": self.betas[1]}

    def initial_state(self, parameters: Parameters) -> State:
        """A momentum of zero."""
        return {"momentum": zeros_like(parameters)}

    def update(
        self, gradients: Parameters, state: State, parameters: Parameters, step: Tensor
    ) -> tuple[Parameters, State, dict[str, Tensor]]:
        """One step; see `Optimizer`."""
        scalar = scalar_type(parameters)
        rate = rate_at(self.learning_rate, step, scalar)
        beta1, beta2 = self.betas

        def moved(name: str, *tensors: Tensor) -> tuple[Tensor, ...]:
            kept = tensors[0].dtype
            parameter, gradient, momentum = in_full(scalar, *tensors)
            direction = sign(beta1 * momentum + (1 - beta1) * gradient)
            if self.weight_decay and self.decays(name, parameter.shape):
                direction = direction + self.weight_decay * parameter
            new = parameter - convert(rate, parameter.dtype) * direction
            return convert(new, kept), convert(beta2 * momentum + (1 - beta2) * gradient, kept)

        updated, momentum = by_parameter(moved, 2, parameters, gradients, state["momentum"])
        return updated, {"momentum": momentum}, {"learning_rate": rate}


lion = Lion
