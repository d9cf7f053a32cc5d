"""`pcp train` in this process: records, files, resuming, refusals and interruption."""

import argparse
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.cli import generate, main, shepherd, train, worker
from pcp.training import checkpoint
from pcp.training.data.token_file import write_token_file
from pcp.training.data.tokenizer import CharacterTokenizer
from pcp.training.display.metrics import JSONLinesStream, read_metrics
from pcp.training.recipes.config import TrainingConfig
from pcp.training.run_folder import RunFolder, load_state

SMALL = ["--steps", "12", "--batch", "4", "--warmup-steps", "2", "--evaluate-every", "6", "--seed", "3"]
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of 150 lines of eight words."""
    path = tmp_path_factory.mktemp("corpus") / "words.txt"
    choose = random.Random(0).choice
    words = ["to", "be", "or", "not", "that", "is", "the", "question", "whether", "noble"]
    path.write_text("\n".join(" ".join(choose(words) for _ in range(8)) for _ in range(150)))
    return path


@pytest.fixture(scope="module")
def trained(text: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of a whole run, and what it printed with --json."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        lines: list[str] = []
        patch.setattr(sys, "stdout", _Lines(lines))
        assert main(["train", "--data", str(text), "--run", str(folder), "--json", *SMALL]) == 0
    return folder, [json.loads(line) for line in lines]


class _Lines:
    """A standard output that keeps whole lines."""

    def __init__(self, lines: list[str]) -> None:
        self._lines, self._rest = lines, ""

    def write(self, text: str) -> int:
        *whole, self._rest = (self._rest + text).split("\n")
        self._lines.extend(whole)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""


def test_json_lines_tell_the_progress_and_the_end(trained: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, records = trained
    begin, peak, *progress, final = records
    assert peak["event"] == "peak"
    said = "learning rate 0.001, by a cosine to 0.0001 at step 12 after a rise of 2 steps; weight decay 0.1; batch 4"
    assert begin == {"event": "schedule", "steps": 12, "warmup_steps": 2, "message": said}
    assert [record["step"] for record in progress] == list(range(1, 13))  # each, since they are few
    for record in progress:
        assert np.log(30) > record["loss"] > 0
        assert record["tokens_per_second"] > 0
        assert record["mfu"] * peak["flops_per_second"] == pytest.approx(
            record["tokens_per_second"] * peak["flops_per_step"] / (4 * 64)
        )
        assert record["gradient_norm"] > 0
    assert [record["step"] for record in progress if "validation_loss" in record] == [6, 12]
    assert progress[-1]["loss"] < progress[0]["loss"]
    assert final["event"] == "finished"
    assert final["step"] == 12
    assert final["validation_loss"] == progress[-1]["validation_loss"]
    assert final["seconds"] > 0
    assert final["run"] == str(folder)
    assert read_metrics(folder / "metrics.jsonl") == [peak, *progress]


def test_everything_of_a_run_lies_in_its_folder(trained: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, records = trained
    plot = Path(records[-1]["plot"]).read_bytes()
    assert plot.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(plot) > 10_000
    assert len(Path(records[-1]["sample"]).read_text()) > 100
    assert checkpoint.steps(Path(records[-1]["checkpoints"])) == [12]
    assert json.loads((folder / "config.json").read_text())["steps"] == 12


def test_an_interrupted_run_goes_on_to_the_same_end(
    trained: tuple[Path, list[dict[str, Any]]],
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole, records = trained
    folder = tmp_path / "run"

    def interrupted(_: object, record: Any) -> None:
        if "step" in record:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(JSONLinesStream, "write", interrupted)
        code = main(["train", "--data", str(text), "--run", str(folder), "--json", *SMALL])
    assert code == 130
    assert f"pcp: interrupted; pcp train --resume {folder} continues it" in capsys.readouterr().err
    assert checkpoint.steps(folder / "checkpoints") == [2]
    assert main(["status", str(folder)]) == 0
    assert "run: stopped: interrupted" in capsys.readouterr().out
    assert main(["train", "--resume", str(folder)]) == 0
    shown = capsys.readouterr()
    assert f"validation loss {records[-1]['validation_loss']:.4f} after 12 steps" in shown.out
    [command] = re.findall(r"more text    pcp (generate .*)", shown.out)
    assert "--prompt=" in command
    assert main([*shlex.split(command), "--tokens", "2"]) == 0
    assert main(["status", str(folder)]) == 0
    assert "run: complete" in capsys.readouterr().out
    assert "step 12" in shown.err
    _, expected, _ = load_state(RunFolder.open(whole))
    _, found, _ = load_state(RunFolder.open(folder))
    np.testing.assert_array_equal(found["params"]["wte"], expected["params"]["wte"])
    assert [
        record["loss"] for record in read_metrics(folder / "metrics.jsonl") if record.get("step") == 6
    ] == [record["loss"] for record in records if record.get("step") == 6]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command says on standard error that must refuse what was given."""
    assert main(["train", *arguments]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            None,
            "There is no corpus at {path}. Give --data a file, a folder, a pattern such as 'texts/*.txt', or 'shakespeare'",
        ),
        (b"", "The corpus {path} is empty."),
        (b"to be or not to be", "The training part has 16 tokens; batch 4 x context 64 needs at least 257."),
        (b"to be " * 60, "The validation part has 36 tokens; one window of context 64 needs 65."),
        (b"caf\xe9", "{path} is not UTF-8 text: byte 0xe9 at offset 3."),
    ],
    ids=["missing", "empty", "tiny", "tiny validation", "not text"],
)
def test_a_corpus_that_cannot_be_trained_on_is_refused(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_bytes(content)
    run = ["--run", str(tmp_path / "run"), *SMALL]
    assert message.format(path=path) in refusal(capsys, "--data", str(path), *run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--model", "gpt5"],
            "there is no model 'gpt5'; choose one of gpt2, gpt2-medium, gpt2-large, gpt2-xl, gpt2-nano",
        ),
        (["--steps", "0"], "steps is 0; expected at least 1"),
        (["--batch", "0"], "batch is 0; expected at least 1"),
        (["--warmup-steps", "12"], "warmup_steps is 12; expected at least 0 and below steps, which is 12"),
        (["--learning-rate", "-1"], "learning_rate is -1.0; expected above 0"),
        (["--final-learning-rate", "-1"], "final_learning_rate is -1.0; expected at least 0"),
        (
            ["--workers", "2", "--inner-steps", "5"],
            "inner_steps is 5; expected a divisor of steps, which is 12",
        ),
        (["--tokenizer", "words"], "cannot read the tokenizer words: No such file"),
        (["--device", "tpu:0"], "tpu"),
        (["--config", "nowhere.toml"], "there is no file nowhere.toml; give a TOML file of settings"),
        (["--resume", "nowhere"], "nowhere is not the folder of a run: there is no config.json in it"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_settings_are_refused(
    arguments: list[str], message: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["--data", str(text), "--run", str(tmp_path / "run"), *SMALL]
    if "--resume" in arguments:
        run = []
    assert message in refusal(capsys, *run, *arguments)


def test_a_refusal_is_also_a_json_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--data", str(tmp_path / "no.txt"), "--run", str(tmp_path / "run"), "--json"]) == 2
    shown = capsys.readouterr()
    record = json.loads(shown.out)
    assert record["error"] == "MissingCorpus"
    assert record["message"] in shown.err


def test_a_run_that_stands_there_is_not_overwritten(
    trained: tuple[Path, list[dict[str, Any]]], text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained[0]
    said = refusal(capsys, "--data", str(text), "--run", str(folder), *SMALL)
    assert f"{folder} already holds a run; give another folder, or --resume {folder} to continue it" in said


@pytest.mark.parametrize("mistake", [["--data", "no.txt"], ["--batch", "400"], ["--device", "tpu:0"]])
def test_a_refused_run_leaves_no_folder(
    mistake: list[str],
    tmp_path: Path,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for run in ([], ["--run", "mine"]):
        refusal(capsys, "--data", str(text), *SMALL, *run, *mistake)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not (tmp_path / "mine").exists()


def test_resuming_takes_no_settings(
    trained: tuple[Path, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, "--resume", str(trained[0]), "--steps", "24", "--batch", "2")
    assert "--resume uses the settings that the run began with; --steps, --batch cannot be given" in said


def test_a_checkpoint_of_another_model_is_refused(
    trained: tuple[Path, list[dict[str, Any]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = json.loads((trained[0] / "config.json").read_text()) | {"tokenizer": "bytes"}
    folder = RunFolder.create(tmp_path / "run", TrainingConfig().replaced(**settings))
    shutil.copytree(trained[0] / "checkpoints", folder.checkpoints)
    said = refusal(capsys, "--resume", str(folder.path))
    assert "is of another model: array 'optimizer.first.wte' is float32[" in said
    assert "in the checkpoint and float32[256, 128] in the model" in said


def test_the_next_free_folder_is_taken(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "gpt2-nano").mkdir(parents=True)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pcp.cli.train.train", interrupted)
    for number in (2, 3):
        assert main(["train", "--data", str(text), *SMALL]) == 130
        assert f"the run is in runs/gpt2-nano-{number}" in capsys.readouterr().err


def test_a_short_run_says_how_long_it_warms_up(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pcp.cli.train.train", interrupted)
    short = ["train", "--data", str(text), "--batch", "4", "--steps", "60"]
    assert main([*short, "--run", str(tmp_path / "shown")]) == 130
    assert "60 steps, 6 of them warm-up" in capsys.readouterr().err
    assert main([*short, "--run", str(tmp_path / "read"), "--json"]) == 130
    begin = json.loads(capsys.readouterr().out)
    assert begin.items() >= {"event": "schedule", "steps": 60, "warmup_steps": 6}.items()
    assert RunFolder.open(tmp_path / "read").config().warmup_steps == 6


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["train", "--help"])
    assert exit_.value.code == 0
    shown = capsys.readouterr().out
    assert "pcp train --resume runs/gpt2-nano            continue after an interruption" in shown
    assert "pcp train --workers 2 --inner-steps 50" in shown
    assert "(default: 2000)" in shown


@pytest.mark.share(2)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_checkpoint_and_its_exit_code(
    number: signal.Signals, code: int, text: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "pcp", "train", "--data", str(text), "--run", str(folder), "--json"]
    settings = [*SMALL[2:], "--steps", "100000"]
    with subprocess.Popen(
        [*command, *settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    ) as process:
        try:
            assert process.stdout is not None
            assert "schedule" in process.stdout.readline()
            assert "peak" in process.stdout.readline()
            seen = json.loads(process.stdout.readline())["step"]
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == code, said
    assert f"pcp: interrupted; pcp train --resume {folder} continues it" in said
    assert "Traceback" not in said
    step, state, _ = load_state(RunFolder.open(folder))
    assert step >= seen
    assert int(state["step"]) == step


def test_the_environment_names_the_device_where_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every command that has a device by default; what a file or the command line says counts more."""
    monkeypatch.setenv("PCP_DEVICE", "arena:cpu")
    for command in (generate, worker):
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        assert parser.get_default("device") == "arena:cpu"
    settings = tmp_path / "run.toml"
    settings.write_text("steps = 100\n")
    parser = argparse.ArgumentParser()
    shepherd.add_arguments(parser)
    folder = shepherd._folder(parser.parse_args([str(settings), "--run", str(tmp_path / "shared")]))
    assert folder.config().device == "arena:cpu"
    said = {"nobody": [], "a file": ["--config", str(settings)], "an option": ["--device", "cuda:0"]}
    settings.write_text('device = "torch:cpu"\n')
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    assert "cpu:0 or cuda:0 (default: arena:cpu)" in " ".join(parser.format_help().split())
    found = {
        who: train._folder(parser.parse_args(["--run", str(tmp_path / who), *words])).config()
        for who, words in said.items()
    }
    assert [each.device for each in found.values()] == ["arena:cpu", "torch:cpu", "cuda:0"]
    assert [each.tolerance for each in found.values()] == [0.0, 0.0, 1e-2]


@pytest.mark.parametrize(
    ("given", "tolerance", "seconds"),
    [
        ([], 0.0, 60.0),
        (["--device", "cuda:0"], 1e-2, 150.0),
        (["--device", "cuda:0", "--tolerance", "0", "--seconds", "20"], 0.0, 20.0),
        (["--device", "cuda:0", "--workers", "2"], 0.0, 60.0),
    ],
    ids=["cpu", "gpu", "gpu, said otherwise", "workers"],
)
def test_on_a_gpu_a_faster_step_is_searched_for(
    given: list[str], tolerance: float, seconds: float, tmp_path: Path
) -> None:
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    config = train._folder(parser.parse_args(["--run", str(tmp_path / "run"), *given])).config()
    assert (config.tolerance, config.plan_seconds) == (tolerance, seconds)


@pytest.mark.parametrize(
    ("validated", "prompt"),
    [
        ("ing Tom's $HOME is `here`, on", """ --prompt='Tom'"'"'s $HOME is'"""),
        ("cut\n-x\ncut\n", " --prompt=-x"),
        ("\n\n   \n", ""),
    ],
)
def test_the_prompt_that_is_proposed_is_of_the_text(validated: str, prompt: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", TrainingConfig())
    assert train._prompt(folder) == ""
    tokenizer = CharacterTokenizer.of_text(validated)
    folder.write_tokenizer(tokenizer)
    tokens = tokenizer.encode(validated)
    write_token_file(folder.token_file, tokens, tokenizer.vocabulary_size, training_fraction=0.0)
    assert train._prompt(folder) == prompt
