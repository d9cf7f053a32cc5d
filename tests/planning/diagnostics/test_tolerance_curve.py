"""The curve of speed against tolerance is a staircase over the paths that are worth their error."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from pcp.planning.diagnostics.tolerance_curve import NothingMeasured, draw_curve, frontier, points_of
from pcp.planning.measuring.measurement import Failure, Measurement


def row(path: str, ratio: float, error: float | None, **more: Any) -> Measurement:
    return Measurement("a" * 64, path, "b" * 16, "", (ratio,) * 3, (1.0,) * 3, error, 1e-7, **more)


ROWS = [
    row("bf16", 0.5, 2e-3),
    row("bf16", 0.25, 3e-3),
    row("bf16", 0.5, 1e-3),
    row("x3", 0.8, 1e-5),
    row("x6", 1.25, 2e-7),
    row("worse", 0.9, 1e-4),
    row("failed", 0.1, 1e-7, failure=Failure.nondeterministic),
    row("infinite", 0.1, math.inf),
    row("unjudged", 0.1, None),
]


def test_points_and_frontier() -> None:
    points = points_of(ROWS)
    assert [(point.path, point.error, point.speed, point.count) for point in points] == [
        ("x6", 2e-7, 0.8, 1),
        ("x3", 1e-5, 1.25, 1),
        ("worse", 1e-4, pytest.approx(1 / 0.9), 1),
        ("bf16", 3e-3, 2.0, 3),
    ]
    assert [point.path for point in frontier(points)] == ["x3", "bf16"]
    assert frontier([]) == []


def test_the_picture(tmp_path: Path) -> None:
    draw_curve(points_of(ROWS), tmp_path / "new" / "curve.png", "GPT-2", "EPYC $x_1$, 2 cores")
    picture = imread(tmp_path / "new" / "curve.png")
    assert picture.shape == (810, 1350, 4)
    pixels = np.round(255 * picture[:, :, :3]).astype(np.int64)
    colours = set(np.unique(pixels @ [1 << 16, 1 << 8, 1]))
    assert {0x2A6FBB, 0x9FB8D6, 0xD1495B} <= colours  # the curve, other paths, the plain one


def test_a_path_that_is_exact_has_its_place_on_a_logarithmic_axis(tmp_path: Path) -> None:
    draw_curve(points_of([row("exact", 0.5, 0.0)]), tmp_path / "curve.png", "one", "here")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def test_nothing_to_draw(tmp_path: Path) -> None:
    with pytest.raises(
        NothingMeasured, match=r"no measurement of GPT-2 on EPYC has both .*; measure it with `pcp expl"
    ):
        draw_curve([], tmp_path / "curve.png", "GPT-2", "EPYC")
    assert not list(tmp_path.iterdir())
