"""A batch that changes in the course of a run: what each step takes, and that such a run can be interrupted."""

import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training import loss_files
from tests.training.tiny_run import CONFIG, TINY, assert_equal

from pcp.models.published import CONFIGURATIONS
from pcp.training import checkpoint
from pcp.training.loop import train
from pcp.training.phases import phases_of
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder, load_state

BATCHES = ((0, 2), (4, 4), (9, 6))


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(CONFIGURATIONS, "gpt2-tiny", TINY)
    path = tmp_path / "letters.txt"
    path.write_text("".join(random.choices("abcde ", k=600)))
    return path


def folder_of(text: Path, name: str, **settings: Any) -> RunFolder:
    config = dataclasses.replace(CONFIG, data=str(text), batches=BATCHES, **settings)
    return RunFolder.create(text.parent / name, config)


def test_a_text_has_windows_of_each_step_in_each_size(text: Path) -> None:
    recipe = prepare(folder_of(text, "run"))
    phases = list(phases_of(recipe))
    assert [(phase.first, phase.end) for phase in phases] == [(0, 4), (4, 9), (9, 12)]
    for phase, (_, size) in zip(phases, BATCHES, strict=True):
        for step in range(phase.first, phase.end):
            expected = recipe.data.batches(size, recipe.config.seed).batch(step)
            assert_equal(phase.batch(step), expected)
    assert [phase.tokens for phase in phases] == [0, 4 * 2 * 8, 4 * 2 * 8 + 5 * 4 * 8]


def test_an_interrupted_run_ends_with_the_same_bits(text: Path) -> None:
    whole, torn = folder_of(text, "whole"), folder_of(text, "torn")
    records: list[dict[str, Any]] = []
    train(prepare(whole), whole, records.append)
    _, expected, metadata = load_state(whole)
    assert metadata["tokens"] == 8 * (4 * 2 + 5 * 4 + 3 * 6)
    steps = [record["step"] for record in records if "loss" in record]
    assert {4, 9} <= {*steps}  # what ends with a phase is told before the next

    def stop(record: dict[str, Any]) -> None:
        if record.get("step") == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(prepare(torn), torn, stop)
    assert checkpoint.steps(torn.checkpoints)[-1] in (4, 5)
    train(prepare(torn), torn, lambda _: None)
    assert_equal(load_state(torn)[1], expected)


def test_samples_go_on_where_the_phase_before_ended(tmp_path: Path) -> None:
    files = loss_files.traced(tmp_path)
    recipe, _ = files.prepared(tmp_path / "run", batch=[[0, 8], [3, 16]], steps=5, seed=2)
    phases = list(phases_of(recipe))
    assert [phase.recipe.config.accumulate for phase in phases] == [1, 2]
    rows = [phase.batch(step)[0] for phase in phases for step in range(phase.first, phase.end)]
    whole = recipe.data.batches(8, 2)
    # Three batches of 8 and one left out, so that two batches of 16 begin at the fourth.
    expected = [whole.batch(index)[0] for index in (0, 1, 2, 4, 5, 6, 7)]
    np.testing.assert_array_equal(np.concatenate(rows), np.concatenate(expected))
    assert [len(each) for each in rows] == [8, 8, 8, 16, 16]
