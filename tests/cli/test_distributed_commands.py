"""`pcp shepherd`, `pcp worker` and `pcp keys`: what they teach, and what they refuse before any connection is made."""

import json
import os
from pathlib import Path

import pytest

from pcp.cli import main
from pcp.cli.keys import identity_of
from pcp.distributed.shepherd.new_run import NothingToSignWith, new_run
from pcp.distributed.wire import Authority, Credentials
from pcp.training.recipes.config import TrainingConfig
from pcp.training.run_folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that was just begun."""
    config = TrainingConfig(workers=2, steps=100, inner_steps=50, warmup_steps=10)
    return RunFolder.create(tmp_path / "run", config).path


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says when it was given something wrong."""
    assert main([*arguments, "--json"]) == 2
    shown = capsys.readouterr()
    message: str = json.loads(shown.out)["message"]
    assert shown.err == f"pcp: {message}\n"
    return message


@pytest.mark.parametrize(
    ("command", "lessons"),
    [
        (
            "shepherd",
            [
                "which continues where it stopped",
                "pcp keys worker",
                "exactly once",
                "0.0.0.0:7433",
                "exit codes: 0",
            ],
        ),
        (
            "worker",
            [
                "receives programs, never code",
                "Keep it secret",
                "tries again for a day",
                "--device cuda:0",
            ],
        ),
        ("keys", ["valid for one year", "authority.key", "notices within a second", "pcp worker --connect"]),
    ],
)
def test_help_teaches(command: str, lessons: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert [lesson for lesson in lessons if lesson not in shown] == []


def test_a_key_is_made_once(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "alice.pem"
    arguments = ["keys", "worker", "alice", "--run", str(run), "--out", str(path)]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"{path}: the key of worker alice; keep it secret\n"
    assert Credentials.load_bundle(path).name == "alice"
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    assert "exists already; a worker may be using it" in complaint(arguments, capsys)
    assert path.read_bytes() == before


def test_the_key_file_has_the_name_of_the_worker(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "worker", "bob", "--run", str(run)]) == 0
    assert (tmp_path / "bob.pem").exists()


def test_keys_are_revoked_by_name(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        main(["keys", "worker", "alice", "--run", str(run), "--out", str(tmp_path / f"{number}.pem")])
    capsys.readouterr()
    assert main(["keys", "revoke", "alice", "--run", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"revoked": 2, "worker": "alice"}
    serial = Credentials.load_bundle(tmp_path / "1.pem").serial
    assert serial in Authority.load(run / "keys").revocations
    assert "no certificate was issued to 'nobody'" in complaint(
        ["keys", "revoke", "nobody", "--run", str(run)], capsys
    )


@pytest.mark.parametrize("name", ["", "../alice", "a b", "x" * 65])
def test_a_name_that_cannot_be_used(run: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = complaint(["keys", "worker", name, "--run", str(run), "--out", "k.pem"], capsys)
    assert "cannot be the name of a worker" in message
    assert not Path("k.pem").exists()


def test_a_shepherd_goes_on_without_the_authoritys_key_and_begins_no_run(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(run)
    assert main(["keys", "shepherd", "hub.example", "--run", str(run)]) == 0
    assert "keys/authority.key may now be kept elsewhere" in capsys.readouterr().out
    authority = Authority.load(run / "keys")
    (run / "keys" / "authority.key").unlink()
    credentials, _, sign = identity_of(folder, "127.0.0.1")
    assert (credentials.name, sign) == ("shepherd", None)
    assert credentials.is_signed(b"programs", authority.sign(b"programs"))
    assert "cannot read the authority" in complaint(["keys", "worker", "a", "--run", str(run)], capsys)
    assert not (run / "keys" / "authority.key").exists()
    with pytest.raises(NothingToSignWith, match=r"begin the run where keys/authority\.key is"):
        new_run(folder, *(None,) * 5)  # type: ignore[arg-type]  # nothing else is looked at


def test_keys_of_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not the folder of a run" in complaint(["keys", "worker", "a", "--run", str(tmp_path)], capsys)


@pytest.mark.parametrize("address", ["", "localhost", "1.2.3.4:", "1.2.3.4:port", "1.2.3.4:70000", ":80"])
def test_an_address_to_listen_on_that_is_none(
    run: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["shepherd", str(run), "--listen", address]) == 2
    assert "is not an address; give HOST:PORT, for example 0.0.0.0:7433" in capsys.readouterr().err


def test_a_run_that_goes_on_cannot_be_cut_anew(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = complaint(["shepherd", str(run), "--workers", "3"], capsys)
    assert "already holds a run, which is planned for 2 workers; give it without --workers" in message


def test_a_run_that_exists_is_not_begun_again(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "run.toml"
    plan.write_text("steps = 1000\n")
    message = complaint(["shepherd", str(plan), "--run", str(run)], capsys)
    assert f"{run} already holds a run; give another folder, or pcp shepherd {run} to continue it" in message


def test_a_distributed_run_is_not_planned_for_no_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "run.toml"
    plan.write_text("steps = 1000\nworkers = 0\n")
    message = complaint(["shepherd", str(plan), "--run", str(tmp_path / "run")], capsys)
    assert (
        "workers is 0; expected at least 1 for a distributed run, or no such setting: any number" in message
    )
    assert not (tmp_path / "run").exists()


def test_a_run_without_its_corpus_leaves_its_folder_to_the_next_try(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "run.toml"
    plan.write_text(f'workers = 2\ndata = "{tmp_path / "none.txt"}"\n')
    for _ in range(2):
        message = complaint(["shepherd", str(plan), "--run", str(tmp_path / "run")], capsys)
        assert "There is no corpus at" in message
    assert not (tmp_path / "run").exists()


def test_a_shepherd_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no file" in complaint(["shepherd", str(tmp_path / "no.toml")], capsys)
    assert "is not the folder of a run" in complaint(["shepherd", str(tmp_path)], capsys)


def test_a_worker_without_a_key_or_with_a_broken_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["worker", "--connect", "127.0.0.1:9", "--key"]
    assert "cannot read the key file" in complaint([*arguments, str(tmp_path / "no.pem")], capsys)
    (tmp_path / "bad.pem").write_text("nothing")
    assert "holds 0 private keys and 0 certificates" in complaint(
        [*arguments, str(tmp_path / "bad.pem")], capsys
    )


def test_a_worker_without_an_address(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = str(tmp_path / "a.pem")
    main(["keys", "worker", "a", "--run", str(run), "--out", key])
    capsys.readouterr()
    assert "'nowhere' is not an address; give HOST:PORT" in complaint(
        ["worker", "--connect", "nowhere", "--key", key], capsys
    )
    (tmp_path / "address.json").write_text("{}")
    found = complaint(["worker", "--connect", f"@{tmp_path / 'address.json'}", "--key", key], capsys)
    assert "does not hold the address of a Shepherd" in found


@pytest.mark.parametrize("cpus", ["", "a", "0,", "0-3", "-1"])
def test_a_list_of_processors_that_is_none(cpus: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "--connect", "127.0.0.1:9", "--key", "k", f"--cpus={cpus}"]) == 2
    assert "is not a list of processors; give numbers separated by commas" in capsys.readouterr().err


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="only Linux keeps a process to some processors"
)
def test_processors_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    before = os.sched_getaffinity(0)
    message = complaint(["worker", "--connect", "127.0.0.1:9", "--key", "k", "--cpus", "1000"], capsys)
    assert "--cpus 1000 names no processor that this process may use: Invalid argument; it may use" in message
    assert os.sched_getaffinity(0) == before


def test_a_device_that_is_not_there(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = str(tmp_path / "a.pem")
    main(["keys", "worker", "a", "--run", str(run), "--out", key])
    capsys.readouterr()
    arguments = ["worker", "--connect", "127.0.0.1:9", "--key", key, "--device", "cuda:7"]
    assert "'cuda:7' is not a device of this machine" in complaint(arguments, capsys)


def test_a_worker_listens_at_an_address_and_by_itself(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = str(tmp_path / "a.pem")
    main(["keys", "worker", "a", "--run", str(run), "--out", key])
    capsys.readouterr()
    arguments = ["worker", "--connect", "127.0.0.1:9", "--key", key, "--listen"]
    assert "'7434' is not an address to listen on; give HOST:PORT" in complaint([*arguments, "7434"], capsys)
    several = complaint([*arguments, "0.0.0.0:7434", "--devices", "cpu:0"], capsys)
    assert several == "--listen is for one process; leave it out with --devices"
    assert main([*arguments, "0.0.0.0:7434", "--print", "systemd"]) == 0
    assert "--listen 0.0.0.0:7434" in capsys.readouterr().out


def test_data_in_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = ["worker", "--connect", "127.0.0.1:9", "--key", "none.pem", "--data"]
    for absent in (str(tmp_path / "absent"), f"file://{tmp_path}/absent"):
        message = complaint([*there, absent], capsys)
        assert "absent: there is no such folder; give one that `pcp data shard` wrote, a URL" in message
    assert "cannot read the key file" in complaint([*there, str(tmp_path)], capsys)
