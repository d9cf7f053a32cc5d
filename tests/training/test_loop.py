"""The loop in one process: resuming, what it warns of, and what stops it."""

import errno
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.inference import Sampling
from pcp.inference.text_model import TextModel
from pcp.models.published import CONFIGURATIONS, gpt2_config, llama_config
from pcp.training import checkpoint, loop
from pcp.training.checkpoint import CheckpointMismatch, CheckpointNotSaved
from pcp.training.data.batches import Batches, TokenArray
from pcp.training.data.token_range import TokenOutOfRange
from pcp.training.manifest import CheckpointCorrupt, CheckpointForeign
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.decoder_recipe import DecoderRecipe
from pcp.training.recipes.prepare import prepare
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder, load_state

TEXT = "the quick brown fox jumps over the lazy dog. " * 40
CONFIG = TrainingConfig(steps=12, batch=4, warmup_steps=3, evaluate_every=6, checkpoint_every=5, seed=3)
Record = dict[str, Any]


class StoppedAt(Batches):
    """The batches of a run, until somebody presses Ctrl-C before one of them."""

    stop: int
    asked: list[int]

    def batch(self, index: int) -> tuple[TokenArray, TokenArray]:
        if index == self.stop:
            raise KeyboardInterrupt
        self.asked.append(index)
        return super().batch(index)


def tiny(folder: RunFolder, stop: int = -1, **settings: Any) -> tuple[Recipe, StoppedAt]:
    """The recipe of a run with a model that is compiled in a second."""
    (folder.path / "corpus.txt").write_text(TEXT)
    config = folder.config().replaced(data=str(folder.path / "corpus.txt"), **settings)
    folder.config_file.write_text(config.to_json())
    found = prepare(folder)
    model = gpt2_config(layers=1, heads=2, width=16, context=8, vocabulary=found.tokens.vocabulary_size)
    recipe = DecoderRecipe(config, model, found.tokens)
    batches = StoppedAt(found.tokens.training, config.batch, 8, config.seed, model.vocabulary)
    object.__setattr__(batches, "stop", stop)
    object.__setattr__(batches, "asked", [])
    recipe.__dict__["batches"] = batches
    return recipe, batches


def interrupted_and_resumed(
    path: Path, stop: int, **settings: Any
) -> tuple[list[Record], list[int], RunFolder]:
    """Train until step `stop`, then again from the folder alone."""
    folder, records = RunFolder.create(path, CONFIG), []
    recipe, before = tiny(folder, stop, **settings)
    with pytest.raises(KeyboardInterrupt):
        loop.train(recipe, folder, records.append)
    recipe, after = tiny(RunFolder.open(path))
    loop.train(recipe, folder, records.append)
    return records, before.asked + after.asked, folder


def bits(folder: RunFolder, step: int) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in checkpoint.load(folder.checkpoints, step).arrays.items()}


@pytest.mark.share(2)
@pytest.mark.parametrize("settings", [{}, {"accumulate": 2}], ids=["plain", "accumulating"])
def test_a_resumed_run_ends_with_the_bits_of_one_that_was_not_interrupted(
    tmp_path: Path, settings: Record, caplog: pytest.LogCaptureFixture
) -> None:
    whole = RunFolder.create(tmp_path / "whole", CONFIG)
    recipe, batches = tiny(whole, **settings)
    expected: list[Record] = []
    loop.train(recipe, whole, expected.append)
    records, asked, folder = interrupted_and_resumed(tmp_path / "twice", 7, **settings)
    assert asked == batches.asked == list(range(12))
    assert checkpoint.steps(folder.checkpoints) == [7, 10, 12]
    assert bits(folder, 12) == bits(whole, 12)
    assert records[-1]["validation_loss"] == expected[-1]["validation_loss"]
    assert "another plan" not in caplog.text
    # Not by accident: the state before the last two steps is another one.
    assert bits(whole, 10) != bits(whole, 12)


def test_a_killed_run_trains_the_steps_after_its_checkpoint_again(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", CONFIG)
    recipe, first = tiny(folder, 7)
    with pytest.MonkeyPatch.context() as patch:
        # As by SIGKILL: nothing is written when the interruption comes.
        patch.setattr(loop, "_save", lambda *given: None if given[2] == 7 else save(*given))
        with pytest.raises(KeyboardInterrupt):
            loop.train(recipe, folder, lambda _: None)
    recipe, second = tiny(folder)
    loop.train(recipe, folder, lambda _: None)
    assert (first.asked, second.asked) == (list(range(7)), list(range(5, 12)))


save = loop._save


def test_another_plan_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run", CONFIG)
    recipe, _ = tiny(folder, 7)
    record = loop.plan_record
    monkeypatch.setattr(loop, "plan_record", lambda plan: record(plan) | {"jaxlib": "0.0.1"})
    with pytest.raises(KeyboardInterrupt):
        loop.train(recipe, folder, lambda _: None)
    stored = load_state(folder)[2]["plan"]
    assert stored["program"] == recipe.step.digest
    assert stored["device"] == "cpu:0"
    monkeypatch.undo()
    recipe, _ = tiny(folder, learning_rate=2e-3)
    with caplog.at_level(logging.WARNING):
        loop.train(recipe, folder, lambda _: None)
    assert "checkpoint of step 7 in" in caplog.text
    assert "another plan: program was " in caplog.text
    assert "jaxlib was 0.0.1 and is " in caplog.text
    assert "its numbers may differ" in caplog.text


def test_a_disk_that_fills_up_stops_the_run_and_keeps_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path / "run", CONFIG)
    recipe, _ = tiny(folder)
    write = checkpoint.write_arrays

    def filling(file: Any, arrays: Any) -> str:
        if arrays["step"] == 10:
            file.write(b"the first half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, arrays)

    monkeypatch.setattr(checkpoint, "write_arrays", filling)
    with pytest.raises(
        CheckpointNotSaved, match=r"No space left on device\. The checkpoint of step 5 is intact"
    ):
        loop.train(recipe, folder, lambda _: None)
    monkeypatch.undo()
    assert [path.name for path in folder.checkpoints.iterdir()] == ["step-00000005"]
    recipe, batches = tiny(folder)
    loop.train(recipe, folder, lambda _: None)
    assert batches.asked == list(range(5, 12))


def test_checkpoints_that_cannot_be_resumed(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", CONFIG)
    recipe, _ = tiny(folder, 7)
    with pytest.raises(KeyboardInterrupt):
        loop.train(recipe, folder, lambda _: None)
    other = DecoderRecipe(recipe.config, gpt2_config(1, 2, 32, 8, recipe.model.vocabulary), recipe.tokens)
    with pytest.raises(
        CheckpointMismatch, match=r"is of another model: array 'optimizer.*\[.*\] in the model"
    ):
        loop.train(other, folder, lambda _: None)
    arrays = folder.checkpoints / "step-00000007" / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:-10])
    with pytest.raises(CheckpointCorrupt, match=r"step-00000007 is incomplete.*continues from step 5"):
        loop.train(recipe, folder, lambda _: None)
    (folder.checkpoints / "step-00000007" / "manifest.json").write_text('{"format": "of somebody else"}')
    with pytest.raises(CheckpointForeign, match="step-00000007 is not a PCP checkpoint"):
        loop.train(recipe, folder, lambda _: None)


def test_tokens_beyond_the_vocabulary_stop_the_run_where_they_enter(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", CONFIG)
    recipe, _ = tiny(folder)
    tokens = np.array(recipe.tokens.training)
    tokens[:] = recipe.model.vocabulary
    recipe.__dict__["batches"] = Batches(tokens, 4, 8, 3, recipe.model.vocabulary)
    with pytest.raises(TokenOutOfRange, match=r"Token 28 at position 0 of batch 0 is outside the vocabulary"):
        loop.train(recipe, folder, lambda _: None)


def test_a_llama_is_trained_and_makes_text_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = llama_config(1, heads=4, key_value_heads=2, width=16, hidden=24, context=8, vocabulary=99)
    monkeypatch.setitem(CONFIGURATIONS, "llama-tiny", model)
    (tmp_path / "corpus.txt").write_text(TEXT)
    settings = CONFIG.replaced(model="llama-tiny", data=str(tmp_path / "corpus.txt"), learning_rate=1e-2)
    folder, records = RunFolder.create(tmp_path / "run", settings), []
    loop.train(prepare(folder), folder, records.append)
    losses = [record["validation_loss"] for record in records if "validation_loss" in record]
    assert losses[-1] < losses[0] < np.log(27) + 0.1
    text = "".join(TextModel.of_run(folder).continuation("the", 12, Sampling(), "cpu:0"))
    assert len(text) == 12
    assert set(text) <= set(TEXT)
