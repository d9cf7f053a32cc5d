"""What the leases of a run lead to, computed without a Shepherd or Workers."""

from typing import Any

import numpy as np

from pcp.distributed.programs import worker_programs
from pcp.ir.tree import map_tree
from pcp.planning import plan
from pcp.training.prepare import prepare
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


def replay(folder: RunFolder, leases: list[dict[str, tuple[int, int]]], order: list[str]) -> Any:
    """The parameters that the same leases lead to: the training step in this process, the outer step in NumPy."""
    recipe = prepare(folder)
    config = recipe.config
    programs = worker_programs(recipe.step, recipe.parameters)
    start, adopt, step = (plan(getattr(programs, name)).run for name in ("start", "adopt", "step"))
    rate, momentum = np.float32(config.outer_learning_rate), np.float32(config.outer_momentum)
    params, states = recipe.parameters, {}
    velocity = map_tree(np.zeros_like, params)
    for number, held in enumerate(leases):
        first = np.int32(number * config.inner_steps)
        deltas = []
        for worker in order:
            begin, end = held[worker]
            state = adopt(states[worker], params, first) if worker in states else start(params, first)
            for index in range(begin, end + 1):
                state, _ = step(state, recipe.batches.batch(index))
            states[worker] = state
            deltas.append(map_tree(lambda a, b: a - np.asarray(b), params, state["params"]))
        mean = map_tree(lambda *each: sum(np.float32(1 / len(each)) * one for one in each), *deltas)
        velocity = map_tree(lambda v, d: momentum * v + d, velocity, mean)
        params = map_tree(lambda p, d, v: p - rate * (d + momentum * v), params, mean, velocity)
    return params
