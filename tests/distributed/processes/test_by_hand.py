"""A Shepherd and Workers started by hand, on ports and with keys of their own: who is let in, who is not, and who waits."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from pcp.cli import main
from pcp.distributed.wire import Authority
from tests.distributed.processes.command import Command, is_round
from tests.distributed.waiting import wait_until

STEPS = 320
TOML = """
model = "gpt2-nano"
data = "{corpus}"
workers = 2
steps = {steps}
inner_steps = 4
batch = 2
warmup_steps = 4
evaluate_every = 0
checkpoint_every = 8
"""


@pytest.fixture
def plan_file(tmp_path: Path, corpus: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(TOML.format(corpus=corpus, steps=STEPS), encoding="utf-8")
    return path


def key_of(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Make a key file as an operator does."""
    path = run.parent / f"{name}.pem"
    assert main(["keys", "worker", name, "--run", str(run), "--out", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"worker": name, "key": str(path)}
    return str(path)


def start_worker(address: str, key: str, folder: Path, *more: str) -> Command:
    return Command(["worker", "--connect", address, "--key", key, *more], folder)


def fails(command: Command) -> str:
    """The message of a command that was given something wrong."""
    with command:
        assert command.end() == 2, command.said
        [error] = [record["message"] for record in command.records if "error" in record]
        assert f"pcp: {error}" in command.said
        assert "Traceback" not in command.said
    return str(error)


@pytest.mark.runs
def test_who_is_let_in_who_is_not_and_who_waits(
    tmp_path: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with Command(["shepherd", str(plan_file), "--run", str(run)], tmp_path) as shepherd:
        address = shepherd.wait_for(lambda record: record.get("event") == "listening")["address"]
        assert f"pcp: the Shepherd of {run} listens on {address}" in shepherd.said

        taken = fails(
            Command(
                ["shepherd", str(plan_file), "--run", str(tmp_path / "other"), "--listen", address],
                tmp_path,
            )
        )
        assert f"port {address.rpartition(':')[2]} on 127.0.0.1 is in use by another program" in taken
        assert f"To go on: pcp shepherd {tmp_path / 'other'} --listen HOST:PORT" in taken
        absent = fails(
            Command(["shepherd", str(tmp_path / "other"), "--listen", "203.0.113.9:7433"], tmp_path)
        )
        assert "give an address of this machine, or 0.0.0.0, and a port above 1023" in absent
        assert f"To go on: pcp shepherd {tmp_path / 'other'} --listen HOST:PORT" in absent
        locked = fails(Command(["shepherd", str(run)], tmp_path))
        assert "is held by another Shepherd; stop it" in locked

        Authority.create(tmp_path / "elsewhere").issue("mallory").save_bundle(tmp_path / "mallory.pem")
        foreign = fails(start_worker(address, str(tmp_path / "mallory.pem"), tmp_path))
        assert f"the certificate of {address} is not acceptable" in foreign
        assert "the key file belongs to another run, or this is not its Shepherd" in foreign

        carol = key_of("carol", run, capsys)
        assert main(["keys", "revoke", "carol", "--run", str(run)]) == 0
        assert capsys.readouterr().out == "carol: 1 certificates revoked\n"
        revoked = fails(start_worker(address, carol, tmp_path))
        assert "was revoked; ask for a new key file" in revoked

        shepherd.process.send_signal(signal.SIGTERM)
        assert shepherd.end() == 128 + signal.SIGTERM
        assert f"pcp: interrupted; pcp shepherd {run} continues it" in shepherd.said

    with (
        start_worker(address, key_of("alice", run, capsys), tmp_path) as alice,
        start_worker(f"@{run / 'address.json'}", key_of("dave", run, capsys), tmp_path) as dave,
    ):
        wait_until(lambda: "no connection to the Shepherd (cannot reach a Shepherd at" in alice.said)
        with Command(["shepherd", str(run)], tmp_path) as shepherd:
            again = shepherd.wait_for(lambda record: record.get("event") == "listening")["address"]
            assert again == address
            for name in ("alice", "dave"):
                shepherd.wait_for(lambda record, name=name: is_lease_of(name, record))
            dave.process.send_signal(signal.SIGTERM)
            assert dave.end() == 128 + signal.SIGTERM
            lost = shepherd.wait_for(lambda record: record.get("state") == "lost")
            assert (lost["worker"], lost["reason"]) == ("dave", "it left: the worker received SIGTERM")

            (run / "paused").touch()  # alice does not do everything before bob has begun
            with start_worker(address, key_of("bob", run, capsys), tmp_path) as bob:
                bob.wait_for(lambda record: record.get("reason") == "ready")
                (run / "paused").unlink()
                shepherd.wait_for(lambda record: is_lease_of("bob", record))
                assert shepherd.end() == 0, shepherd.said
                assert alice.end() == bob.end() == 0
                for name, worker in (("alice", alice), ("bob", bob)):
                    end = {
                        "worker": name,
                        "event": "stopped",
                        "finished": True,
                        "reason": "the run is complete",
                    }
                    assert {**worker.records[-1], "time": 0} == end | {"time": 0}
    rounds = [record for record in shepherd.records if "round" in record]
    assert rounds[-1]["tokens"] == 2 * STEPS * 2 * 64
    # Rounds are cut for the workers that are there: more of them while one was away.
    assert [record["round"] for record in rounds] == list(range(1, len(rounds) + 1))
    assert len(rounds) >= STEPS // 4


def is_lease_of(name: str, record: dict[str, Any]) -> bool:
    return record.get("worker") == name and bool(record.get("lease"))


@pytest.mark.runs
def test_a_worker_whose_key_is_revoked_while_it_works_is_put_out(
    tmp_path: Path, plan_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with Command(["shepherd", str(plan_file), "--run", str(run), "--workers", "1"], tmp_path) as shepherd:
        address = shepherd.wait_for(lambda record: record.get("event") == "listening")["address"]
        with start_worker(address, key_of("alice", run, capsys), tmp_path, "--cpus", "0") as alice:
            shepherd.wait_for(is_round(1))
            assert main(["keys", "revoke", "alice", "--run", str(run)]) == 0
            assert alice.end() == 2, alice.said
            assert "was revoked; ask for a new key file" in alice.said
            shepherd.wait_for(lambda record: record.get("state") == "lost")
        shepherd.process.send_signal(signal.SIGINT)
        assert shepherd.end() == 130
        assert "the certificate of alice was revoked; its connection is closed" in shepherd.said
