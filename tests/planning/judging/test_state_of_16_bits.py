"""State of 16 bits is judged by its change, without the rounding that no way to store it avoids, and nothing hides by that."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.planning.judging.test_judge import COMPARISON, Case, named

import pcp
from pcp.planning.judging.judge import Judge
from pcp.planning.measuring.random_inputs import Recipe, random_arguments
from pcp.tensor import Tensor

TOLERANCE = 0.05
Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


@functools.cache
def loaded() -> Case:
    """A step of AdamW on bfloat16: updates of matrices are several steps of the type, those of a norm less than one."""

    def loss(p: Any, x: Tensor) -> Tensor:
        hidden = pcp.tanh(x @ p["up"]) * p["norm"]
        return ((pcp.nn.gelu(hidden) @ p["down"]) ** 2).mean()

    shapes = {"up": (32, 48), "norm": (48,), "down": (48, 32)}
    weights = {name: 0.03 * RNG.standard_normal(shape) for name, shape in shapes.items()}
    weights["norm"] = 1 + 0.0 * weights["norm"]
    params = {name: each.astype(np.float32) for name, each in weights.items()}
    specs = {name: pcp.spec(each.shape, "bf16") for name, each in params.items()}
    step = pcp.training_step(pcp.trace(loss, specs, pcp.spec((64, 32), "bf16")), pcp.optimizers.adamw(1e-3))
    arrays = random_arguments(step.arguments, Recipe(warm_calls=3), 0)
    for place, entry in enumerate(step.arguments):
        if entry.name.startswith("state.params."):
            arrays[place] = params[entry.name.removeprefix("state.params.")].astype(arrays[place].dtype)
    return Case(step, arrays, warm=3)


@functools.cache
def judge_of() -> Judge:
    return loaded().judge(TOLERANCE)


def spoiled(what: str, how: Callable[[Array, Array], Array]) -> float:
    """The error of one parameter or moment where something else is stored than the new one, given it and the old one."""
    case = loaded()
    [place] = [index for index, entry in enumerate(case.program.results) if entry.name == f"0.{what}"]
    [before] = [
        np.asarray(array, np.float64)
        for entry, array in zip(case.program.arguments, case.arrays, strict=True)
        if entry.alias == place
    ]
    wrong = list(case.plain)
    wrong[place] = how(np.asarray(case.exact[place], np.float64), before).astype(case.plain[place].dtype)
    return named(judge_of().errors(wrong))[f"0.{what}"].least_tolerance


def test_rounding_of_new_state_to_its_type_is_no_error() -> None:
    errors = judge_of().plain
    assert max(each.least_plain for each in errors) < TOLERANCE
    for what in ("params.up", "params.norm", "optimizer.first.down"):
        assert spoiled(what, lambda new, _: new) == 0.0


@pytest.mark.parametrize(
    "how",
    [
        lambda new, old: 0.0 * new + old,
        lambda new, old: old + 0.5 * (new - old),
        lambda new, old: old + 1.5 * (new - old),
        lambda new, old: old - (new - old),
        lambda new, old: new + 0.3 * np.abs(new - old) * RNG.standard_normal(new.shape),
        lambda new, old: np.where(np.arange(len(new))[:, None] == 7, old, new),
        lambda new, old: new * (1 + 2.0**-6) + 0.0 * old,
    ],
    ids=["dropped", "halved", "too much", "away", "noise", "a row dropped", "a bit of each"],
)
@pytest.mark.parametrize("what", ["params.up", "params.down", "optimizer.first.up"])
def test_updates_that_are_not_made_are_refused(what: str, how: Callable[[Array, Array], Array]) -> None:
    assert spoiled(what, how) > TOLERANCE


def test_what_is_left_out_is_rounding_and_nothing_else() -> None:
    """Where new state lies anywhere between two numbers of its type, an error of it shows in full, however coarse the type."""
    exact = 0.02 * RNG.standard_normal((400, 500))
    short = pcp.ir.DType.bf16.numpy
    for change in (1e-3, 1e-5):  # of some eight steps of the type, and of less than one
        before = exact - change * RNG.choice((-1, 1), exact.shape)
        scale = COMPARISON.scale(exact, 1.0, before)
        for part in (0.03, 0.3):
            found = (exact + part * change * RNG.standard_normal(exact.shape)).astype(short)
            assert COMPARISON.distance(found, exact, scale, True).error == pytest.approx(part, rel=0.1)
        assert COMPARISON.distance(exact.astype(short), exact, scale, True).error == 0.0
        assert COMPARISON.distance(exact.astype(short), exact, scale).error > 0.02


def test_what_is_judged_by_its_value_counts_all_rounding() -> None:
    seconds = [each for each in judge_of().plain if ".second." in each.name]
    assert len(seconds) == 3
    assert all(5e-4 < each.plain < 5e-3 for each in seconds)
