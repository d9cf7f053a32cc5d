"""Mistakes of the first hour on the command line: what each is told. All run in this process, none trains or compiles."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pcp
from pcp.cli import main

OPTIONS = [
    ("tarin", "COMMAND is 'tarin' (did you mean 'train'?); choose one of train, data,"),
    ("--versoin", "there is no option --versoin (did you mean '--version'?)"),
    ("train --lerning-rate 1", "there is no option --lerning-rate (did you mean '--learning-rate'?); `pcp train --help`"),
    ("train --batch-size 4", "there is no option --batch-size (did you mean '--batch'?)"),
    ("train --steps ten", "argument --steps: 'ten' is no whole number"),
    ("train --tolerance low", "argument --tolerance: 'low' is no number; write one as 0.01 or 1e-2"),
    ("train --engine slurm", "--engine is 'slurm'; choose one of processes, ray"),
    ("plan step.pcp --tolernace 1e-2", "there is no option --tolernace (did you mean '--tolerance'?)"),
    ("plan", "pcp plan needs "),
    ("kernels lst", "action is 'lst' (did you mean 'list'?); choose one of list, verify,"),
    ("kernels", "pcp kernels needs action (one of list, verify,"),
    ("doctor now", "'now' is one argument too many; `pcp doctor --help` shows what it takes"),
    ("shepherd odd.toml --listen foo", "'foo' is not an address; give HOST:PORT, for example 0.0.0.0:7433"),
    ("worker --connect 127.0.0.1:1 --key a.txt --memory lots", "'lots' is not a size; give a number and a unit"),
]  # fmt: skip

FILES = [
    ("train --run a.txt", "cannot write a.txt: a file stands there; expected a folder, or nothing"),
    ("train --resume nowhere", "nowhere is not the folder of a run: there is no config.json in it"),
    ("train --resume a.txt", "a.txt is not the folder of a run"),
    ("train --data missing.txt", "There is no corpus at missing.txt."),
    ("train --data empty.txt", "The corpus empty.txt is empty."),
    ("train --model gpt3", "there is no model 'gpt3'"),
    ("train --model missing.pcp", "cannot read the loss missing.pcp"),
    ("train --model step.pcp", "step.pcp is not a loss: it returns f32[4]; a loss returns one floating-point scalar"),
    ("train --config missing.toml", "there is no file missing.toml; give a TOML file of settings"),
    ("train --config bad.toml", "bad.toml is not a TOML file"),
    ("train --config odd.toml", "there is no setting 'lerning_rate' (did you mean 'learning_rate'?)"),
    ("train --device cdua:0", "'cdua:0' is not a device of this machine; choose one of: cpu:0"),
    ("train --steps -1", "steps is -1; expected at least 1"),
    ("train --algorithm streaming", "a single process merges nothing; leave it out, or add --workers 2"),
    ("data shard a.txt --out empty.txt", "--out empty.txt is a file; expected a folder"),
    ("generate nowhere", "there is no folder nowhere; give the folder of a run"),
    ("generate step.pcp", "step.pcp is a program, without weights and tokenizer; `pcp run` runs it on arrays"),
    ("run missing.pcp", "cannot read the program missing.pcp: there is no such file or folder"),
    ("run folder", "cannot read the program folder: it is a folder; expected a file"),
    ("run a.txt", "a.txt is not a program: it begins with b'hello world"),
    ("run step.pcp", "lacks 2 of the program's 2 arguments: x f32[4,3], w f32[3,2]"),
    ("run step.pcp --inputs x.npz", "argument x has shape (5, 3); the plan expects f32[4,3]"),
    ("run step.pcp --inputs missing.npz", "cannot read arrays from missing.npz"),
    ("inspect open.pcp --at bathc=3", "the sizes (bathc=3) were given, which lacks batch"),
    ("inspect open.pcp --at batch", "--at 'batch' is no size; expected a name and a number, as --at length=512"),
    ("plan step.pcp --memory lots", "'lots' is not a size; give a number and a unit, such as 8GiB"),
    ("plan step.pcp --path missing.json", "cannot read the path missing.json: there is no such file or folder"),
    ("plan step.pcp --path a.txt", "a.txt: this is not a path"),
    ("kernels verify missing", "missing has no file kernel.toml; expected a folder with one"),
    ("profile merge missing", "cannot read the measurements missing: there is no such file or folder"),
    ("profile export no/such/file", "cannot write no/such/file: there is no such file or folder"),
    ("shepherd missing", "there is no file missing; give a TOML file of settings"),
    ("worker --connect 127.0.0.1:1 --key missing.pem", "cannot read the key file missing.pem"),
    ("worker --connect 127.0.0.1:1 --key a.txt", "a.txt holds 0 private keys and 0 certificates"),
    ("status nowhere", "nowhere is neither the folder of a run nor an address"),
    ("status 127.0.0.1:1", "no answer from http://127.0.0.1:1/api/run"),
    ("keys worker alice --run folder", "folder is not the folder of a run"),
]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with files of several kinds, in which commands are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PCP_DEVICE", "cpu:0")
    pcp.trace(lambda x, w: (x @ w).sum(axis=1), pcp.spec((4, 3), "f32"), pcp.spec((3, 2), "f32")).save(
        "step.pcp"
    )
    pcp.trace(lambda x: x * 2, pcp.spec(("batch", 3), "f32")).save("open.pcp")
    rng = np.random.default_rng()
    np.savez("x.npz", x=rng.random((5, 3), np.float32), w=rng.random((3, 2), np.float32))
    texts = {
        "a.txt": "hello world\n",
        "empty.txt": "",
        "bad.toml": "x = [\n",
        "odd.toml": "lerning_rate = 1\n",
    }
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8")
    Path("folder").mkdir()
    yield tmp_path
    assert not list(tmp_path.glob("runs/*")), "a mistake left the folder of a run"


@pytest.mark.parametrize("table", [OPTIONS, FILES], ids=["options", "files"])
@pytest.mark.usefixtures("files")
def test_what_is_told(table: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for line, text in table:
        code = main(line.split())
        told = capsys.readouterr()
        if code != 2 or text not in told.err or told.out or "Traceback" in told.err:
            wrong.append((line, code, told.err, told.out))
    assert wrong == []


@pytest.mark.usefixtures("files")
def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--run", "run", "--steps", "-1"]) == 2
    from pcp.training.recipes.prepare import configured
    from pcp.training.run_folder import RunFolder

    RunFolder.create(Path("run"), configured({"steps": 1}))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["status", "run", "--web", f"127.0.0.1:{port}"]) == 2
    assert f"port {port} on 127.0.0.1 is in use by another program" in capsys.readouterr().err


@pytest.mark.usefixtures("files")
def test_mistakes_are_lines_of_json_where_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for line, error in (
        ("run missing.pcp", "UnreadableFile"),
        ("train --config odd.toml", "InvalidTrainingConfig"),
        ("plan step.pcp --tolernace 1", "WrongCommandLine"),
    ):
        assert main([*line.split(), "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"] == error
