"""The programs of a distributed run. A Worker is told nothing else: no optimizer, no model, no algorithm.

A vector is the flat f32 vector of a fragment f; the state is that of the run's training step.

start(vectors, step)                  -> state            a worker that has no inner state yet
restart(state, vectors, step)         -> state            global parameters, own moments
step(state, batch)                    -> (state, metrics); step(held, state, batch) where the run has arrays that stay
flat.f(state)                         -> vector           the worker's own parameters
put.f(state, vector)                  -> state            the inverse
mix.f(state, vector)                  -> state            theta <- alpha theta + (1 - alpha) Theta; none if alpha is 0
gradient.f(state)                     -> vector           the mean of the gradients so far; only if they are pushed
push.f(vector, reference, residual)   -> (payload, e, residual)      of the worker's own parameters, or its gradient
clear(state)                          -> state            forget the gradients that were pushed; only if they are pushed
receive.f(vector, change)             -> vector           the next version; only with a download codec
gossip.f(theta, slow, momentum, their_theta, their_slow) -> (slow, momentum)      only where workers exchange in pairs

decode.f(payload)                     -> vector           on the Shepherd, as all that follow
outer.f(master, optimizer, mean, step, share) -> (master, optimizer)
change.f(master, shadow)                -> change         what brings the workers nearer; then receive.f
parameters(vectors)                     -> parameters     for evaluation and checkpoints
"""

import inspect
from typing import Any

import numpy as np

from pcp.distributed.algorithms import Algorithm
from pcp.distributed.compression import codec
from pcp.distributed.round_arithmetic.fragments import Partition, partition
from pcp.errors import PCPError
from pcp.ir import Program, Role
from pcp.ir.tree import map_tree
from pcp.ops.elementwise import maximum
from pcp.ops.movement import full
from pcp.optimizers import SGD, Optimizer, clip_by_global_norm
from pcp.optimizers.sparing import Sparing, sparing
from pcp.tensor import Tensor
from pcp.tracing import ArgumentSpec, spec, specs_of, trace
from pcp.training.recipes.recipe import Recipe
from pcp.training.step import TrainingStep, training_step


class BeginningNotUniform(PCPError):
    """An optimizer whose first state would have to travel."""


def inner_step(recipe: Recipe, algorithm: Algorithm) -> TrainingStep:
    """What a worker does with one batch: a step of training, or of summing gradients."""
    c, optimizer = recipe.config, algorithm.inner_optimizer(recipe.optimizer)
    if optimizer is recipe.optimizer:
        return recipe.step
    clip = None if algorithm.pushes_gradients else c.clip_norm or None  # the Shepherd clips gradients
    return training_step(
        recipe.loss,
        optimizer,
        clip_norm=clip,
        accumulate=c.accumulate,
        remat=c.remat,
        bound=True,
        seed=recipe.seed,
    )


def worker_programs(step: TrainingStep, parameters: Any, algorithm: Algorithm) -> dict[str, Program]:
    """The programs of a Worker, by name; see the module.

    Arguments:
        step: what `inner_step` made.
        parameters: nested arrays, for their shapes.
        algorithm: what is pushed, and how.

    Raises:
        BeginningNotUniform: the optimizer begins with an array of different numbers.
        TooManyFragments: the parameters are fewer arrays than the algorithm has fragments.
    """
    parts = partition(parameters, algorithm.fragments)
    initial = step.initial_state(parameters)
    state, moments = specs_of(initial, Role.state), initial["optimizer"]
    vectors = tuple(vector(parts, fragment) for fragment in range(parts.count))
    count = spec((), "i32")

    def beginning() -> Any:
        # A new optimizer's state is one repeated number for each array, so it need not travel.
        return map_tree(lambda leaf: full(leaf.shape, _repeated(leaf), leaf.dtype), moments)

    def start(vectors: Any, first_step: Tensor) -> Any:
        return {"params": parts.assembled(vectors), "optimizer": beginning(), "step": first_step}

    def restart(state: Any, vectors: Any, first_step: Tensor) -> Any:
        kept = beginning() if algorithm.pushes_gradients else state["optimizer"]
        return state | {"params": parts.assembled(vectors), "optimizer": kept, "step": first_step}

    def clear(state: Any) -> Any:
        return state | {"optimizer": beginning()}

    programs = {
        "start": trace(start, vectors, count),
        "restart": trace(restart, state, vectors, count),
        "step": Program(step.bytecode),
    }
    if algorithm.pushes_gradients:
        programs["clear"] = trace(clear, state)
    for fragment in range(parts.count):
        programs |= _fragment_programs(parts, fragment, algorithm, state)
    return programs


def compresses_download(algorithm: Algorithm) -> bool:
    """Whether workers are sent changes; else the parameters themselves, and the Shepherd's are what they hold."""
    return algorithm.download != "f32"


def vector(parts: Partition, fragment: int) -> ArgumentSpec:
    """The spec of a fragment's vector."""
    return spec((parts.size(fragment),), "f32")


def receive_program(parts: Partition, fragment: int, algorithm: Algorithm) -> Program:
    """The next version of a fragment, from the last one and the encoded change: the same program on both sides."""
    size = parts.size(fragment)
    download = codec(algorithm.download)

    def receive(shadow: Tensor, change: Any) -> Tensor:
        return shadow + download.decode(change, size)

    return trace(receive, vector(parts, fragment), download.payload_specs(size))


def _fragment_programs(
    parts: Partition, fragment: int, algorithm: Algorithm, state: Any
) -> dict[str, Program]:
    size, upload, alpha = parts.size(fragment), codec(algorithm.upload), algorithm.mixing
    own = vector(parts, fragment)
    read = map_tree(lambda entry: ArgumentSpec(entry.spec, Role.input), state)

    def flat(state: Any) -> Tensor:
        return parts.flat(fragment, state["params"])

    def put(state: Any, vector: Tensor) -> Any:
        return state | {"params": parts.placed(fragment, vector, state["params"])}

    def mix(state: Any, vector: Tensor) -> Any:
        return put(state, alpha * flat(state) + (1 - alpha) * vector)

    def gradient(state: Any) -> Tensor:
        return parts.flat(fragment, state["optimizer"]["sum"]) / maximum(state["optimizer"]["count"], 1)

    def push(own: Tensor, reference: Tensor, residual: Tensor) -> Any:
        moved = own if algorithm.pushes_gradients else algorithm.pushed(reference, own)
        error = algorithm.residual_decay * residual + moved
        payload = upload.encode(error)
        return payload, error, error - upload.decode(payload, size)

    programs = {
        f"flat.{fragment}": trace(flat, read),
        f"put.{fragment}": trace(put, state, own),
        f"push.{fragment}": trace(push, own, own, own),
    }
    if algorithm.pushes_gradients:
        programs[f"gradient.{fragment}"] = trace(gradient, read)
    if alpha:
        programs[f"mix.{fragment}"] = trace(mix, state, own)
    if compresses_download(algorithm):
        programs[f"receive.{fragment}"] = receive_program(parts, fragment, algorithm)
    for name, exchange in algorithm.exchanges().items():
        taken = len(inspect.signature(exchange).parameters)
        programs[f"{name}.{fragment}"] = trace(exchange, *[own] * taken)
    return programs


def _repeated(leaf: np.ndarray[Any, Any]) -> Any:
    """The one number that an array repeats."""
    value = leaf.flat[0] if leaf.size else leaf.dtype.type(0)
    if (leaf != value).any():
        raise BeginningNotUniform(
            f"the optimizer's state begins with an array of shape {leaf.shape} of different numbers; a Worker can only "
            "begin with arrays that repeat one number"
        )
    return value


def outer_programs(recipe: Recipe, algorithm: Algorithm) -> dict[str, Program]:
    """The programs of the Shepherd beside its merge, by name; see the module.

    Raises:
        TooManyFragments: the parameters are fewer arrays than the algorithm has fragments.

    Source: Douillard et al., "DiLoCo", 2023, algorithm 1; for each fragment as in "Streaming DiLoCo", 2025, algorithm 2.
    """
    parts, upload = partition(recipe.parameters, algorithm.fragments), codec(algorithm.upload)
    optimizer, clip = _outer_optimizer(recipe, algorithm), recipe.config.clip_norm
    vectors = tuple(vector(parts, fragment) for fragment in range(parts.count))
    programs = {"parameters": trace(parts.assembled, vectors)}

    def descend(
        master: Tensor,
        state: Any,
        mean: Tensor,
        step: Tensor,  # noqa: ARG001
        share: Tensor,
    ) -> tuple[Tensor, Any]:
        return algorithm.outer_step(master, state, mean, share)

    def train(
        master: Tensor,
        state: Any,
        mean: Tensor,
        step: Tensor,
        share: Tensor,  # noqa: ARG001
    ) -> tuple[Tensor, Any]:
        gradients = parts.assembled([mean])
        if clip:
            gradients, _ = clip_by_global_norm(gradients, clip)
        updated, new, _ = optimizer.update(gradients, state, parts.assembled([master]), step)
        return parts.flat(0, updated), new

    for fragment, own in enumerate(vectors):
        state = specs_of(outer_state(recipe, algorithm, parts, fragment), Role.input)
        size = parts.size(fragment)
        programs[f"decode.{fragment}"] = trace(
            lambda payload, n=size: upload.decode(payload, n), upload.payload_specs(size)
        )
        function = train if algorithm.pushes_gradients else descend
        programs[f"outer.{fragment}"] = trace(function, own, state, own, spec((), "i32"), spec((), "f32"))
        if compresses_download(algorithm):
            download = codec(algorithm.download)
            programs[f"change.{fragment}"] = trace(
                lambda master, shadow, to=download: to.encode(master - shadow), own, own
            )
            programs[f"receive.{fragment}"] = receive_program(parts, fragment, algorithm)
    return programs


def _outer_optimizer(recipe: Recipe, algorithm: Algorithm) -> Optimizer:
    """The algorithm's; where it updates with gradients, it leaves the parameters alone that a step alone leaves."""
    optimizer = algorithm.outer_optimizer(recipe.optimizer)
    alone = recipe.step.optimizer if algorithm.pushes_gradients else None
    return sparing(optimizer, alone.frozen) if isinstance(alone, Sparing) else optimizer


def outer_state(recipe: Recipe, algorithm: Algorithm, parts: Partition, fragment: int) -> Any:
    """The outer optimizer's first state for a fragment, nested arrays."""
    optimizer = _outer_optimizer(recipe, algorithm)
    if isinstance(optimizer, SGD):
        return optimizer.initial_state(np.zeros(parts.size(fragment), np.float32))
    return optimizer.initial_state(recipe.parameters)
