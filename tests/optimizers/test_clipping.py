"""The global norm of gradients, and its limit."""

import math
from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.optimizers import InvalidOptimizer, clip_by_global_norm, global_norm


def gradients(dtype: Any = np.float64) -> list[Any]:
    """Random arrays of several shapes."""
    generator = np.random.default_rng(3)
    return [generator.normal(size=shape).astype(dtype) for shape in ((3, 4), (5,), ())]


def norm_of(given: list[Any]) -> float:
    return math.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in given))


@pytest.mark.parametrize(("limit", "scaled"), [(0.5, True), (1e3, False)])
def test_only_a_norm_beyond_the_limit_is_scaled_down(limit: float, scaled: bool) -> None:
    given = gradients()
    clipped, norm = run(pcp.trace(lambda g: clip_by_global_norm(g, limit), given), given)
    assert float(norm) == pytest.approx(norm_of(given), rel=1e-14)
    factor = limit / (norm_of(given) + 1e-6) if scaled else 1.0
    for found, gradient in zip(clipped, given, strict=True):
        np.testing.assert_allclose(found, gradient * factor, rtol=1e-14)
    if scaled:
        assert norm_of(clipped) == pytest.approx(limit, rel=1e-5)


def test_the_norm_of_narrow_gradients_is_taken_in_f32() -> None:
    # In f16 the square of 300 is infinite.
    given = [np.full((4,), 300, np.float16), np.full((2,), 7, np.float32)]
    clipped, norm = run(pcp.trace(lambda g: clip_by_global_norm(g, 1.0), given), given)
    assert norm.dtype == np.float32
    assert float(norm) == pytest.approx(norm_of(given), rel=1e-6)
    assert [g.dtype for g in clipped] == [np.float16, np.float32]
    np.testing.assert_allclose(clipped[0], 300 / norm_of(given), rtol=1e-3)


def test_the_norm_of_f64_is_f64() -> None:
    given = gradients()
    assert run(pcp.trace(global_norm, given), given).dtype == np.float64


@pytest.mark.parametrize("limit", [0.0, -1.0])
def test_a_limit_that_leaves_nothing(limit: float) -> None:
    message = f"clipping the norm of the gradient to {limit}: expected a limit above 0"
    with pytest.raises(InvalidOptimizer, match=message):
        pcp.trace(lambda g: clip_by_global_norm(g, limit), gradients())
