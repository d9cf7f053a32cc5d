"""How far a run is: a value, advanced by records of metrics."""

import math
from dataclasses import dataclass, replace

from pcp.training.display.metrics import Record


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What is known of a run.

    Arguments:
        total_steps: steps that the run is to do.
        step: steps done.
        loss: the latest training loss.
        validation_loss: the latest validation loss.
        tokens_per_second, samples_per_second: the latest speed, in what the run counts.
        mfu: the latest model FLOP utilisation.
        anchor: the first step that was reported and when, from which the speed and the remaining time follow.
    """

    name: str
    total_steps: int
    step: int = 0
    loss: float | None = None
    validation_loss: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    mfu: float | None = None
    anchor: tuple[int, float] | None = None
    preparing: str = "preparing the first steps"


def advance(progress: RunProgress, record: Record, now: float) -> RunProgress:
    """Take one record into the state.

    Arguments:
        record: with `step`: any of `loss`, `validation_loss`, `tokens_per_second`, `mfu`. With `event` "planning" or "planned":
            `message`. Other records change nothing.
        now: the time on the display's clock, in seconds.
    """
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
        samples_per_second=record.get("samples_per_second", progress.samples_per_second),
        mfu=record.get("mfu", progress.mfu),
    )


def remaining_seconds(progress: RunProgress, now: float) -> float | None:
    """Estimate the time to the last step from the speed so far; None before there is one, and at the end."""
    if progress.anchor is None or progress.step >= progress.total_steps:
        return None
    first, since = progress.anchor
    if progress.step <= first or now <= since:
        return None
    return (progress.total_steps - progress.step) * (now - since) / (progress.step - first)


def format_duration(seconds: float) -> str:
    """Write a time as m:ss, or h:mm:ss from one hour on."""
    whole = math.ceil(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def printable(text: str, limit: int = 40) -> str:
    """Make a text safe for a terminal: names come over the network and could hold escape sequences."""
    shown = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
