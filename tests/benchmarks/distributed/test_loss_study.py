"""What is said of the study of losses is what its results say."""

import argparse
from pathlib import Path

import pytest
from benchmarks.distributed.attacks import ATTACKS
from benchmarks.distributed.loss_study import Run, stored

from benchmarks.distributed import low_communication

RESULTS = Path(low_communication.__file__).parents[1] / "results" / "low_communication.jsonl"


class Stored:
    """Answers from the file of results only."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.results = stored(Path(arguments.results))
        self.asked: dict[Run, float] = {}
        studies.append(self)

    def loss(self, run: Run) -> float:
        self.asked[run] = float(self.results[run.key]["loss"])
        return self.asked[run]


studies: list[Stored] = []


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[Run, float]:
    """The losses that a study asks for."""
    monkeypatch.setattr(low_communication, "Study", Stored)
    parser = argparse.ArgumentParser()
    low_communication.add_arguments(parser)
    low_communication.study(parser.parse_args(["--results", str(RESULTS), *arguments]))
    return studies.pop().asked


def test_diloco_and_streaming_end_near_data_parallel_training_with_every_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    losses = asked(monkeypatch)
    controls = {
        seed: min(
            loss for run, loss in losses.items() if run.algorithm == "data_parallel" and run.seed == seed
        )
        for seed in (1, 2, 3)
    }
    gaps = {
        (run.algorithm, run.seed): loss - controls[run.seed]
        for run, loss in losses.items()
        if run.algorithm in ("diloco", "streaming")
    }
    assert len(gaps) == 6
    assert max(gaps.values()) < 0.03
    assert {dict(run.options)["merge"] for run in losses if run.algorithm == "data_parallel"} == {"mean"}


def test_two_hostile_of_eight_workers_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    options = "--batch 4 --workers 8 --algorithms diloco --learning-rates 1e-3 --seeds 1 --attacks all"
    losses = {run.attack: loss for run, loss in asked(monkeypatch, *options.split()).items()}
    assert set(losses) == {"", *ATTACKS}
    assert max(losses.values()) < losses[""] + 0.02
