"""`pcp train --model FILE`: from the files to the weights that were trained, and what is refused before a run begins."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.training.loss_files import Files, plain, save_arrays, traced

from pcp.cli import main
from pcp.training import checkpoint
from pcp.training.data.safetensors_file import read_arrays

SHORT = ["--steps", "20", "--warmup-steps", "2", "--evaluate-every", "10", "--learning-rate", "0.01"]


def of(files: Files) -> list[str]:
    return ["--model", str(files.model), "--weights", str(files.weights), "--data", str(files.data)]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says on standard error that must refuse what was given."""
    assert main(["train", *arguments]) == 2
    return capsys.readouterr().err


def test_everything_of_a_run_lies_in_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, folder = plain(tmp_path), tmp_path / "run"
    assert main(["train", *of(files), *SHORT, "--run", str(folder), "--json"]) == 0
    _, _, *progress, final = map(json.loads, capsys.readouterr().out.splitlines())
    assert [record["step"] for record in progress] == [*range(1, 21)]
    progress = [record for record in progress if "validation_loss" in record]
    assert progress[-1]["validation_loss"] < progress[0]["validation_loss"]
    assert (final["event"], final["sample"], final["weights"]) == (
        "finished", None, str(folder / "trained.safetensors"),
    )  # fmt: skip
    assert Path(final["plot"]).read_bytes().startswith(b"\x89PNG")
    assert checkpoint.steps(folder / "checkpoints") == [20]
    trained, before = read_arrays(folder / "trained.safetensors")[0], read_arrays(files.weights)[0]
    assert {name: array.shape for name, array in trained.items()} == {"arg1": (3, 16), "arg2": (16,)}
    assert all((trained[name] != before[name]).any() for name in before)

    assert main(["train", "--resume", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert f"weights      {folder / 'trained.safetensors'}, under the names of the given weights" in shown
    assert "no text is sampled, because a loss from a file does not say how its model makes text" in shown

    assert main(["generate", str(folder), "--prompt", "To be"]) == 2
    message = capsys.readouterr().err
    assert "trains the loss" in message
    assert "does not say how its model makes text; `pcp generate` knows only gpt2," in message


def test_the_folder_is_named_after_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *of(traced(tmp_path)), *SHORT]) == 0
    assert "the run is in runs/network" in capsys.readouterr().err
    assert (tmp_path / "runs" / "network" / "loss.png").exists()


def test_what_is_refused_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, folder = traced(tmp_path), tmp_path / "run"
    arguments = [*of(files), *SHORT, "--run", str(folder)]
    assert "batch is 5, but" in refusal(capsys, *arguments, "--batch", "5")
    np.savez(files.data, x=np.ones((40, 3), np.float32))
    assert "has the arrays x; the loss takes batches of x: f32[8,3], y: f32[8]" in refusal(capsys, *arguments)
    assert not folder.exists()


CALL = """
module { func.func @main(%w: tensor<3xf32>, %x: tensor<4x3xf32>) -> tensor<f32> {
  %0 = stablehlo.custom_call @native(%x) : (tensor<4x3xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<4x3xf32>, tensor<3xf32>) -> tensor<4xf32>
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%1 init: %c) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %2 : tensor<f32> } }
"""


def native(folder: Path, call: str) -> Files:
    (folder / "native.mlir").write_text(call)
    weights = save_arrays(folder / "w.safetensors", {"arg0": np.ones(3, np.float32)})
    data = save_arrays(folder / "x.safetensors", {"arg1": np.ones((40, 3), np.float32)})
    return Files(folder / "native.mlir", weights, data)


@pytest.mark.parametrize("command", ["train", "shepherd"])
def test_what_workers_would_not_run_is_refused_before_there_are_any(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, folder = native(tmp_path, CALL), tmp_path / "run"
    if command == "train":
        arguments = ["train", *of(files), "--steps", "50", "--warmup-steps", "2", "--workers", "2", "--run"]
    else:
        names = (("model", files.model), ("weights", files.weights), ("data", files.data))
        settings = "".join(f'{name} = "{path}"\n' for name, path in names)
        (tmp_path / "run.toml").write_text(f"{settings}steps = 50\nwarmup_steps = 2\n")
        arguments = ["shepherd", str(tmp_path / "run.toml"), "--workers", "2", "--run"]
    assert main([*arguments, str(folder)]) == 2
    assert (
        "holds stablehlo.custom_call, which is refused: it would run native code" in capsys.readouterr().err
    )
    assert not folder.exists()


def test_what_has_no_derivative_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_the_path = CALL.replace(
        "@native(%x) : (tensor<4x3xf32>) -> tensor<4x3xf32>", "@native(%w) : (tensor<3xf32>) -> tensor<3xf32>"
    )
    on_the_path = on_the_path.replace("dot_general %0, %w", "dot_general %x, %0")
    files, folder = native(tmp_path, on_the_path), tmp_path / "run"
    message = refusal(capsys, *of(files), *SHORT, "--run", str(folder))
    assert "custom_call.native cannot be differentiated: there is no rule for it" in message
    assert not folder.exists()


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for lesson in (
        "pcp train --model loss.pcp --weights weights.safetensors --data samples.npz",
        "an .npz or .safetensors file with one array for each argument of the batch",
        "written to trained.safetensors",
    ):
        assert lesson in shown
