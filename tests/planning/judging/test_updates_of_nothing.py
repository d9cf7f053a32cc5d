"""Updates of a parameter without a gradient, as a bias of keys: what a kernel leaves out there, or adds, is found."""

from typing import Any

import numpy as np
import pytest
from tests.execution import exactly, run

import pcp
from pcp.backends import Target
from pcp.ir.tree import flatten
from pcp.optimizers import Optimizer, adamw, muon, nesterov
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.judge import Judge

RATE, DECAY, TOLERANCE = 1e-2, 0.1, 1e-2


def loss(w: Any, x: Any) -> Any:
    h = x @ w["w"] + w["bias"]
    return (pcp.softmax(h @ w["out"] + w["shift"]) ** 2).mean()  # what is added to all is lost in softmax


@pytest.mark.parametrize(
    ("optimizer", "decays"),
    [
        (adamw(RATE, weight_decay=DECAY), True),
        (nesterov(RATE), False),
        (muon(adamw(RATE, weight_decay=DECAY)), True),
    ],
    ids=["adamw", "nesterov", "muon"],
)
def test_what_is_dropped_or_added_where_there_is_no_gradient(optimizer: Optimizer, decays: bool) -> None:
    rng = np.random.default_rng()
    shapes = {"w": (8, 6), "bias": (6,), "out": (6, 5), "shift": (1, 1)}
    params = {name: (1 + 0.5 * rng.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}
    step = pcp.training_step(pcp.trace(loss, params, pcp.spec((16, 8), "f32")), optimizer)
    state: Any = step.initial_state(params)
    for _ in range(3):
        state, _metrics = run(step, state, (rng.normal(size=(16, 8)).astype(np.float32),))
    given = step.flatten_arguments(state, (rng.normal(size=(16, 8)).astype(np.float32),))
    nested = step.argument_tree.unflatten(given)
    right, plain = flatten(exactly(step, *nested))[0], flatten(run(step, *nested))[0]
    judge = Judge(step, given, right, plain, Comparison(Target.of("cpu:0"), compiled=False), TOLERANCE)
    params_of = {entry.alias: i for i, entry in enumerate(step.arguments) if "params." in entry.name}
    (place,) = [i for i in params_of if step.results[i].name.endswith("params.shift")]
    before = np.asarray(given[params_of[place]])
    changes = [np.ravel(np.asarray(right[i]) - np.asarray(given[at])) for i, at in params_of.items()]
    size = float(np.sqrt(np.mean(np.square(np.concatenate(changes)))))

    def worst(shift: Any) -> float:
        results = [shift if i == place else each for i, each in enumerate(plain)]
        return max(error.least_tolerance for error in judge.errors(results))

    assert worst(plain[place]) < TOLERANCE
    assert worst((plain[place] + 3 * TOLERANCE * size).astype(np.float32)) > TOLERANCE
    assert (worst(before) > TOLERANCE) is decays
