"""Optimizers of optax: a gradient transformation, whose update is imported into the training step."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from pcp.importers.jax import from_jax
from pcp.ir.tree import flatten, map_tree
from pcp.ir.trees.nodes import is_array
from pcp.optimizers import InvalidOptimizer
from pcp.optimizers.base import Parameters, State
from pcp.tensor import Tensor
from pcp.tracing import call, spec

# jax does not annotate this constructor.
_struct: Any = jax.ShapeDtypeStruct


@dataclass(frozen=True, slots=True)
class Optax:
    """A gradient transformation of optax as an optimizer.

    Arguments:
        transformation: what `optax.chain`, `optax.adam` and their like return: with an `init` of parameters and an `update` of
            updates, state and parameters.

    State:
        that of the transformation, in its types.

    Raises:
        InvalidOptimizer: it has no such functions.
    """

    transformation: Any

    def __post_init__(self) -> None:
        if not all(callable(getattr(self.transformation, name, None)) for name in ("init", "update")):
            raise InvalidOptimizer(
                f"from_optax was given {self.transformation!r:.60}; expected a transformation of optax, as optax.adam(1e-3), "
                "with init and update"
            )

    def initial_state(self, parameters: Parameters) -> State:
        """What the transformation begins with."""
        return map_tree(np.asarray, self.transformation.init(_for_jax(parameters)))

    def update(
        self,
        gradients: Parameters,
        state: State,
        parameters: Parameters,
        step: Tensor,  # noqa: ARG002 - as of every optimizer
    ) -> tuple[Parameters, State, dict[str, Tensor]]:
        """One step; see `Optimizer`.

        Raises:
            InvalidOptimizer: the transformation needs more than updates, state and parameters.
        """

        def moved(gradients: Any, state: Any, parameters: Any) -> Any:
            try:
                updates, new = self.transformation.update(gradients, state, parameters)
            except TypeError as error:
                if "required" not in str(error):
                    raise
                raise InvalidOptimizer(
                    f"the transformation of optax was given updates, state and parameters, and needs more ({error}); expected "
                    "one that is made of these alone"
                ) from error
            return jax.tree.map(lambda p, u: (p + u).astype(p.dtype), parameters, updates), new

        given = _for_jax(gradients), _for_jax(parameters)
        described = map_tree(lambda leaf: spec(leaf.shape, leaf.dtype), given)
        shapes = map_tree(lambda leaf: _struct(leaf.shape, leaf.dtype.numpy), given[1])
        program = from_jax(
            moved, described[0], jax.eval_shape(self.transformation.init, shapes), described[1]
        )
        updated, new = call(program, given[0], state, given[1])
        return flatten(parameters)[1].unflatten(flatten(updated)[0]), new, {}


def _for_jax(parameters: Parameters) -> Any:
    """Parameters as JAX sees their arrays: dictionaries instead of objects that are registered with PCP alone."""
    if all(map(is_array, jax.tree.leaves(parameters))):
        return parameters
    leaves, tree = flatten(parameters)
    return tree.plain().unflatten(leaves)
