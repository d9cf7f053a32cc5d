"""The state of a run as it is shown: a value, advanced by records of metrics, drawn by a pure function."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pcp.training.display.metrics import Record

_STATE_STYLES = {
    "training": "green",
    "waiting": "yellow",
    "compiling": "cyan",
    "joining": "cyan",
    "lost": "bold red",
}
_STALE_HEARTBEAT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """What is known of one worker.

    Arguments:
        name: the name it gave.
        state: one word: joining, compiling, waiting, training, lost.
        lease: the batches it works on, for example "240-259"; empty where it has none.
        steps_per_second: its speed; None where it is not known.
        heard_at: when it was last heard, on the display's clock.
    """

    name: str
    state: str = "joining"
    lease: str = ""
    steps_per_second: float | None = None
    heard_at: float | None = None


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What is known of a run.

    Arguments:
        total_steps: steps that the run is to do.
        step: steps done.
        loss: the latest training loss.
        validation_loss: the latest validation loss.
        tokens_per_second: the latest speed.
        anchor: the first step that was reported and when, from which the speed and the remaining time follow.
        workers: name -> worker; empty for a run in one process.
    """

    name: str
    total_steps: int
    step: int = 0
    loss: float | None = None
    validation_loss: float | None = None
    tokens_per_second: float | None = None
    anchor: tuple[int, float] | None = None
    preparing: str = "preparing the first steps"
    workers: Mapping[str, WorkerProgress] = field(default_factory=lambda: MappingProxyType({}))


def advance(progress: RunProgress, record: Record, now: float) -> RunProgress:
    """Take one record into the state.

    Arguments:
        record: with `step`: any of `loss`, `validation_loss`, `tokens_per_second`. With `event` "worker":
            `worker` (its name), and any of `state`, `lease`, `steps_per_second`; receiving it counts as
            hearing the worker, except when its state is "lost". With `event` "planning" or "planned": `message`. Other records
            change nothing.
        now: the time on the display's clock, in seconds.
    """
    if record.get("event") == "worker":
        return _advance_worker(progress, record, now)
    if record.get("event") in ("planning", "planned"):
        return replace(progress, preparing=f"{record['event']}: {record['message']}")
    if "step" not in record:
        return progress
    step = int(record["step"])
    if "validation_loss" in record and "loss" not in record and step < progress.step:
        # An evaluation that ended later than the steps after it: no step back.
        return replace(progress, validation_loss=record["validation_loss"])
    anchor = progress.anchor
    # A run that falls back to a checkpoint measures its speed anew.
    if anchor is None or step < anchor[0]:
        anchor = (step, now)
    return replace(
        progress,
        step=step,
        anchor=anchor,
        loss=record.get("loss", progress.loss),
        validation_loss=record.get("validation_loss", progress.validation_loss),
        tokens_per_second=record.get("tokens_per_second", progress.tokens_per_second),
    )


def remaining_seconds(progress: RunProgress, now: float) -> float | None:
    """Estimate the time to the last step from the speed so far; None before there is one, and at the end."""
    if progress.anchor is None or progress.step >= progress.total_steps:
        return None
    first, since = progress.anchor
    if progress.step <= first or now <= since:
        return None
    return (progress.total_steps - progress.step) * (now - since) / (progress.step - first)


def render(progress: RunProgress, now: float) -> RenderableType:
    """Draw a run: a bar with the numbers, and a table of the workers where there are any.

    Arguments:
        now: the time on the display's clock, in seconds.
    """
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_row(
        Text(printable(progress.name), style="bold"),
        ProgressBar(total=max(1, progress.total_steps), completed=min(progress.step, progress.total_steps)),
        Text(f"{progress.step:,}/{progress.total_steps:,}"),
    )
    numbers = Text("  ").join(
        Text.assemble((f"{label} ", "dim"), value) for label, value in numbers_of(progress, now).items()
    )
    if not numbers:
        numbers = Text(printable(progress.preparing, 120), style="dim")
    if not progress.workers:
        return Group(grid, numbers)
    return Group(grid, numbers, _worker_table(progress, now))


def numbers_of(progress: RunProgress, now: float) -> dict[str, str]:
    """Format what is known of a run: label -> number, those that are not known left out."""
    found = {
        "loss": (progress.loss, "{:.4f}"),
        "validation loss": (progress.validation_loss, "{:.4f}"),
        "tokens/s": (progress.tokens_per_second, "{:,.0f}"),
    }
    numbers = {label: text.format(value) for label, (value, text) in found.items() if value is not None}
    remaining = remaining_seconds(progress, now)
    if remaining is not None:
        numbers["ETA"] = format_duration(remaining)
    return numbers


def plain_line(progress: RunProgress, now: float) -> str:
    """Write a run as one line of text, for output that is not a terminal."""
    numbers = [f"{label} {value}" for label, value in numbers_of(progress, now).items()]
    return "  ".join([f"step {progress.step:,}/{progress.total_steps:,}", *numbers])


def format_duration(seconds: float) -> str:
    """Write a time as m:ss, or h:mm:ss from one hour on."""
    whole = math.ceil(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def printable(text: str, limit: int = 40) -> str:
    """Make a text safe for a terminal: names come over the network and could hold escape sequences."""
    shown = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _advance_worker(progress: RunProgress, record: Record, now: float) -> RunProgress:
    name = str(record["worker"])
    changes: dict[str, Any] = {
        key: record[key] for key in ("state", "lease", "steps_per_second") if key in record
    }
    if record.get("state") == "lost":
        changes |= {"lease": "", "steps_per_second": None}
    else:
        changes["heard_at"] = now
    worker = replace(progress.workers.get(name, WorkerProgress(name)), **changes)
    return replace(progress, workers=MappingProxyType({**progress.workers, name: worker}))


def _worker_table(progress: RunProgress, now: float) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for heading in ("worker", "state", "lease"):
        table.add_column(heading, no_wrap=True)
    for heading in ("steps/s", "heard"):
        table.add_column(heading, no_wrap=True, justify="right")
    for worker in sorted(progress.workers.values(), key=lambda worker: worker.name):
        speed = "-" if worker.steps_per_second is None else f"{worker.steps_per_second:.1f}"
        table.add_row(
            Text(printable(worker.name, 30)),
            Text(printable(worker.state, 12), style=_STATE_STYLES.get(worker.state, "")),
            Text(printable(worker.lease, 24) or "-"),
            Text(speed),
            _heartbeat_age(worker, now),
        )
    return table


def _heartbeat_age(worker: WorkerProgress, now: float) -> Text:
    if worker.heard_at is None:
        return Text("never", style="dim")
    age = max(0.0, now - worker.heard_at)
    return Text(f"{age:.1f} s ago", style="bold red" if age > _STALE_HEARTBEAT_SECONDS else "")
