"""The programs of a distributed run. A Worker is told nothing else: no optimizer, no model, no code.

start(params, step)            -> state            a worker that has no inner state yet
adopt(state, params, step)     -> state            a new lease: global parameters, own moments
step(state, batch)             -> (state, metrics)
delta(params, state)           -> pseudo-gradient  where the lease began, minus where it ended
accumulate(sum, delta, weight) -> sum              on the Shepherd, in a fixed order
outer(params, state, sum, round) -> (params, state)
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir import Program, Role
from pcp.ir.tree import map_tree
from pcp.ops.elementwise import convert
from pcp.ops.movement import full
from pcp.optimizers import SGD
from pcp.tensor import Tensor
from pcp.tracing import spec, specs_of, trace
from pcp.training.step import TrainingStep


class BeginningNotUniform(PCPError):
    """An optimizer whose first state would have to travel."""


@dataclass(frozen=True)
class WorkerPrograms:
    """What a Worker runs; see the module."""

    start: Program
    adopt: Program
    step: Program
    delta: Program


@dataclass(frozen=True)
class ShepherdPrograms:
    """What the Shepherd runs; see the module."""

    accumulate: Program
    outer: Program


def worker_programs(step: TrainingStep, parameters: Any) -> WorkerPrograms:
    """The programs of a Worker, from a training step and parameters (arrays, for their shapes).

    Raises:
        BeginningNotUniform: the optimizer begins with an array of different numbers.
    """
    state = step.initial_state(parameters)
    params, inner = specs_of(parameters, Role.input), specs_of(state, Role.state)
    count, beginning = spec((), "i32"), state["optimizer"]

    def start(params: Any, first_step: Tensor) -> Any:
        # A new optimizer's state is one repeated number for each array, so it need not travel.
        moments = map_tree(lambda leaf: full(leaf.shape, _repeated(leaf), leaf.dtype), beginning)
        return {"params": params, "optimizer": moments, "step": first_step}

    def adopt(state: Any, params: Any, first_step: Tensor) -> Any:
        return state | {"params": params, "step": first_step}

    def delta(params: Any, state: Any) -> Any:
        return map_tree(lambda before, after: before - after, params, state["params"])

    return WorkerPrograms(
        trace(start, params, count),
        trace(adopt, inner, params, count),
        Program(step.bytecode),
        trace(delta, params, specs_of(state, Role.input)),
    )


def _repeated(leaf: np.ndarray[Any, Any]) -> Any:
    """The one number that an array repeats."""
    value = leaf.flat[0] if leaf.size else leaf.dtype.type(0)
    if (leaf != value).any():
        raise BeginningNotUniform(
            f"the optimizer's state begins with an array of shape {leaf.shape} of different numbers; a Worker can only "
            "begin with arrays that repeat one number"
        )
    return value


def shepherd_programs(parameters: Any, optimizer: SGD) -> ShepherdPrograms:
    """The programs of the Shepherd, from parameters (arrays, for their shapes) and the outer optimizer.

    The weights that `accumulate` is given add up to 1, so the sum is the mean.

    Source: Douillard et al., "DiLoCo", 2023, algorithm 1.
    """
    params = specs_of(parameters, Role.input)
    momentum = specs_of(optimizer.initial_state(parameters), Role.input)
    scalar = spec((), "f32")

    def accumulate(total: Any, delta: Any, weight: Tensor) -> Any:
        return map_tree(lambda a, b: a + convert(weight, b.dtype) * b, total, delta)

    def outer(params: Any, state: Any, mean: Any, round: Tensor) -> tuple[Any, Any]:
        updated, new, _ = optimizer.update(mean, state, params, round)
        return updated, new

    return ShepherdPrograms(
        trace(accumulate, specs_of(parameters, Role.state), params, scalar),
        trace(outer, params, momentum, params, spec((), "i32")),
    )
