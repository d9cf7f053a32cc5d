"""What the leases of a run lead to, computed without a Shepherd or Workers."""

from typing import Any

import numpy as np

from pcp.distributed.algorithm_choice import algorithm_of
from pcp.ir.tree import map_tree
from pcp.planning import plan
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder
from tests.distributed.processes.command import Record


def leases_of(records: list[Record]) -> list[dict[str, tuple[int, int]]]:
    """The batches that each worker trained on, from first to last, of every round."""
    rounds: list[dict[str, tuple[int, int]]] = [{}]
    for record in records:
        if record.get("lease"):
            first, last = record["lease"].split("-")
            rounds[-1][record["worker"]] = (int(first), int(last))
        elif "round" in record:
            rounds.append({})
    return rounds[:-1]


def replay(
    folder: RunFolder,
    leases: list[dict[str, tuple[int, int]]],
    order: list[str],
    losses: list[float] | None = None,
) -> Any:
    """The parameters that the same leases of DiLoCo lead to: the training step in this process, the outer step in NumPy.

    Arguments:
        losses: receives the mean loss of every round.
    """
    recipe = prepare(folder)
    algorithm, step = algorithm_of(recipe.config), plan(recipe.step).run
    rate, momentum = np.float32(algorithm.outer_learning_rate), np.float32(algorithm.outer_momentum)
    params, states = recipe.parameters, {}
    velocity = map_tree(np.zeros_like, params)
    for number, held in enumerate(leases):
        begun = {"params": params, "step": np.int32(number * algorithm.inner_steps)}
        deltas, seen = [], []
        for worker in order:
            begin, end = held[worker]
            state = states.get(worker, recipe.step.initial_state(params)) | begun
            for index in range(begin, end + 1):
                state, metrics = step(state, recipe.batches.batch(index))
                seen.append(float(metrics["loss"]))
            states[worker] = map_tree(np.asarray, state)
            deltas.append(map_tree(lambda a, b: a - b, params, states[worker]["params"]))
        mean = map_tree(lambda *each: sum(np.float32(1 / len(each)) * one for one in each), *deltas)
        if losses is not None:
            losses.append(sum(seen) / len(seen))
        velocity = map_tree(lambda v, d: momentum * v + d, velocity, mean)
        params = map_tree(lambda p, d, v: p - rate * (d + momentum * v), params, mean, velocity)
    return params
