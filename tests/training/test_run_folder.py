"""The folder of a run: made once, opened again, and nested states that come back as they were."""

from pathlib import Path

import numpy as np
import pytest

from pcp.ir.tree import flatten
from pcp.training.checkpoint import CheckpointMismatch, CheckpointNotFound
from pcp.training.data.tokenizer import CharacterTokenizer
from pcp.training.recipes.config import TrainingConfig
from pcp.training.run_folder import NotARun, RunFolder, load_state, save_state


def test_settings_and_tokenizer_come_back(tmp_path: Path) -> None:
    config = TrainingConfig(steps=7, warmup_steps=1)
    RunFolder.create(tmp_path / "a" / "run", config).write_tokenizer(CharacterTokenizer("abc"))
    folder = RunFolder.open(tmp_path / "a" / "run")
    assert folder.config() == config
    assert folder.tokenizer().decode([2, 0]) == "ca"
    assert {path.name for path in folder.path.iterdir()} == {"config.json", "tokenizer.json"}


def test_every_file_has_its_own_place(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    files = [folder.config_file, folder.tokenizer_file, folder.token_file, folder.metrics_file]
    files += [folder.checkpoints, folder.plot_file, folder.sample_file]
    assert len({path.name for path in files}) == len(files)
    assert {path.parent for path in files} == {tmp_path}


def test_a_run_is_not_made_twice(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, TrainingConfig())
    with pytest.raises(
        NotARun, match=r"already holds a run; give another folder, or --resume .* to continue it"
    ):
        RunFolder.create(tmp_path, TrainingConfig(steps=7, warmup_steps=1))
    assert RunFolder.open(tmp_path).config() == TrainingConfig()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        NotARun, match=r"is not the folder of a run: there is no config.json in it; give the folder of a run"
    ):
        RunFolder.open(tmp_path)
    folder = RunFolder.create(tmp_path, TrainingConfig())
    with pytest.raises(
        NotARun,
        match="has no tokenizer yet, because it was stopped before it had read its data; "
        "begin it again with pcp train",
    ):
        folder.tokenizer()
    with pytest.raises(CheckpointNotFound, match="There is no checkpoint in"):
        load_state(folder)


def test_a_discarded_run_leaves_what_it_did_not_write(tmp_path: Path) -> None:
    for name in ("empty", "notes"):
        folder = RunFolder.create(tmp_path / name, TrainingConfig())
        folder.write_tokenizer(CharacterTokenizer("abc"))
        if name == "notes":
            (folder.path / "notes.txt").write_text("mine")
        folder.discard()
    assert not (tmp_path / "empty").exists()
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["notes.txt"]


def test_a_nested_state_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, TrainingConfig())
    rng = np.random.default_rng(1)
    state = {
        "params": {"blocks": [{"w": rng.normal(size=(2, 3))}, {"w": rng.normal(size=4).astype(np.float32)}]},
        "pair": (np.int32(3), rng.integers(0, 9, 5)),
    }
    save_state(folder, 4, state, {"tokens": 99}, "digest")
    save_state(folder, 6, {"params": np.ones(1)}, {}, "digest")
    step, found, metadata = load_state(folder, 4)
    assert (step, metadata) == (4, {"tokens": 99})
    (leaves, tree), (expected, expected_tree) = flatten(found), flatten(state)
    assert tree == expected_tree
    for ours, theirs in zip(leaves, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    assert load_state(folder)[0] == 6


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, TrainingConfig())
    save_state(folder, 4, {"w": np.ones((2, 3), np.float32)}, {}, "")
    assert load_state(folder, expected={"w": np.zeros((2, 3), np.float32)})[0] == 4
    with pytest.raises(
        CheckpointMismatch, match=r"array 'w' is float32\[2, 3\] in the checkpoint and float32\[2, 4\] in"
    ):
        load_state(folder, expected={"w": np.zeros((2, 4), np.float32)})
    with pytest.raises(
        CheckpointMismatch, match=r"array 'v' is absent in the checkpoint and float32\[1\] in the model"
    ):
        load_state(folder, expected={"w": np.zeros((2, 3), np.float32), "v": np.zeros(1, np.float32)})
