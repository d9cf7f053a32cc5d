"""Schedules of settings: their values beside NumPy's, what is told of them, and what is refused."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from tests.execution import exactly

import pcp
from pcp.optimizers import adamw
from pcp.training.recipes.config import InvalidTrainingConfig, TrainingConfig
from pcp.training.recipes.schedules import (
    Decaying,
    Piecewise,
    batch_at,
    described,
    learning_rate_of,
    weight_decay_of,
)

random = np.random.default_rng()
STEPS = np.arange(0, 130, dtype=np.int32)
POINTS = [[0, 0.0], [40, 1e-3], [50, 1e-3], [100, 1e-4]]


def values(schedule: Any) -> np.ndarray:
    """A schedule at all of STEPS."""
    program = pcp.vmap(pcp.trace(lambda step: schedule(step), pcp.spec((), "i32")), size=STEPS.size)
    return np.asarray(exactly(program, STEPS))


def rate(**settings: Any) -> Any:
    return learning_rate_of(TrainingConfig().replaced(steps=100, warmup_steps=10, **settings))


def interpolated(points: list[list[float]]) -> np.ndarray:
    return np.interp(STEPS, *np.transpose(points))


def test_values_are_those_of_numpy() -> None:
    peak, final = 2e-3, 3e-5
    named = {"learning_rate": peak, "final_learning_rate": final}
    for schedule, expected in (
        (rate(learning_rate=POINTS), interpolated(POINTS)),
        (rate(schedule="constant", **named), interpolated([[-1, 0], [10, peak]])),
        (rate(schedule="linear", **named), interpolated([[-1, 0], [10, peak], [100, final]])),
        (rate(schedule="wsd", **named), interpolated([[-1, 0], [10, peak], [90, peak], [100, final]])),
        (Piecewise(((0, 3.0),)), np.full(STEPS.shape, 3.0)),
    ):
        np.testing.assert_allclose(values(schedule), expected, rtol=1e-5, atol=1e-9)
    cosine = final + (peak - final) * (1 + np.cos(np.pi * np.clip((STEPS - 10) / 90, 0, 1))) / 2
    rise = (STEPS + 1) / 11 * peak
    np.testing.assert_allclose(values(rate(**named)), np.minimum(rise, cosine), rtol=1e-5)
    without = learning_rate_of(TrainingConfig().replaced(steps=4, warmup_steps=0, schedule="wsd"))
    np.testing.assert_allclose(values(without)[:5], [1e-3, 1e-3, 1e-3, 1e-3, 1e-4], rtol=1e-5)


def test_a_decay_that_changes_is_adamws_where_it_stands_still() -> None:
    parameters = {"w": random.normal(size=(3, 2)), "b": random.normal(size=2)}
    gradients = {name: random.normal(size=array.shape) for name, array in parameters.items()}
    points = ((0, 0.5), (10, 0.1))

    def updated(optimizer: Any, step: int) -> Any:
        state = optimizer.initial_state(parameters)
        program = pcp.trace(
            lambda p, g, s, t: optimizer.update(g, s, p, t)[0],
            parameters,
            gradients,
            state,
            pcp.spec((), "i32"),
        )
        return exactly(program, parameters, gradients, state, np.int32(step))

    for step in (0, 4, 12):
        decay = float(np.interp(step, *np.transpose(points)))
        found = updated(Decaying(adamw(1e-2, weight_decay=0.0), Piecewise(points)), step)
        expected = updated(adamw(1e-2, weight_decay=decay), step)
        for name in parameters:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-12)


def test_points_stand_beside_the_number_and_go_with_it() -> None:
    config = TrainingConfig().replaced(
        steps=100, learning_rate=POINTS, weight_decay=[[0, 1], [9, 0.5]], batch=[[0, 4], [10, 8]]
    )
    assert (config.learning_rate, config.weight_decay, config.batch) == (1e-3, 1.0, 4)
    assert [batch_at(config, step) for step in (0, 9, 10, 99)] == [4, 4, 8, 8]
    assert TrainingConfig.from_json(config.to_json()) == config
    assert isinstance(weight_decay_of(config), Piecewise)
    again = config.replaced(learning_rate=1e-2, batch=6)
    assert (again.learning_rates, again.batches, batch_at(again, 50)) == ((), (), 6)
    assert weight_decay_of(config.replaced(weight_decay=0.2)) == 0.2
    said = "learning rate 0 at step 0, 0.001 at step 40, 0.001 at step 50, 0.0001 at step 100; weight decay 1 at step 0, 0.5 at"
    assert described(config).startswith(said)
    assert described(config).endswith("; batch 4 at step 0, 8 at step 10")
    named = TrainingConfig().replaced(steps=100, schedule="wsd", warmup_steps=0)
    assert described(named) == (
        "learning rate 0.001, constant but for the last 10 steps, which fall to 0.0001; weight decay 0.1; batch 12"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": []}, r"learning_rate is \[\]; expected a number of at least 0, or points"),
        ({"learning_rate": [[1, 0.1]]}, r"the first at step 0: \[\[0, 0\.0\], \[100, 1e-3\]"),
        ({"learning_rate": [[0, 0.1], [0, 0.2]]}, "by rising steps"),
        ({"learning_rate": [[0, "x"]]}, "expected a number"),
        ({"learning_rate": [[0, -0.1]]}, "expected a number of at least 0"),
        ({"learning_rate": [0, 1]}, "expected a number"),
        ({"weight_decay": [[0, float("inf")]]}, "weight_decay is"),
        (
            {"weight_decay": [[0, 0.1]], "optimizer": "sgd"},
            "one number, but with the optimizers adamw and lion",
        ),
        ({"batch": [[0, 8.5]]}, r"batch is .* of at least 1, .*\[\[0, 8\], \[1000, 16\]\]"),
        ({"batch": [[0, 0]]}, "of at least 1"),
        ({"batch": [[0, 4], [5, 6]], "accumulate": 4}, "accumulate is 4; expected a divisor of batch"),
        ({"batch": [[0, 4], [5, 6]], "workers": 2}, "one number in a run with workers"),
        ({"schedule": "sine"}, "schedule is sine; expected cosine or linear or constant or wsd"),
        ({"log_every": 0}, "log_every is 0; expected at least 1"),
    ],
)
def test_what_is_no_schedule(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTrainingConfig, match=message):
        TrainingConfig().replaced(**settings)


def test_every_setting_has_a_meaning_or_is_one_of_those_that_no_command_takes() -> None:
    from pcp.training.recipes.config import MEANINGS

    names = {each.name for each in dataclasses.fields(TrainingConfig)}
    unnamed = {"beta1", "beta2", "wire", "learning_rates", "weight_decays", "batches"}
    assert names - MEANINGS.keys() == unnamed
