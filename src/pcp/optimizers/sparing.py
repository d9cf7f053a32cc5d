"""An optimizer that leaves some parameters as they are: those that no gradient reaches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pcp.ir.tree import flatten
from pcp.optimizers.base import Optimizer, Parameters, State, kept_by
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Sparing:
    """An optimizer that is never shown some parameters: they do not move or decay, and have no moments.

    Arguments:
        moving: the optimizer of all others.
        frozen: the parameters that stay, by name. In the state, None stands in their places.
    """

    moving: Optimizer
    frozen: frozenset[str]

    @property
    def kept(self) -> Mapping[str, float]:
        """What the optimizer says of its state."""
        return kept_by(self.moving)

    def initial_state(self, parameters: Parameters) -> State:
        """The optimizer's, of the parameters that move."""
        return self.moving.initial_state(without(parameters, self.frozen))

    def update(
        self, gradients: Parameters, state: State, parameters: Parameters, step: Tensor
    ) -> tuple[Parameters, State, dict[str, Tensor]]:
        """One step of the parameters that move; see `Optimizer`."""
        own, moving_gradients = without(parameters, self.frozen), without(gradients, self.frozen)
        updated, new, reported = self.moving.update(moving_gradients, state, own, step)
        moved = iter(flatten(updated)[0])
        leaves, tree = flatten(parameters)
        names = tree.names()
        whole = [
            leaf if name in self.frozen else next(moved) for name, leaf in zip(names, leaves, strict=True)
        ]
        return tree.unflatten(whole), new, reported


def sparing(optimizer: Optimizer, frozen: frozenset[str]) -> Optimizer:
    """The optimizer, which leaves these parameters as they are; itself if there are none, or if it moves none."""
    moves: bool = getattr(optimizer, "moves_parameters", True)
    return Sparing(optimizer, frozen) if frozen and moves else optimizer


def without(nested: Any, frozen: frozenset[str]) -> Any:
    """A container nested like the parameters, with None where a parameter stays as it is."""
    leaves, tree = flatten(nested)
    return tree.unflatten(
        None if name in frozen else leaf for name, leaf in zip(tree.names(), leaves, strict=True)
    )
