"""Speed against tolerance: what a program gains for how much error, from what was measured of it, and its picture."""

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path as FilePath
from statistics import median

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from pcp.errors import PCPError
from pcp.ir.program_file import write_atomically
from pcp.planning.measuring.measurement import Measurement

_PATHS = "#2a6fbb"
_DOMINATED = "#9fb8d6"
_PLAIN = "#d1495b"
_INK = "#2b2d42"
_GRID = "#e3e5ea"
_LEAST_ERROR = 1e-9
"""What an error of 0 is drawn as, on an axis that has no 0."""


class NothingMeasured(PCPError):
    """No measurement has both an error and times."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured of one path.

    Arguments:
        path: its digest.
        error: the largest that was measured.
        plain_error: the plain path's.
        speed: relative to the plain path's; 2 is twice as fast.
        seconds: of a call.
        count: of measurements.
    """

    path: str
    error: float
    plain_error: float
    speed: float
    seconds: float
    count: int


def points_of(measurements: Iterable[Measurement]) -> list[Point]:
    """One point for each path with times and a finite error, least error first.

    Arguments:
        measurements: of one program, on one kind of hardware.
    """
    by_path: dict[str, list[Measurement]] = defaultdict(list)
    for row in measurements:
        if (
            row.failure is None
            and math.isfinite(row.ratio)
            and row.error is not None
            and math.isfinite(row.error)
        ):
            by_path[row.path].append(row)
    points = [
        Point(
            path,
            max(row.error or 0.0 for row in rows),
            max(row.plain_error or 0.0 for row in rows),
            1 / median(row.ratio for row in rows),
            median(row.typical for row in rows),
            len(rows),
        )
        for path, rows in by_path.items()
    ]
    return sorted(points, key=lambda point: (point.error, -point.speed, point.path))


def frontier(points: Sequence[Point]) -> list[Point]:
    """The points worth their error: each is faster than every one with less error, and than the plain path."""
    best, kept = 1.0, []
    for point in points:
        if point.speed > best:
            best = point.speed
            kept.append(point)
    return kept


def draw_curve(points: Sequence[Point], file: str | os.PathLike[str], name: str, hardware: str) -> None:
    """Draw the speed that each tolerance allows, relative to the plain path.

    Arguments:
        points: of `points_of`.
        file: the PNG to make or replace, in one step.
        name: of the program, for the title.
        hardware: where it was measured, for the line below.

    Raises:
        NothingMeasured: there are no points.
        OSError: the file cannot be written.
    """
    if not points:
        raise NothingMeasured(
            f"no measurement of {name} on {hardware} has both an error and times, so there is no curve; "
            "measure it with `pcp explore`, or merge a profile that has"
        )
    figure = Figure(figsize=(9, 5.4), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    best = frontier(points)
    plain = max(_LEAST_ERROR, *(point.plain_error for point in points))
    errors = [max(_LEAST_ERROR, point.error) for point in points]
    left, right = min(plain, *errors) / 40, max(plain, *errors) * 10
    others = [point for point in points if point not in best]
    axes.plot(
        [max(_LEAST_ERROR, point.error) for point in others],
        [point.speed for point in others],
        linestyle="none", marker="o", markersize=5, color=_DOMINATED, label="measured path",
    )  # fmt: skip
    steps = [(plain, 1.0), *((max(plain, point.error), point.speed) for point in best)]
    axes.plot(
        [*(error for error, _ in steps), right],
        [*(speed for _, speed in steps), steps[-1][1]],
        drawstyle="steps-post", color=_PATHS, linewidth=2, label="fastest within the tolerance",
    )  # fmt: skip
    axes.plot(
        [max(_LEAST_ERROR, point.error) for point in best],
        [point.speed for point in best],
        linestyle="none", marker="o", markersize=7, color=_PATHS, markeredgecolor="white",
    )  # fmt: skip
    axes.plot(
        [plain], [1.0], marker="D", markersize=8, linestyle="none", color=_PLAIN, markeredgecolor="white",
        label=f"plain path, error {plain:.1e}",
    )  # fmt: skip
    _label(axes, best, (max(point.speed for point in points) - 1) / 16)
    _dress(axes, [1.0, *(point.speed for point in points)], left, right)
    axes.set_title(name, loc="left", color=_INK, fontsize=13, fontweight="bold", pad=24, parse_math=False)
    facts = f"{hardware}  ·  {len(points)} measured path{'s' * (len(points) != 1)}"
    axes.text(0, 1.025, facts, transform=axes.transAxes, color="#6b7080", fontsize=10, parse_math=False)
    _write(canvas, FilePath(file))


def _label(axes: Axes, best: Sequence[Point], room: float) -> None:
    """Write beside points of the frontier, above which to the left there is nothing; where they crowd, the faster counts."""
    above = math.inf
    for point in reversed(best):
        if above - point.speed >= room:
            axes.annotate(
                f"{point.speed:.2f}x at {point.error:.1e}",
                (max(_LEAST_ERROR, point.error), point.speed),
                xytext=(-7, 5), textcoords="offset points", ha="right", fontsize=9, color=_INK,
            )  # fmt: skip
            above = point.speed


def _dress(axes: Axes, speeds: Sequence[float], left: float, right: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    room = 0.12 * max(0.2, max(speeds) - min(speeds))
    axes.set_ylim(min(speeds) - room, max(speeds) + 1.5 * room)
    axes.set_xlabel("tolerance (error against float64)", color=_INK)
    axes.set_ylabel("speed relative to the plain path", color=_INK)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2f}x"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axhline(1.0, color=_PLAIN, linewidth=0.8, alpha=0.5)
    axes.grid(color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=_INK, length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#b9bdc9")
    axes.legend(frameon=False, labelcolor=_INK, loc="lower right")


def _write(canvas: FigureCanvasAgg, file: FilePath) -> None:
    image = BytesIO()
    canvas.figure.savefig(image, format="png")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, image.getvalue())
