"""`pcp generate`: text from a run, the same text again, and refusals."""

import json
from pathlib import Path

import numpy as np
import pytest

from pcp.cli import main
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.training.data.tokenizer import CharacterTokenizer
from pcp.training.recipes.config import TrainingConfig
from pcp.training.run_folder import RunFolder, save_state

LETTERS = "abcdefgh \n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with a checkpoint of random parameters, large enough that every score differs."""
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "run", TrainingConfig())
    tokenizer = CharacterTokenizer(LETTERS)
    folder.write_tokenizer(tokenizer)
    config = gpt2_config(4, 4, 128, 64, tokenizer.vocabulary_size, bias=False)
    parameters = map_tree(lambda p: p * np.float32(3), decoder.initial_parameters(config, 5))
    save_state(folder, 7, {"params": parameters}, {}, "")
    return folder


def text_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The text in the JSON that the command prints."""
    assert main(["generate", *arguments, "--json"]) == 0
    text = json.loads(capsys.readouterr().out)["text"]
    assert isinstance(text, str)
    return text


def test_the_text_goes_on_after_the_prompt(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(run.path), "--prompt", "bad", "--tokens", "12"]
    text = text_of(capsys, *arguments)
    assert len(text) == 12
    assert set(text) <= set(LETTERS)
    assert main(["generate", *arguments]) == 0
    assert capsys.readouterr().out == f"bad{text}\n"


def test_seed_temperature_and_top_k_choose_the_text(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(run.path), "--prompt", "a", "--tokens", "16"]
    first, again = (text_of(capsys, *arguments, "--seed", "1") for _ in range(2))
    assert first == again
    assert text_of(capsys, *arguments, "--seed", "2") != first
    greedy = text_of(capsys, *arguments, "--temperature", "0")
    assert text_of(capsys, *arguments, "--top-k", "1", "--seed", "9") == greedy
    assert text_of(capsys, *arguments, "--temperature", "0", "--seed", "9") == greedy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt", "xyz"], "'x'"),
        (["--prompt", ""], "the prompt is empty; give at least one character or token to begin with"),
        (["--temperature", "-1"], "temperature is -1.0; expected at least 0"),
        (["--top-k", "-2"], "top_k is -2; expected at least 1"),
        (["--seed", "-1"], "seed is -1; expected at least 0"),
        (["--tokens", "-3"], "--tokens is -3; expected at least 0"),
        (["--device", "tpu:0"], "tpu"),
        (["--tolerance", "-1"], "tolerance"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_refused(
    run: RunFolder, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", str(run.path), *arguments]) == 2
    assert message in capsys.readouterr().err


def refusal(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The message of the command for something that it cannot generate from."""
    assert main(["generate", str(path)]) == 2
    return capsys.readouterr().err


def test_a_run_that_is_not_trained_yet_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder.create(tmp_path / "new", TrainingConfig())
    assert (
        "has no tokenizer yet, because it was stopped before it had read its data; "
        "begin it again with pcp train" in refusal(folder.path, capsys)
    )
    folder.write_tokenizer(CharacterTokenizer(LETTERS))
    message = refusal(folder.path, capsys)
    assert (
        f"There is no checkpoint in {folder.checkpoints}: the run was stopped before its first one" in message
    )
    assert f"Train on with: pcp train --resume {folder.path}" in message


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("absent", "there is no folder {path}; give the folder of a run that `pcp train` made"),
        (
            "loss.mlir",
            "{path} is a program, without weights and tokenizer; `pcp run` runs it on arrays. Instead, give",
        ),
        ("model.safetensors", "{path} holds weights only; config.json and a tokenizer must be beside them"),
        ("run.toml", "{path} holds the settings of a run; `pcp train --config` trains it"),
        ("notes.txt", "{path} is a file. Instead, give the folder of a run"),
        ("folder/", "{path} holds no model: there is no config.json in it; give the folder of a run"),
    ],
)
def test_a_path_without_a_model_says_what_to_give(
    tmp_path: Path, file: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / file
    if file.endswith("/"):
        path.mkdir()
    elif file != "absent":
        path.write_text("something")
    assert message.format(path=path) in refusal(path, capsys)


def test_the_folder_of_many_runs_names_them(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"Folders in it that may hold a model: {run.path}" in refusal(run.path.parent, capsys)


def test_stored_weights_make_a_text(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(text_of(capsys, str(run.path), "--tokens", "5", "--weights", "int8")) == 5
    assert main(["generate", str(run.path), "--weights", "int3"]) == 2
    assert "--weights is 'int3' (did you mean 'int8'?); choose one of" in capsys.readouterr().err
