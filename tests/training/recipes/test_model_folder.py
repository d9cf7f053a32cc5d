"""Runs that begin with a model in a folder: their settings, what is refused, and the folder that is written at the end."""

import json
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

from pcp.cli import main
from pcp.training.recipes.config import InvalidTrainingConfig
from pcp.training.recipes.model_folder import holds_transformers_model
from pcp.training.recipes.prepare import ModelNotBrought, configured, prepare
from pcp.training.recipes.written_model import write_folder
from pcp.training.run_folder import RunFolder

SETTINGS = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_positions": 40,
    "dtype": "bfloat16",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "my-gpt2"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(SETTINGS))
    (path / "my.txt").write_text("to be or not to be " * 99)
    np.savez(path / "samples.npz", x=np.zeros(2))
    return path


def test_what_is_not_set_is_as_for_fine_tuning(folder: Path) -> None:
    assert holds_transformers_model(folder)
    config = configured({"model": str(folder), "data": str(folder / "my.txt")})
    assert (config.learning_rate, config.batch, config.context) == (5e-5, 8, 40)
    assert config.tokenizer == str(folder)  # that of the model
    config = configured(
        {"model": str(folder), "data": str(folder / "my.txt"), "learning_rate": 1e-3, "context": 16}
    )
    assert (config.learning_rate, config.context) == (1e-3, 16)
    assert configured({"model": str(folder), "data": str(folder / "samples.npz")}).context == 0
    wide = {key: value for key, value in SETTINGS.items() if key != "n_positions"}
    (folder / "config.json").write_text(json.dumps(wide | {"text_config": {"max_position_embeddings": 4096}}))
    assert configured({"model": str(folder), "data": str(folder / "my.txt")}).context == 512


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": 41}, r"context is 41, but the model in .*my-gpt2 knows 40 positions"),
        ({"dtype": "f16"}, r"dtype is 'f16'; expected one of f32, bf16"),
        ({"weights": "w.safetensors"}, r"weights is w.safetensors, but .*my-gpt2 holds its own"),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused(
    folder: Path, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidTrainingConfig, match=message):
        configured({"model": str(folder), "data": str(folder / "my.txt"), **settings})


def test_without_torch_the_error_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    text, run = folder / "my.txt", folder.parent / "run"
    assert main(["train", "--model", str(folder), "--data", str(text), "--run", str(run)]) == 2
    message = capsys.readouterr().err
    assert "needs PyTorch and transformers where it begins" in message
    assert "pip install 'planetary-compute-protocol[torch]'" in message
    assert not run.exists()  # free for the next try


def test_a_model_whose_program_is_not_made_is_told(folder: Path) -> None:
    run = RunFolder.create(
        folder.parent / "run", configured({"model": str(folder), "data": str(folder / "my.txt")})
    )
    with pytest.raises(ModelNotBrought, match=r"my-gpt2 is a folder, .*bring_model\(folder\) before prepare"):
        prepare(run)


def test_a_written_folder_has_the_type_of_the_model_and_what_lay_beside_it(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    rng, out = np.random.default_rng(0), folder.parent / "out"
    arrays = {"w": rng.normal(size=(3, 4)).astype(np.float32), "n": np.arange(3)}
    write_folder(folder, out, arrays, "")
    with safe_open(out / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}  # or transformers does not read it
        np.testing.assert_array_equal(file.get_tensor("w"), arrays["w"].astype(ml_dtypes.bfloat16))
        assert file.get_tensor("n").dtype == np.int64
    assert (out / "tokenizer.json").read_text() == "{}"
    write_folder(folder, out, arrays, "f32")
    assert json.loads((out / "config.json").read_text())["dtype"] == "float32"
    with safe_open(out / "model.safetensors", "np") as file:
        np.testing.assert_array_equal(file.get_tensor("w"), arrays["w"])


def test_a_run_of_something_else_has_no_model_to_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunFolder.create(tmp_path / "run", configured({}))
    assert main(["export", str(run.path), str(tmp_path / "out")]) == 2
    assert "trains gpt2-nano, which is no folder of transformers; its weights are" in capsys.readouterr().err
    run.source_folder.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("keep me")
    assert main(["export", str(run.path), str(tmp_path / "out")]) == 2
    assert "is there and holds something else; give a folder that is empty" in capsys.readouterr().err
