"""The loss plot of a run, as a PNG."""

import math
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from pcp.errors import PCPError
from pcp.ir.program_file import write_atomically
from pcp.training.display.metrics import Record, curve

_TRAINING = "#2a6fbb"
_VALIDATION = "#d1495b"
_INK = "#2b2d42"
_GRID = "#e3e5ea"
_FEW = 60
"""Points of a curve that are drawn each; of more only the line."""

CROSS_ENTROPY = "cross-entropy loss (nats a token)"

Curve = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


class NothingToPlot(PCPError):
    """The records hold no loss."""


def plot_losses(records: Iterable[Record], path: Path, name: str, axis: str = CROSS_ENTROPY) -> None:
    """Draw the training and validation loss of a run.

    The training loss is drawn as measured, in a light tone, under its exponential average, whose time
    constant is a fortieth of the run. The axis of the loss is logarithmic, unless a loss is not above 0.

    Arguments:
        records: records with `step` and `loss` or `validation_loss`, in the order they were written.
        path: the PNG to make or replace, in one step.
        name: the run's name, for the title.
        axis: what the loss is.

    Raises:
        NothingToPlot: no record has a finite loss.
    """
    rows = list(records)
    training, validation = _finite_curve(rows, "loss"), _finite_curve(rows, "validation_loss")
    if not training[0].size and not validation[0].size:
        raise NothingToPlot(
            f"No record of {name} has a step and a finite `loss` or `validation_loss`; nothing to plot."
        )
    figure = Figure(figsize=(9, 5.4), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    smoothed = _draw_training(axes, training)
    _draw_validation(axes, validation)
    _dress(axes, axis, training, smoothed, validation)
    _title(axes, name, training, smoothed, validation, _speed(rows))
    _write(canvas, path)


def smooth(
    steps: npt.NDArray[np.int64], values: npt.NDArray[np.float64], span: float
) -> npt.NDArray[np.float64]:
    """Average a curve exponentially, without bias towards zero at its start, for steps at any distance.

    Where the curve begins, and usually falls fast, the span is shorter: a tenth of the steps so far.

    Arguments:
        steps: i64[n], increasing.
        values: f64[n].
        span: number of steps after which a value's weight has fallen to 1/e.

    Returns:
        f64[n], the weighted mean of the values up to each step.

    Source: Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015, section 3 (bias correction).
    """
    total, weight = 0.0, 0.0
    result = np.empty_like(values)
    previous = steps[0] if steps.size else 0
    for place, (step, value) in enumerate(zip(steps, values, strict=True)):
        local_span = min(span, max(1.0, 0.1 * (step - steps[0])))
        decay = math.exp(-(step - previous) / local_span)
        total, weight, previous = total * decay + value, weight * decay + 1.0, step
        result[place] = total / weight
    return result


def _finite_curve(rows: Sequence[Record], key: str) -> Curve:
    steps, values = curve(rows, key)
    numbers = np.asarray(values, np.float64)
    usable = np.isfinite(numbers)
    return np.asarray(steps, np.int64)[usable], numbers[usable]


def _draw_training(axes: Axes, training: Curve) -> npt.NDArray[np.float64]:
    steps, values = training
    if not steps.size:
        return values
    smoothed = smooth(steps, values, max(1.0, (steps[-1] - steps[0]) / 40))
    axes.plot(steps, values, color=_TRAINING, linewidth=0.8, label=_label(steps), **_marked(steps))
    axes.plot(steps, smoothed, color=_TRAINING, linewidth=1.9, label="training, averaged")
    return smoothed


def _label(steps: npt.NDArray[np.int64]) -> str:
    """What a point of the training loss is."""
    apart = int(np.median(np.diff(steps))) if steps.size > 1 else 1
    return "training, each step" if apart <= 1 else f"training, a point: the mean of {apart:,} steps"


def _marked(steps: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Points are drawn where they are few."""
    return {"marker": "o", "markersize": 3.0, "alpha": 0.45} if steps.size <= _FEW else {"alpha": 0.22}


def _draw_validation(axes: Axes, validation: Curve) -> None:
    if validation[0].size:
        axes.plot(
            *validation,
            color=_VALIDATION,
            linewidth=1.6,
            marker="o",
            markersize=4.5,
            markeredgecolor="white",
            markeredgewidth=0.8,
            label="validation",
        )


def _dress(
    axes: Axes, axis: str, training: Curve, smoothed: npt.NDArray[np.float64], validation: Curve
) -> None:
    # Single noisy steps may leave the frame; the averaged and the validation curve may not.
    shown = np.concatenate(
        [smoothed, validation[1], np.percentile(training[1], [1, 99]) if training[1].size else []]
    )
    if min(part.min() for part in (training[1], validation[1]) if part.size) > 0:
        axes.set_yscale("log")
        margin = (shown.max() / shown.min()) ** 0.06 * 1.01
        axes.set_ylim(shown.min() / margin, shown.max() * margin)
        _set_loss_ticks(axes, shown.min() / margin, shown.max() * margin)
    else:
        margin = 0.06 * (shown.max() - shown.min()) or 1.0
        axes.set_ylim(shown.min() - margin, shown.max() + margin)
    every = np.concatenate([training[0], validation[0]])
    pad = max(1.0, 0.015 * float(every.max() - every.min()))
    axes.set_xlim(every.min() - pad, every.max() + pad)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("training step", color=_INK)
    axes.set_ylabel(axis, color=_INK)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#b9bdc9")
    axes.legend(frameon=False, labelcolor=_INK, loc="upper right")


def _set_loss_ticks(axes: Axes, low: float, high: float) -> None:
    # The usual ticks of a logarithmic axis are powers of ten, of which a loss curve spans at most one or two.
    ratios = (1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [
        ratio * 10.0**power for power in exponents for ratio in ratios if low <= ratio * 10.0**power <= high
    ]
    if len(ticks) < 3:
        ticks = [float(tick) for tick in MaxNLocator(nbins=6).tick_values(low, high) if low <= tick <= high]
    every = math.ceil(len(ticks) / 10)
    axes.set_yticks(ticks[::every])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)


def _title(
    axes: Axes,
    name: str,
    training: Curve,
    smoothed: npt.NDArray[np.float64],
    validation: Curve,
    speed: Sequence[str],
) -> None:
    last_step = int(max(part[0][-1] for part in (training, validation) if part[0].size))
    facts = [f"step {last_step:,}"]
    if smoothed.size:
        facts.append(f"training {smoothed[-1]:.3f} (averaged)")
    if validation[0].size:
        best = int(validation[1].argmin())
        facts.append(f"validation {validation[1][-1]:.3f}")
        if best != validation[1].size - 1:
            facts.append(f"best {validation[1][best]:.3f} at step {validation[0][best]:,}")
    facts += speed
    axes.set_title(name, loc="left", color=_INK, fontsize=13, fontweight="bold", pad=24, parse_math=False)
    axes.text(0, 1.025, "  ·  ".join(facts), transform=axes.transAxes, color="#6b7080", fontsize=10)


def _speed(rows: Sequence[Record]) -> list[str]:
    """Median tokens or samples a second and model FLOP utilisation, as far as records have them."""
    return [
        form.format(np.median(values))
        for key, form in (
            ("tokens_per_second", "{:,.0f} tokens/s"),
            ("samples_per_second", "{:,.1f} samples/s"),
            ("mfu", "MFU {:.1%}"),
        )
        if (values := _finite_curve(rows, key)[1]).size
    ]


def _write(canvas: FigureCanvasAgg, path: Path) -> None:
    image = BytesIO()
    canvas.figure.savefig(image, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, image.getvalue())
