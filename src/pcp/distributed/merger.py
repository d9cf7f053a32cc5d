"""What a Shepherd computes for its run: the check of a pseudo-gradient, and the outer step."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pcp.distributed.algorithms import Contribution
from pcp.distributed.array_blobs import load_arrays, store_arrays
from pcp.distributed.messages import Blob
from pcp.distributed.programs import shepherd_programs
from pcp.distributed.wire.blobs import BlobStore
from pcp.errors import PCPError
from pcp.ir import Tree
from pcp.ir.tree import flatten, map_tree
from pcp.ir.types import TensorSpec, dtype_of
from pcp.optimizers import nesterov
from pcp.planning import plan
from pcp.training.recipe import Recipe


class RunDiverged(PCPError):
    """An outer step that leads to numbers that are none."""


class Merger:
    """Outer steps on stored parameters. `compile` comes before the first.

    Arguments:
        recipe: what is trained.
        store: where blobs are.
    """

    def __init__(self, recipe: Recipe, store: BlobStore) -> None:
        config = recipe.config
        self._recipe = recipe
        self._store = store
        self._optimizer = nesterov(config.outer_learning_rate, config.outer_momentum)
        self._programs = shepherd_programs(recipe.parameters, self._optimizer)
        self._parameters = layout(recipe.parameters)
        self._momentum = layout(self._optimizer.initial_state(recipe.parameters))

    def compile(self) -> None:
        """Make ready to merge.

        Raises:
            OutOfMemory: an outer step does not fit in the device's memory.
        """
        device = self._recipe.config.device
        self._accumulate = plan(self._programs.accumulate, device=device)
        self._outer = plan(self._programs.outer, device=device)

    def begin(self) -> tuple[Blob, Blob]:
        """Store the initial parameters and the initial state of the outer optimizer."""
        parameters = self._recipe.parameters
        return (
            store_arrays(self._store, parameters),
            store_arrays(self._store, self._optimizer.initial_state(parameters)),
        )

    def check(self, blob: Blob) -> None:
        """Make sure that a blob is a pseudo-gradient of this model, of finite numbers.

        Raises:
            ArraysRefused: it is not.
        """
        load_arrays(self._store, blob, *self._parameters, finite=True)

    def merge(
        self,
        contributions: Sequence[Contribution],
        weights: Sequence[float],
        parameters: Blob,
        optimizer_state: Blob | None,
        round: int,
    ) -> tuple[Blob, Blob]:
        """One outer step; the pseudo-gradients are added in the order given.

        Returns:
            The new parameters and the new state of the outer optimizer, stored.

        Raises:
            ArraysRefused: a stored blob is not what it should be.
            RunDiverged: the new parameters are not finite, although every pseudo-gradient is.
        """
        anchor = load_arrays(self._store, parameters, *self._parameters)
        state = self._optimizer.initial_state(self._recipe.parameters)
        if optimizer_state is not None:
            state = load_arrays(self._store, optimizer_state, *self._momentum)
        mean: Any = map_tree(np.zeros_like, anchor)
        for contribution, weight in zip(contributions, weights, strict=True):
            delta = load_arrays(self._store, contribution.pseudo_gradient, *self._parameters)
            mean = self._accumulate.run(mean, delta, np.float32(weight))
        updated, momentum = self._outer.run(anchor, state, mean, np.int32(round))
        for name, leaf in zip(self._parameters[0].names(), flatten(updated)[0], strict=True):
            if not np.isfinite(np.asarray(leaf, np.float32)).all():
                raise RunDiverged(
                    f"the outer step makes {name} infinite or NaN: the run diverges; lower learning_rate or "
                    f"outer_learning_rate, which is {self._recipe.config.outer_learning_rate}"
                )
        return store_arrays(self._store, updated), store_arrays(self._store, momentum)

    def load(self, parameters: Blob, optimizer_state: Blob | None) -> dict[str, Any]:
        """Parameters and outer optimizer state as nested arrays, for a checkpoint."""
        state = {"params": load_arrays(self._store, parameters, *self._parameters)}
        if optimizer_state is not None:
            state["outer"] = load_arrays(self._store, optimizer_state, *self._momentum)
        return state


def layout(value: Any) -> tuple[Tree, list[TensorSpec]]:
    """The nesting of arrays, and the shape and element type of each."""
    leaves, tree = flatten(value)
    return tree, [TensorSpec(tuple(leaf.shape), dtype_of(leaf.dtype)) for leaf in leaves]
