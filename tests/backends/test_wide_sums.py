"""Sums over rows of many columns, on XLA, which leaves them to a slow library as they are written."""

from collections.abc import Callable

import numpy as np
import pytest

import pcp
from pcp import Tensor
from pcp.backends.wide_sums import WIDE, with_wide_sums_as_products

WIDTH = WIDE + 37


@pytest.mark.parametrize(
    ("shape", "axes"), [((19, WIDTH), 0), ((3, 5, WIDTH), (0, 1)), ((3, 2, 7, 1 + WIDE // 7), (0, 1))]
)
def test_wide_sums_are_right_as_products(shape: tuple[int, ...], axes: int | tuple[int, ...]) -> None:
    rng = np.random.default_rng()
    x = rng.normal(size=shape).astype(np.float32)
    x.reshape(x.shape[0], -1)[1, 3:5] = np.inf, np.nan
    program = pcp.trace(lambda x: pcp.exp(x * 0.5).sum(axes), pcp.spec(shape, "f32"))
    written = with_wide_sums_as_products(program)
    assert b"dot_general" in written.bytecode
    assert b"dot_general" not in program.bytecode
    right = np.exp(x.astype(np.float64) * 0.5).sum(axes)
    for each in (program, written):
        np.testing.assert_allclose(np.asarray(pcp.plan(each, "cpu:0").run(x)), right, rtol=3e-6)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: x[:, :-40].sum(0),
        lambda x: x.sum(1),
        lambda x: x.max(0),
        lambda x: x.reshape((1, -1)).sum(0),
        lambda x: x.reshape((2, WIDTH, 2)).sum((0, 2)),
    ],
    ids=["narrow", "along rows", "largest", "one row", "an axis behind"],
)
def test_others_stay_as_they_are(build: Callable[[Tensor], Tensor]) -> None:
    program = pcp.trace(build, pcp.spec((4, WIDTH), "f32"))
    assert with_wide_sums_as_products(program) is program
