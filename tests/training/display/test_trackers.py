"""Sinks of other packages: what they are given, and what is said when they are missing."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.training.display.metrics import MetricSink
from pcp.training.display.trackers import TensorBoardSink, WandbSink, open_trackers, scalars_of
from pcp.training.extras import MissingExtra
from pcp.training.recipes.config import TrainingConfig
from pcp.training.run_folder import RunFolder


def test_only_numbers_are_scalars() -> None:
    record = {"step": 4, "loss": np.float32(0.5), "tokens": 7, "event": "round", "ok": True, "none": None}
    assert scalars_of(record) == {"loss": 0.5, "tokens": 7.0}


OPENERS: dict[str, Callable[[Path], MetricSink]] = {
    "tensorboard": TensorBoardSink,
    "wandb": lambda folder: WandbSink("project", "name", {}, folder),
}


@pytest.mark.parametrize("package", OPENERS)
def test_missing_packages(package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'planetary-compute-protocol\[{package}\]'"):
        OPENERS[package](tmp_path)


class FakeRun:
    """Notes what a run of Weights & Biases is given."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.logged: list[tuple[dict[str, float], int]] = []
        self.finished = False

    def log(self, scalars: dict[str, float], step: int) -> None:
        self.logged.append((scalars, step))

    def finish(self) -> None:
        self.finished = True


def test_weights_and_biases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs: list[FakeRun] = []

    def init(**settings: Any) -> FakeRun:
        runs.append(FakeRun(**settings))
        return runs[-1]

    module = types.ModuleType("wandb")
    monkeypatch.setattr(module, "init", init, raising=False)
    monkeypatch.setitem(sys.modules, "wandb", module)
    with WandbSink("pcp", "nano", {"seed": 1}, tmp_path / "wandb") as sink:
        sink.write({"step": 3, "loss": 2.5, "event": "x"})
        sink.write({"event": "worker", "steps_per_second": 3.0})
        sink.write({"step": 4, "event": "saved"})
    [run] = runs
    assert run.settings == {
        "project": "pcp",
        "name": "nano",
        "config": {"seed": 1},
        "dir": str(tmp_path / "wandb"),
    }
    assert run.logged == [({"loss": 2.5}, 3)]
    assert run.finished


def test_trackers_of_a_run_are_those_that_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path / "nano", TrainingConfig(seed=9))
    runs: list[dict[str, Any]] = []
    module = types.ModuleType("wandb")
    monkeypatch.setattr(module, "init", lambda **settings: runs.append(settings), raising=False)
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr("pcp.training.display.trackers.TensorBoardSink", lambda path: path)
    assert open_trackers(folder, False, None) == []
    assert runs == []
    board, _ = open_trackers(folder, True, "planet")
    assert board == tmp_path / "nano" / "tensorboard"
    [settings] = runs
    assert (settings["project"], settings["name"], settings["config"]["seed"]) == ("planet", "nano", 9)


def test_tensorboard_reads_what_is_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    with TensorBoardSink(tmp_path / "events", clock=lambda: 12.5) as sink:
        sink.write({"step": 3, "loss": 2.5, "validation_loss": 3.0})
        sink.write({"event": "worker", "steps_per_second": 3.0})
        sink.write({"step": 4, "event": "saved"})
    [file] = (tmp_path / "events").iterdir()
    events = [event for event in EventFileLoader(str(file)).Load() if event.HasField("summary")]
    [event] = events
    assert (event.step, event.wall_time) == (3, 12.5)
    assert [value.tag for value in event.summary.value] == ["loss", "validation_loss"]
    assert [value.tensor.float_val[0] for value in event.summary.value] == [2.5, 3.0]
