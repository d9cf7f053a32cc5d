"""What a data parallel worker has in place of an optimizer: it adds its gradients up and leaves the parameters alone."""

from dataclasses import dataclass

import numpy as np

from pcp.ir.tree import map_tree
from pcp.optimizers.base import Parameters, State, zeros_like
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True)
class GradientSum:
    """Sums gradients until they are pushed.

    State:
        `sum`, nested like the parameters, and `count`, the gradients in it.
    """

    moves_parameters = False

    def initial_state(self, parameters: Parameters) -> State:
        """A sum of nothing."""
        return {"count": np.zeros((), np.float32), "sum": zeros_like(parameters)}

    def update(
        self,
        gradients: Parameters,
        state: State,
        parameters: Parameters,
        step: Tensor,  # noqa: ARG002 - an optimizer's signature
    ) -> tuple[Parameters, State, dict[str, Tensor]]:
        """Add one gradient; see `Optimizer`."""
        total = map_tree(lambda a, b: a + b, state["sum"], gradients)
        return parameters, {"count": state["count"] + 1, "sum": total}, {}
