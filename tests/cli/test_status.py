"""`pcp status`: a run from outside, as text and as JSON; what is neither a run nor an address."""

import json
from pathlib import Path

import pytest
from tests.dashboard.written import HOSTILE, written_run

from pcp.cli import main


def test_a_run_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written_run(tmp_path / "run")
    assert main(["status", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("run: running\n")
    for words in (
        "50/200",
        "round 1",
        "1 lost, 1 training, 1 waiting",
        "sent 5.0 MB",
        "2 updates refused: the lease had ended",
        "14 connections refused: CertificateRefused; the latest: 10.0.0.9: <img",
        "3 planned: path 0123: 0.45 of the plain time",
    ):
        assert words in " ".join(shown.split())


def test_a_run_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written_run(tmp_path / "run")
    assert main(["status", str(tmp_path / "run"), "--json"]) == 0
    run, *workers = map(json.loads, capsys.readouterr().out.splitlines())
    assert (run["event"], run["state"], run["round"]) == ("run", "running", 1)
    assert [(each["worker"], each["state"]) for each in workers] == [
        ("w0", "training"),
        ("w1", "waiting"),
        ("w2", "lost"),
    ]
    assert workers[2]["reason"] == HOSTILE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["here"], "here is neither the folder of a run nor an address; give runs/NAME, or HOST:PORT"),
        (["."], "is not the folder of a run: there is no config.json"),
        (["127.0.0.1:1"], "no answer from http://127.0.0.1:1/api/run"),
        (["here", "--token-file", "x"], "--token-file is for a page; give --web 127.0.0.1:8080 too"),
        (["run", "--web", "127.0.0.1:0", "--token-file", "none"], "cannot read a token from none"),
        (["run", "--web", "0.0.0.0:0", "--token-file", "token"], "in the clear to 0.0.0.0"),
    ],
)
def test_what_cannot_be_shown(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("uvicorn", reason="the extra `web` is not installed")
    monkeypatch.chdir(tmp_path)
    written_run(tmp_path / "run")
    (tmp_path / "token").write_text("0123456789abcdef")
    assert main(["status", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_without_the_packages_of_the_page_the_message_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("pcp.training.extras.importlib.import_module", absent)
    from pcp.cli.status import check_web
    from pcp.training.extras import MissingExtra

    with pytest.raises(MissingExtra, match=r"The page of a run needs .* 'planetary-compute-protocol\[web\]'"):
        check_web()


def test_trouble_that_is_told_again_and_again_is_shown_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written_run(tmp_path / "run")
    told = json.dumps({"event": "trouble", "message": "the disk is full", "time": 1.0}) + "\n"
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write(3 * told)
    assert main(["status", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.count("disk is full") == 1
    assert main(["status", str(tmp_path / "run")]) == 0
    assert "trouble: 3 times, the disk is full" in capsys.readouterr().out
