"""Sinks of metrics for TensorBoard and for Weights & Biases, both optional extras."""

import dataclasses
import numbers
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pcp.training.display.metrics import MetricSink, Record
from pcp.training.extras import import_extra
from pcp.training.run_folder import RunFolder

TENSORBOARD_PURPOSE = "Writing metrics for TensorBoard"
WANDB_PURPOSE = "Writing metrics for Weights & Biases"


class TensorBoardSink(MetricSink):
    """Writes every number of a record that has a step as a scalar of TensorBoard.

    Arguments:
        folder: where the event files go; `tensorboard --logdir FOLDER` shows them.
        clock: gives the time of a record, in seconds since 1970.

    Raises:
        MissingExtra: the package is not installed.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        purpose = TENSORBOARD_PURPOSE
        writer = import_extra("tensorboard.summary.writer.event_file_writer", "tensorboard", purpose)
        self._events = import_extra("tensorboard.compat.proto.event_pb2", "tensorboard", purpose)
        self._summaries = import_extra("tensorboard.compat.proto.summary_pb2", "tensorboard", purpose)
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = writer.EventFileWriter(str(folder))
        self._clock = clock

    def write(self, record: Record) -> None:
        """Write the numbers of a record."""
        scalars = scalars_of(record)
        if "step" not in record or not scalars:
            return
        values = [
            self._summaries.Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()
        ]
        summary = self._summaries.Summary(value=values)
        event = self._events.Event(wall_time=self._clock(), step=int(record["step"]), summary=summary)
        self._writer.add_event(event)

    def close(self) -> None:
        """Write what is pending and close the file."""
        self._writer.close()


class WandbSink(MetricSink):
    """Writes every number of a record that has a step to Weights & Biases.

    What is sent, and where, is decided by the user's own settings of that package; `WANDB_MODE=offline`
    keeps it on this machine.

    Arguments:
        project: the project's name there.
        config: the run's settings, shown beside it.
        folder: where the package keeps its files.

    Raises:
        MissingExtra: the package is not installed.
    """

    def __init__(self, project: str, name: str, config: Mapping[str, Any], folder: Path) -> None:
        wandb = import_extra("wandb", "wandb", WANDB_PURPOSE)
        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(project=project, name=name, config=dict(config), dir=str(folder))

    def write(self, record: Record) -> None:
        """Write the numbers of a record."""
        scalars = scalars_of(record)
        if "step" in record and scalars:
            self._run.log(scalars, step=int(record["step"]))

    def close(self) -> None:
        """Finish the run there."""
        self._run.finish()


def check_trackers(tensorboard: bool, wandb: bool) -> None:
    """Find out before a run is made whether the packages of the sinks wanted are there; raises MissingExtra."""
    if tensorboard:
        import_extra("tensorboard", "tensorboard", TENSORBOARD_PURPOSE)
    if wandb:
        import_extra("wandb", "wandb", WANDB_PURPOSE)


def open_trackers(folder: RunFolder, tensorboard: bool, wandb_project: str | None) -> list[MetricSink]:
    """The sinks that a user asks for besides the file of metrics, which every run has.

    Arguments:
        folder: of the run; what the packages write goes into it.
        tensorboard: whether TensorBoard is wanted.
        wandb_project: a project of Weights & Biases, or None.

    Raises:
        MissingExtra: a package is not installed.
    """
    sinks: list[MetricSink] = []
    if tensorboard:
        sinks.append(TensorBoardSink(folder.path / "tensorboard"))
    if wandb_project is not None:
        settings = dataclasses.asdict(folder.config())
        sinks.append(WandbSink(wandb_project, folder.path.name, settings, folder.path / "wandb"))
    return sinks


def scalars_of(record: Record) -> dict[str, float]:
    """Pick the numbers out of a record, other than its step and time."""
    return {
        key: float(value)
        for key, value in record.items()
        if key not in ("step", "time") and isinstance(value, numbers.Real) and not isinstance(value, bool)
    }
