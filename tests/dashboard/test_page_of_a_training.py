"""`pcp train --web`: the page of a run of one process, for as long as it goes on."""

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from pcp.cli import main

pytest.importorskip("uvicorn", reason="the extra `web` is not installed")


def test_a_training_shows_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: dict[str, Any] = {}

    def train(_recipe: Any, _folder: Any, report: Any) -> None:
        report({"step": 1, "loss": 4.25, "tokens_per_second": 10.0})
        printed = ""
        while '"event": "web"' not in printed:
            time.sleep(0.05)
            printed += capfd.readouterr().out
        [line] = [line for line in printed.splitlines() if '"web"' in line]
        seen["address"] = json.loads(line)["address"]
        with urllib.request.urlopen(f"http://{seen['address']}/api/run", timeout=20) as answer:
            seen["run"] = json.load(answer)
        raise KeyboardInterrupt

    monkeypatch.setattr("pcp.cli.train.train", train)
    text = tmp_path / "a.txt"
    text.write_text("to be or not to be, that is the question\n" * 40, encoding="utf-8")
    words = [
        "--data",
        str(text),
        "--run",
        str(tmp_path / "run"),
        "--steps",
        "5",
        "--json",
        "--web",
        "127.0.0.1:0",
    ]
    assert main(["train", *words]) == 130
    assert (seen["run"]["step"], seen["run"]["loss"], seen["run"]["address"]) == (1, 4.25, "")
    with pytest.raises(urllib.error.URLError):  # it ended with the run
        urllib.request.urlopen(f"http://{seen['address']}/", timeout=5)


def test_a_token_needs_a_page(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "a.txt"
    text.write_text("to be or not to be, that is the question\n" * 40, encoding="utf-8")
    words = ["--data", str(text), "--run", str(tmp_path / "run"), "--steps", "5", "--token-file", "token"]
    assert main(["train", *words]) == 2
    assert "--token-file is for a page; give --web 127.0.0.1:8080 too" in capfd.readouterr().err
