"""Options of `pcp train` that other files' tests do not reach: parts of a batch, trackers, odd corpora."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pcp.cli import main
from pcp.cli import train as command
from pcp.errors import PCPError
from pcp.training.display.metrics import MetricSink, read_metrics
from pcp.training.run_folder import RunFolder

TINY = ["--steps", "2", "--batch", "2", "--warmup-steps", "1", "--run", "run"]


class Noting(MetricSink):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.closed = False

    def write(self, record: Any) -> None:
        self.records.append(dict(record))

    def close(self) -> None:
        self.closed = True


def test_a_text_of_one_line_in_parts_with_trackers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("line.txt").write_text("no line break stands in here " * 40)
    asked: list[Any] = []
    tracker = Noting()
    monkeypatch.setattr(command, "open_trackers", lambda *given: asked.append(given[1:]) or [tracker])
    monkeypatch.setattr(command, "check_trackers", lambda *given: asked.append(given))
    options = ["--data", "line.txt", "--accumulate", "2", "--tensorboard", "--wandb", "planet", "--json"]
    assert main(["train", *options, *TINY]) == 0
    assert asked == [(True, True), (True, "planet")]
    assert RunFolder(Path("run")).config().accumulate == 2
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed[-1]["event"] == "finished"
    assert tracker.records == read_metrics(Path("run/metrics.jsonl"))
    assert tracker.closed
    assert Path("run/sample.txt").read_text().strip()


def test_a_missing_package_is_said_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    Path("line.txt").write_text("no line break stands in here " * 40)
    assert main(["train", "--data", "line.txt", "--tokenizer", "bpe", *TINY]) == 2
    assert "pip install 'planetary-compute-protocol[tokenizers]'" in capsys.readouterr().err
    assert not Path("run").exists()


@pytest.mark.parametrize("option", [["--tensorboard"], ["--wandb", "planet"]], ids=["tensorboard", "wandb"])
def test_a_missing_tracker_is_said_before_the_run_is_made(
    option: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    package = option[0].removeprefix("--")
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["train", *option, *TINY]) == 2
    assert f"pip install 'planetary-compute-protocol[{package}]'" in capsys.readouterr().err
    assert not Path("run").exists()


def test_an_engine_that_is_not_installed_is_said_before_the_run_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["train", "--workers", "2", "--engine", "ray", *TINY]) == 2
    said = capsys.readouterr().err
    assert "Training on a Ray cluster needs the package 'ray'" in said
    assert "pip install 'planetary-compute-protocol[ray]'" in said
    assert not Path("run").exists()


def test_an_engine_for_workers_wants_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    assert main(["train", "--engine", "ray", *TINY]) == 2
    assert (
        "--engine ray is for a Shepherd and Workers, and run trains in one process" in capsys.readouterr().err
    )
    assert not Path("run").exists()


def test_workers_do_not_exchange_on_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    arguments = ["--workers", "2", "--algorithm", "noloco", "--inner-steps", "1", "--engine", "ray"]
    assert main(["train", *arguments, *TINY]) == 2
    assert "--engine ray has no exchanges between workers" in capsys.readouterr().err
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--memory", "bananas"],
            "the memory limit 'bananas' is not a positive number of bytes; give one like",
        ),
        (
            ["--memory", "8GiB", "--workers", "2", "--inner-steps", "1"],
            "memory is '8GiB', but Workers do not fit their steps into memory; leave it out, or train in one process",
        ),
    ],
)
def test_memory_that_cannot_be_kept_to_is_said_before_the_run_is_made(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *options, *TINY]) == 2
    assert message in capsys.readouterr().err
    assert not Path("run").exists()


def test_an_address_wants_its_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--workers", "2", "--address", "auto", *TINY]) == 2
    assert "--address auto is that of a Ray cluster; give --engine ray with it" in capsys.readouterr().err
    assert not Path("run").exists()


def test_groups_are_options_and_settings_and_frozen_parameters_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("line.txt").write_text("no line break stands in here " * 40)
    Path("run.toml").write_text('[groups]\n"*bias" = { decay = 0.0, rate = 0.5 }\n"embed*" = "frozen"\n')
    taken = []
    for extra in (
        ["--group", "*bias decay=0 rate=0.5", "--group", "embed* frozen"],
        ["--config", "run.toml"],
    ):
        parsed = main_arguments(["train", *extra])
        taken.append(parsed)
    assert taken[0] == taken[1] == {"*bias": {"decay": 0.0, "rate": 0.5}, "embed*": "frozen"}
    for wrong in ("*bias", "decay=0", "*bias decay=x", "*bias dacay=0", "*bias decay=-1", "a b frozen", ""):
        assert main(["train", "--group", wrong, *TINY]) == 2
        said = capsys.readouterr().err
        assert f"the group is {wrong!r}; expected a pattern of names, then rate, a factor" in said
    assert main(["train", "--data", "line.txt", "--group", "embde* frozen", *TINY]) == 2
    assert "the group 'embde*' has none of the" in capsys.readouterr().err
    assert main(["train", "--dropout", *TINY]) == 2
    assert "dropout was asked for, but model is gpt2-nano, which is no folder" in capsys.readouterr().err
    assert not Path("run").exists()


def main_arguments(words: list[str]) -> Any:
    """The groups of the run that a command would begin."""
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "create", lambda _, config: found.append(config.groups) or _stop())
        assert main(words) == 2
    return found[0]


def _stop() -> None:
    raise PCPError("that was all")
