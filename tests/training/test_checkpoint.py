"""Checkpoints: whole or absent, verified when read, and never at the cost of an older one."""

import errno
import json
import logging
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pcp.training import checkpoint
from pcp.training.checkpoint import (
    CheckpointMismatch,
    CheckpointNotFound,
    CheckpointNotSaved,
    latest,
    load,
    save,
    steps,
)
from pcp.training.manifest import (
    CheckpointCorrupt,
    CheckpointForeign,
    CheckpointNewer,
    CheckpointTruncated,
    MetadataNotJSON,
)

GENERATOR = np.random.default_rng(11)
ARRAYS = {
    "wte": GENERATOR.normal(size=(65, 8)).astype(np.float32),
    "blocks/0/attn": GENERATOR.normal(size=(8, 24)).astype(ml_dtypes.bfloat16),
    "moment": GENERATOR.normal(size=(3,)),
    "step": np.array(1000, np.int32),
}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=8,
)
FLOATS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))


@given(
    st.dictionaries(st.text("abc/.0", min_size=1, max_size=6), FLOATS, max_size=4),
    st.dictionaries(st.text(max_size=5), JSON, max_size=3),
    JSON,
    st.integers(0, 10**10),
)
def test_there_and_back(
    tmp_path_factory: pytest.TempPathFactory,
    arrays: dict[str, Any],
    metadata: dict[str, Any],
    structure: Any,
    step: int,
) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    save(folder, step, arrays, metadata, model={"layers": 4}, program_digest="ab12", structure=structure)
    read = load(folder, expected=arrays, program_digest="ab12")
    assert read.step == latest(folder) == step
    assert read.metadata == metadata
    assert read.manifest.structure == structure
    assert read.manifest.model == {"layers": 4}
    assert read.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read.arrays[name].tobytes() == array.tobytes()
        assert read.arrays[name].shape == array.shape


def test_every_dtype_of_training_is_exact(tmp_path: Path) -> None:
    path = save(tmp_path / "run" / "checkpoints", 1000, ARRAYS)
    assert path.name == "step-00001000"
    assert sorted(file.name for file in path.iterdir()) == ["arrays.safetensors", "manifest.json"]
    for name, array in load(tmp_path / "run" / "checkpoints").arrays.items():
        assert array.dtype == ARRAYS[name].dtype
        assert array.tobytes() == ARRAYS[name].tobytes()


def test_metadata_may_hold_non_finite_numbers_tuples_and_number_keys(tmp_path: Path) -> None:
    save(tmp_path, 1, {}, {"loss": float("inf"), "shape": (1, 2), "by_step": {10: "a", 9: "b"}})
    assert load(tmp_path).metadata == {
        "loss": float("inf"),
        "shape": [1, 2],
        "by_step": {"10": "a", "9": "b"},
    }


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        save(tmp_path, step, ARRAYS, keep=2)
    assert steps(tmp_path) == [15, 20]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000015", "step-00000020"]


def test_a_step_saved_again_replaces_itself_without_a_gap(tmp_path: Path) -> None:
    save(tmp_path, 5, {"a": np.array(0.5)})
    save(tmp_path, 10, {"a": np.array(1.0)})
    again = save(tmp_path, 10, {"a": np.array(2.0)})
    assert again.name == "step-00000010-2"
    assert load(tmp_path).arrays["a"] == 2.0
    assert steps(tmp_path) == [5, 10]
    assert save(tmp_path, 10, {"a": np.array(3.0)}).name == "step-00000010-3"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000005", "step-00000010-3"]


def test_an_older_step_can_be_asked_for(tmp_path: Path) -> None:
    save(tmp_path, 5, {"a": np.array(0.5)})
    save(tmp_path, 10, {"a": np.array(1.0)})
    assert load(tmp_path, 5).arrays["a"] == 0.5


def test_nothing_there(tmp_path: Path) -> None:
    assert latest(tmp_path / "absent") is None
    assert steps(tmp_path) == []
    with pytest.raises(
        CheckpointNotFound, match=r"There is no checkpoint in .*absent\. Give the folder of a run"
    ):
        load(tmp_path / "absent")
    save(tmp_path, 5, ARRAYS)
    save(tmp_path, 10, ARRAYS)
    with pytest.raises(CheckpointNotFound, match=r"no checkpoint of step 7 in .*; there are: 5, 10\."):
        load(tmp_path, 7)


@pytest.mark.parametrize("when", ["arrays", "manifest", "rename"])
def test_a_full_disk_leaves_the_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    save(tmp_path, 5, ARRAYS)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def half(file: BinaryIO, _: object) -> str:
        file.write(b"half of the arrays")
        full()
        return ""

    if when == "arrays":
        monkeypatch.setattr(checkpoint, "write_arrays", half)
    elif when == "manifest":
        monkeypatch.setattr(checkpoint, "write_manifest", full)
    else:
        monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(
        CheckpointNotSaved,
        match=r"step 10 could not be written .*: No space left on device\. .* step 5 is intact",
    ):
        save(tmp_path, 10, {"a": np.ones(4)})
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]
    np.testing.assert_array_equal(load(tmp_path).arrays["wte"], ARRAYS["wte"])


def test_a_really_full_disk(tmp_path: Path) -> None:
    mount = tmp_path / "tiny"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mount)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a tiny file system needs root")
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("a tiny file system cannot be mounted here")
    try:
        save(mount, 5, {"a": np.arange(16.0)})
        with pytest.raises(CheckpointNotSaved, match=r"No space left on device.*step 5 is intact.*Make room"):
            save(mount, 10, {"a": GENERATOR.normal(size=20_000)})
        assert load(mount).arrays["a"].tolist() == list(range(16))
        assert [path.name for path in mount.iterdir()] == ["step-00000005"]
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_an_interruption_leaves_the_older_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 5, ARRAYS)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write_manifest", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 10, ARRAYS)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]


def test_what_a_killed_writer_left_is_ignored_then_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 5, ARRAYS)
    shutil.copytree(tmp_path / "step-00000005", tmp_path / ".incomplete-abc")
    assert steps(tmp_path) == [5]
    with caplog.at_level(logging.WARNING):
        save(tmp_path, 10, ARRAYS)
    assert ".incomplete-abc, left by an interrupted write" in caplog.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000005", "step-00000010"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(CheckpointNotSaved, match="There is no earlier checkpoint"):
        save(tmp_path / "file" / "checkpoints", 1, ARRAYS)


def test_impossible_requests(tmp_path: Path) -> None:
    for step, keep in ((-1, 1), (1, 0)):
        with pytest.raises(CheckpointNotSaved, match=f"step {step} keeping {keep} was asked for"):
            save(tmp_path, step, ARRAYS, keep=keep)
    with pytest.raises(MetadataNotJSON, match=r"step 1 cannot be described in JSON: .*ndarray"):
        save(tmp_path, 1, ARRAYS, {"loss": np.ones(3)})
    assert list(tmp_path.iterdir()) == []


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = save(tmp_path, 5, {"a": np.arange(6.0), "b": np.array([True, False])}, {"seed": 3})
    for file in path.iterdir():
        content = file.read_bytes()
        for place in range(len(content)):
            file.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
            with pytest.raises((CheckpointCorrupt, CheckpointForeign, CheckpointNewer)) as caught:
                load(tmp_path)
            assert str(path) in str(caught.value)
        file.write_bytes(content)
    load(tmp_path)


def test_a_damaged_checkpoint_says_which_one_is_left(tmp_path: Path) -> None:
    save(tmp_path, 5, ARRAYS)
    file = save(tmp_path, 10, ARRAYS) / "arrays.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(
        CheckpointCorrupt, match=r"is damaged: arrays.safetensors has SHA-256 .*continues from step 5"
    ):
        load(tmp_path)
    file.write_bytes(content[:-10])
    with pytest.raises(
        CheckpointTruncated, match=r"is incomplete: .* has \d+ of \d+ bytes.*continues from step 5"
    ):
        load(tmp_path)
    file.unlink()
    with pytest.raises(CheckpointTruncated, match=r"is incomplete: .*No such file"):
        load(tmp_path)
    shutil.rmtree(tmp_path / "step-00000005")
    with pytest.raises(CheckpointTruncated, match="no other checkpoint"):
        load(tmp_path)


def test_a_truncated_manifest(tmp_path: Path) -> None:
    file = save(tmp_path, 5, ARRAYS) / "manifest.json"
    file.write_text(file.read_text()[:200])
    with pytest.raises(CheckpointTruncated, match=r"is incomplete: manifest\.json ends after 200 characters"):
        load(tmp_path)


def edited(path: Path, **entries: object) -> None:
    file = path / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def test_newer_and_foreign_checkpoints(tmp_path: Path) -> None:
    path = save(tmp_path, 5, ARRAYS)
    edited(path, version=2)
    with pytest.raises(CheckpointNewer, match="has format version 2; this PCP reads up to 1"):
        load(tmp_path)
    edited(path, version=1, step=6)
    with pytest.raises(CheckpointCorrupt, match=r"content of manifest\.json does not have its checksum"):
        load(tmp_path)
    edited(path, format="other.checkpoint")
    with pytest.raises(
        CheckpointForeign, match=r'is not a PCP checkpoint: manifest\.json lacks the entry "format"'
    ):
        load(tmp_path)
    (path / "manifest.json").unlink()
    with pytest.raises(CheckpointForeign, match=r"is not a PCP checkpoint: it holds no manifest\.json"):
        load(tmp_path)


def test_a_checkpoint_of_another_model_names_the_first_difference(tmp_path: Path) -> None:
    save(tmp_path, 5, ARRAYS, model={"width": 8}, program_digest="ab")
    wider = ARRAYS | {"wte": np.ones((65, 16), np.float32), "step": np.ones(2)}
    with pytest.raises(
        CheckpointMismatch,
        match=r"array 'step' is int32\[\] in the checkpoint and float64\[2\] in the model.*is {'width': 8}",
    ):
        load(tmp_path, expected=wider)
    with pytest.raises(CheckpointMismatch, match=r"array 'wpe' is absent in the checkpoint and float32\[4\]"):
        load(tmp_path, expected=ARRAYS | {"wpe": np.ones(4, np.float32)})
    fewer = {name: array for name, array in ARRAYS.items() if name != "moment"}
    with pytest.raises(
        CheckpointMismatch, match=r"'moment' is float64\[3\] in the checkpoint and absent in the model"
    ):
        load(tmp_path, expected=fewer)
    with pytest.raises(CheckpointMismatch, match="belongs to program 'ab', expected 'cd'"):
        load(tmp_path, expected=ARRAYS, program_digest="cd")
