"""A run as text: a bar with the numbers, a table of its workers, or one plain line."""

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pcp.training.display.fleet import Row
from pcp.training.display.progress import format_duration, printable

_STATE_STYLES = {
    "training": "green",
    "done": "green",
    "waiting": "yellow",
    "compiling": "cyan",
    "joining": "cyan",
    "lost": "bold red",
}
_STALE_HEARTBEAT_SECONDS = 10.0
ROWS_SHOWN = 20
"""Workers in a table; how many more there are is said below it."""


def render(summary: Row, rows: Iterable[Row], hint: str = "") -> RenderableType:
    """Draw a run.

    Arguments:
        summary: of `Fleet.summary`.
        rows: of `Fleet.rows`, at most `ROWS_SHOWN` of them.
        hint: one line that stands below, such as how to join.
    """
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    step, total = summary["step"], summary["total_steps"]
    grid.add_row(
        Text(printable(summary["run"]), style="bold"),
        ProgressBar(total=max(1, total), completed=min(step, total)),
        Text(_steps(step, total)),
    )
    numbers = Text("  ").join(
        Text.assemble((f"{label} ", "dim"), value) for label, value in numbers_of(summary).items()
    )
    if not numbers:
        numbers = Text(printable(summary["preparing"], 120), style="dim")
    lines: list[RenderableType] = [grid, numbers]
    if shown := list(rows):
        lines.append(_worker_table(shown, "tokens" if summary["samples_per_second"] is None else "samples"))
    if (more := sum(summary["workers"].values()) - len(shown)) > 0:
        lines.append(Text(f"and {more:,} more workers", style="dim"))
    if summary["stalled"]:
        lines.append(Text(summary["stalled"], style="bold red"))
    lines += [Text(line, style="yellow") for line in refusals_of(summary)]
    if hint:
        lines.append(Text(hint, style="dim"))
    return Group(*lines)


def numbers_of(summary: Row) -> dict[str, str]:
    """Format what is known of a run: label -> number, those that are not known left out."""
    known = {
        "loss": (summary["loss"], "{:.4f}"),
        "validation loss": (summary["validation_loss"], "{:.4f}"),
        "tokens/s": (summary["tokens_per_second"], "{:,.0f}"),
        "samples/s": (summary["samples_per_second"], "{:,.1f}"),
        "MFU": (summary["mfu"], "{:.1%}"),
    }
    numbers = {label: text.format(value) for label, (value, text) in known.items() if value is not None}
    if summary["remaining_seconds"] is not None:
        numbers["ETA"] = format_duration(summary["remaining_seconds"])
    if summary["round"]:
        numbers = {"round": f"{summary['round']:,}"} | numbers
    if summary["workers"]:
        numbers["workers"] = ", ".join(f"{count:,} {state}" for state, count in summary["workers"].items())
    if summary["utilisation"] is not None:
        numbers["utilisation"] = f"{summary['utilisation']:.0%}"
    if summary["sent"] is not None:
        numbers |= {"sent": amount(summary["sent"]), "received": amount(summary["received"])}
    refused = sum(summary["refused_updates"].values()) + sum(summary["refused_connections"].values())
    return numbers | ({"refused": f"{refused:,}"} if refused else {})


def refusals_of(summary: Row) -> list[str]:
    """Why updates and connections were refused and how often, one line for each reason."""
    lines = []
    for what in ("updates", "connections"):
        for reason, count in summary[f"refused_{what}"].items():
            latest = summary["latest_refusals"].get(reason, "") if what == "connections" else ""
            tail = f"; the latest: {printable(latest, 90)}" if latest else ""
            lines.append(f"{count:,} {what} refused: {printable(reason, 70)}{tail}")
    return lines


def plain_line(summary: Row) -> str:
    """Write a run as one line of text, for output that is not a terminal."""
    numbers = [f"{label} {value}" for label, value in numbers_of(summary).items()]
    return "  ".join([f"step {_steps(summary['step'], summary['total_steps'])}", *numbers])


def amount(count: float) -> str:
    """Bytes as people say them: 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _steps(step: int, total: int) -> str:
    """A worker does not know how many there will be."""
    return f"{step:,}/{total:,}" if total else f"{step:,}"


def _worker_table(rows: list[Row], unit: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading in ("worker", "state", "lease"):
        table.add_column(heading, no_wrap=True)
    for heading in ("steps/s", "busy", unit, "refused", "heard"):
        table.add_column(heading, no_wrap=True, justify="right")
    for row in rows:
        table.add_row(
            Text(printable(row["worker"], 30)),
            Text(printable(row["state"], 12), style=_STATE_STYLES.get(row["state"], "")),
            Text(printable(row["lease"], 24) or "-"),
            _number(row["steps_per_second"], "{:.1f}"),
            _number(row["utilisation"], "{:.0%}"),
            _number(row["tokens"] or None, "{:,}"),
            Text(f"{row['refused']:,}", style="bold red" if row["refused"] else ""),
            _heartbeat_age(row["heard_seconds"]),
        )
    return table


def _number(value: Any, form: str) -> Text:
    return Text("-" if value is None else form.format(value))


def _heartbeat_age(age: float | None) -> Text:
    if age is None:
        return Text("never", style="dim")
    return Text(f"{age:.1f} s ago", style="bold red" if age > _STALE_HEARTBEAT_SECONDS else "")
