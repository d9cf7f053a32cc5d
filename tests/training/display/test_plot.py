"""The loss plot: a readable PNG, whatever the run was like."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from pcp.training.display import plot
from pcp.training.display.plot import NothingToPlot, plot_losses, smooth

GENERATOR = np.random.default_rng(4)


def run_records(steps: int) -> list[dict[str, Any]]:
    records = []
    for step in range(1, steps + 1):
        loss = 1.6 + 2.6 * math.exp(-step / 100)
        record = {"step": step, "loss": loss * math.exp(0.05 * GENERATOR.normal())}
        if step % 50 == 0:
            record["validation_loss"] = loss + 0.1
        records.append(record)
    return records


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    made: list[Figure] = []

    def note(*arguments: Any, **options: Any) -> Figure:
        made.append(Figure(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(plot, "Figure", note)
    return made


def test_both_curves_with_labels_and_final_numbers(tmp_path: Path, figures: list[Figure]) -> None:
    records = run_records(400)
    records[-1]["validation_loss"] = 1.8765
    plot_losses(records, tmp_path / "plots" / "loss.png", "nano [text] $\\nosuch$")
    image = imread(tmp_path / "plots" / "loss.png")
    assert image.shape[:2] == (810, 1350)
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 50
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["loss.png"]
    axes = figures[0].axes[0]
    raw, averaged, validation = axes.get_lines()
    assert [line.get_label() for line in axes.get_lines()] == [
        "training, each step",
        "training, averaged",
        "validation",
    ]
    assert np.asarray(raw.get_ydata()).tolist() == [record["loss"] for record in records]
    assert np.asarray(validation.get_xdata()).tolist() == list(range(50, 401, 50))
    assert np.std(np.diff(np.asarray(averaged.get_ydata()))[200:]) < 0.2 * np.std(
        np.diff(np.asarray(raw.get_ydata()))[200:]
    )
    assert axes.get_yscale() == "log"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("training step", "cross-entropy loss (nats a token)")
    assert axes.get_title(loc="left") == "nano [text] $\\nosuch$"
    last = float(np.asarray(averaged.get_ydata())[-1])
    assert (
        axes.texts[0]
        .get_text()
        .startswith(f"step 400  ·  training {last:.3f} (averaged)  ·  validation 1.877  ·  best")
    )


def test_the_label_says_what_a_point_is_and_few_points_are_drawn(
    tmp_path: Path, figures: list[Figure]
) -> None:
    for apart, label in ((1, "training, each step"), (50, "training, a point: the mean of 50 steps")):
        records = [{"step": step, "loss": 3.0 - step / 1e4} for step in range(apart, 21 * apart, apart)]
        plot_losses(records, tmp_path / "loss.png", "nano")
        raw = figures[-1].axes[0].get_lines()[0]
        assert (raw.get_label(), raw.get_marker()) == (label, "o")
    plot_losses([{"step": step, "loss": 2.0} for step in range(1, 99)], tmp_path / "loss.png", "nano")
    assert figures[-1].axes[0].get_lines()[0].get_marker() == "None"


def test_a_loss_that_is_no_cross_entropy_may_be_negative(tmp_path: Path, figures: list[Figure]) -> None:
    records = [
        {"step": step, "loss": 1 - 0.1 * step, "validation_loss": 0.5 - 0.1 * step} for step in range(1, 30)
    ]
    plot_losses(records, tmp_path / "loss.png", "likelihood", "loss")
    axes = figures[0].axes[0]
    assert (axes.get_yscale(), axes.get_ylabel()) == ("linear", "loss")
    assert axes.get_ylim()[0] < -2.4
    plot_losses(run_records(20), tmp_path / "loss.png", "positive")
    assert (figures[1].axes[0].get_yscale(), figures[1].axes[0].get_ylabel()) == ("log", plot.CROSS_ENTROPY)


@pytest.mark.parametrize(
    "records",
    [
        [{"step": 7, "loss": 2.0}],
        [{"step": 7, "validation_loss": 4.1}],
        [{"step": 1, "loss": 2.0}, {"step": 2, "loss": math.nan}, {"step": 3, "loss": math.inf}],
        [{"step": step, "loss": 10.0 ** (3 - step)} for step in range(6)],
        [{"step": step, "loss": 2.5} for step in range(3)],
    ],
    ids=["one point", "validation only", "diverged", "six decades", "flat"],
)
def test_unusual_runs(records: list[dict[str, Any]], tmp_path: Path, figures: list[Figure]) -> None:
    plot_losses(records, tmp_path / "loss.png", "run")
    assert (tmp_path / "loss.png").stat().st_size > 5000
    low, high = figures[0].axes[0].get_ylim()
    shown = [tick for tick in figures[0].axes[0].get_yticks() if low <= tick <= high]
    assert 2 <= len(shown) <= 12


@pytest.mark.parametrize("records", [[], [{"step": 1}], [{"step": 1, "loss": math.nan}]])
def test_nothing_to_plot(records: list[dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(NothingToPlot, match="No record of demo has a step and a finite `loss`"):
        plot_losses(records, tmp_path / "loss.png", "demo")
    assert list(tmp_path.iterdir()) == []


def test_averaging_keeps_a_constant_and_follows_the_distance_of_steps() -> None:
    steps = np.array([0, 1, 5, 100, 101])
    np.testing.assert_allclose(smooth(steps, np.full(5, 2.5), 10), 2.5, rtol=1e-14)
    averaged = smooth(np.array([0, 100, 110]), np.array([4.0, 2.0, 1.0]), 10)
    assert averaged[1] == pytest.approx((2 + 4 * math.exp(-10)) / (1 + math.exp(-10)))
    weight = (1 + math.exp(-10)) * math.exp(-1) + 1
    assert averaged[2] == pytest.approx(((2 + 4 * math.exp(-10)) * math.exp(-1) + 1) / weight)
    assert smooth(steps[:0], np.empty(0), 10).size == 0
