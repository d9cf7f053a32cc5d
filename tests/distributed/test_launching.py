"""How a Worker is kept running: units and jobs that are read by what they are for, and a process for each device."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pcp.cli import main
from pcp.distributed import launching
from pcp.distributed.launching import (
    DevicesUnknown,
    NotEnoughKeys,
    run_on_devices,
    slurm_script,
    systemd_unit,
)
from pcp.distributed.wire import Authority

AWKWARD = ["/usr/bin/env", "a b", '50%"', "$HOME", "\\", "it's", "#x", ""]


@pytest.fixture
def keys(tmp_path: Path) -> list[Path]:
    authority = Authority.create(tmp_path / "keys")
    made = [tmp_path / f"{name}.pem" for name in ("ada", "bob")]
    for path in made:
        authority.issue(path.stem, "worker").save_bundle(path)
    return made


def test_a_unit_that_systemd_takes(tmp_path: Path) -> None:
    unit = systemd_unit("ada", AWKWARD, tmp_path)
    assert "Restart=on-failure\n" in unit
    assert "RestartPreventExitStatus=2\n" in unit
    assert r'"50%%\""' in unit
    assert " $$HOME " in unit
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    file = tmp_path / "pcp-ada.service"
    file.write_text(unit)
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "pcp-ada" in line]
    assert (done.returncode, said) == (0, []), done.stderr


def job(tmp_path: Path, source: str, device: str = "cpu:0") -> tuple[Path, dict[str, str]]:
    """A job of a worker that is a line of the shell, without pauses, beside a `scontrol` that says what it is asked for."""
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "scontrol $*"\n')
    (tmp_path / "scontrol").chmod(0o755)
    script = slurm_script("ada", ["bash", "-c", source], tmp_path, [device])
    assert script.count("pause=5") == 2
    file = tmp_path / "job.sh"
    file.write_text(script.replace("pause=5", "pause=0"))
    assert subprocess.run(["bash", "-n", file], check=True).returncode == 0
    return file, os.environ | {"SLURM_JOB_ID": "42", "PATH": f"{tmp_path}:{os.environ['PATH']}"}


@pytest.mark.parametrize("code", [0, 2])
def test_a_job_starts_its_worker_again_until_that_is_of_no_use(tmp_path: Path, code: int) -> None:
    counting = f"echo x >> {tmp_path}/starts; [ $(wc -l < {tmp_path}/starts) -lt 3 ] && exit 1; exit {code}"
    file, environment = job(tmp_path, counting)
    done = subprocess.run(["bash", file], env=environment, capture_output=True, text=True, timeout=20)
    assert done.returncode == code
    assert done.stdout.splitlines() == ["the worker ended with code 1; it is started again in 0 s"] * 2


def test_a_job_whose_time_is_up_says_goodbye_and_comes_back(tmp_path: Path) -> None:
    waiting = "trap 'echo goodbye; exit 143' TERM; echo begun; while :; do read -t 0.05 <> <(:) || :; done"
    file, environment = job(tmp_path, waiting)
    with subprocess.Popen(["bash", file], env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.terminate()
        assert process.stdout.read().splitlines() == ["goodbye", "scontrol requeue 42"]
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("asked", "gpus"),
    [
        (["--device", "cpu:0", "--key", "ada.pem"], None),
        (["--device", "arena:cpu", "--key", "ada.pem"], None),
        (["--device", "cuda:0", "--key", "ada.pem"], 1),
        (["--devices", "cuda:0,cuda:1", "--key", "ada.pem", "--key", "bob.pem"], 2),
        (["--devices", "all", "--key", "ada.pem", "--key", "bob.pem"], 2),
    ],
)
def test_gpus_are_asked_for_where_they_are_used(
    asked: list[str],
    gpus: int | None,
    keys: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(keys[0].parent)
    assert main(["worker", "--connect", "x:1", *asked, "--print", "slurm"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "--gpus" in line]
    assert lines == ([] if gpus is None else [f"#SBATCH --gpus-per-task={gpus}"])


def test_what_is_printed_runs_from_anywhere(
    keys: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PCP_CACHE_DIR", "/a cache")
    asked = ["worker", "--connect", "@run/address.json", "--key", "ada.pem", "--cpus", "1,0"]
    assert main([*asked, "--print", "systemd"]) == 0
    unit = capsys.readouterr().out
    command = (
        f"ExecStart={sys.executable} -m pcp worker --connect @{tmp_path}/run/address.json --key {keys[0]} "
        f"--device cpu:0 --cpus 0,1 --folder {tmp_path}/pcp-ada\n"
    )
    assert command in unit
    assert 'Environment="PCP_CACHE_DIR=/a cache"\n' in unit
    assert main([*asked, "--print", "systemd", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"systemd": unit}
    assert main([*asked, "--print", "slurm"]) == 0
    assert f"    {command.partition('=')[2].strip()} &\n" in capsys.readouterr().out


def test_each_device_needs_a_key_of_its_own(keys: list[Path], tmp_path: Path) -> None:
    with pytest.raises(NotEnoughKeys, match=r"3 devices \(cuda:0, cuda:1, cuda:2\) and keys of 2 workers"):
        run_on_devices(["cuda:0", "cuda:1", "cuda:2"], keys, [], tmp_path)
    with pytest.raises(NotEnoughKeys, match="keys of 1 workers"):
        run_on_devices(["cuda:0", "cuda:1"], [keys[0], keys[0]], [], tmp_path)


def test_one_key_for_one_worker(keys: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["worker", "--connect", "127.0.0.1:1", "--key", str(keys[0]), "--key", str(keys[1])]
    assert main(words) == 2
    assert "2 keys were given for one worker; give one, or --devices all" in capsys.readouterr().err


def test_a_process_for_a_gpu_sees_that_one_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert launching._confined("cuda:1") == ("cuda:0", {"CUDA_VISIBLE_DEVICES": "1"})
    assert launching._confined("cpu:0") == ("cpu:0", {})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,7")
    assert launching._confined("cuda:1") == ("cuda:0", {"CUDA_VISIBLE_DEVICES": "7"})
    with pytest.raises(DevicesUnknown, match=r"cuda:2 is not here: CUDA_VISIBLE_DEVICES shows 2 \(2,7\)"):
        launching._confined("cuda:2")


def test_workers_that_end_are_said(
    keys: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text('#!/bin/sh\ncase "$*" in *ada.pem*) echo no such run; exit 2;; esac\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    assert run_on_devices(["cpu:0", "cpu:1"], keys, ["--connect", "x:1"], tmp_path, as_json=True) == 2
    shown = capsys.readouterr()
    assert "pcp: ada ended with code 2: no such run; it is not started again\n" in shown.err
    assert "pcp: bob has finished\n" in shown.err
    assert '{"event": "process", "name": "bob", "code": 0, "restarted": false}\n' in shown.out
