"""Warm-up and cosine at every step beside their definition, and in the precision that is asked for."""

import math

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.optimizers import InvalidSchedule, WarmupCosine


def exact(step: int, peak: float, warmup: int, total: int, final: float) -> float:
    """The rate of a step, in Python's float64."""
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    progress = min((step - warmup) / (total - warmup), 1)
    return final + 0.5 * (peak - final) * (1 + math.cos(math.pi * progress))


@pytest.mark.parametrize("settings", [(1e-3, 10, 60, 1e-4), (0.3, 0, 5, 0.0), (0.1, 59, 60, 0.1)])
@pytest.mark.parametrize(("dtype", "near"), [("f64", 1e-14), ("f32", 1e-6), ("i32", 1e-6)])
def test_every_step(settings: tuple[float, int, int, float], dtype: str, near: float) -> None:
    peak, warmup, total, final = settings
    program = pcp.trace(WarmupCosine(peak, warmup, total, final), pcp.spec((), dtype))
    found = [run(program, step) for step in range(total + 5)]
    assert {rate.dtype for rate in found} == {np.dtype(np.float64 if dtype == "f64" else np.float32)}
    expected = [exact(step, *settings) for step in range(total + 5)]
    np.testing.assert_allclose(np.array(found, np.float64), expected, rtol=near, atol=near * peak)
    assert float(found[-1]) == pytest.approx(final, rel=1e-6, abs=1e-6 * peak)


@pytest.mark.parametrize(
    "settings",
    [
        (1e-3, 10, 10, 0.0),
        (1e-3, -1, 10, 0.0),
        (-1e-3, 1, 10, 0.0),
        (1e-3, 1, 10, -1.0),
        (math.nan, 1, 10, 0.0),
    ],
)
def test_schedules_that_make_no_sense(settings: tuple[float, int, int, float]) -> None:
    message = (
        r"WarmupCosine\(peak=.*: expected 0 <= warmup_steps < total_steps and rates that are finite and not"
    )
    with pytest.raises(InvalidSchedule, match=message):
        WarmupCosine(*settings)
