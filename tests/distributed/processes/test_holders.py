"""A newcomer to a real run takes programs, data and parameters from a worker that listens."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from pcp.distributed.wire import BlobStore
from tests.distributed.peers import slow_holder
from tests.distributed.peers.test_fetching import BLOB, CONTENT, Fleet, fetch, sent, served
from tests.distributed.processes.command import Command, is_round
from tests.distributed.processes.test_by_hand import key_of, start_worker
from tests.distributed.wire.loopback import Run, eventually, play

TOML = """
model = "gpt2-nano"
data = "{corpus}"
workers = 1
steps = 4000
inner_steps = 20
batch = 2
warmup_steps = 4
evaluate_every = 0
checkpoint_every = 2000
"""


@pytest.mark.runs
def test_a_newcomer_takes_what_a_worker_holds_from_there(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, run = tmp_path / "run.toml", tmp_path / "run"
    plan.write_text(TOML.format(corpus=corpus), encoding="utf-8")
    with Command(["shepherd", str(plan), "--run", str(run)], tmp_path) as shepherd:
        address = shepherd.wait_for(lambda record: record.get("event") == "listening")["address"]
        keys = {name: key_of(name, run, capsys) for name in ("alice", "bob", "carol")}
        with start_worker(address, keys["alice"], tmp_path, "--listen", "127.0.0.1:0") as alice:
            shepherd.wait_for(is_round(1))
            with start_worker(address, keys["bob"], tmp_path) as bob:
                bob.wait_for(lambda record: record.get("reason") == "ready")
                assert bob.said.count("from alice") >= 5, bob.said
            # Without the holder a third one takes all from the Shepherd.
            alice.process.kill()
            with start_worker(address, keys["carol"], tmp_path) as carol:
                carol.wait_for(lambda record: record.get("reason") == "ready")
                assert "from alice" not in carol.said


@pytest.mark.runs
def test_a_holder_process_that_is_killed_in_the_middle_costs_only_the_rest(tmp_path: Path) -> None:
    fleet = Fleet(Run(tmp_path), tmp_path)
    BlobStore(fleet.folder / "bob").put(CONTENT)
    key = fleet.folder / "bob.pem"
    fleet.run.authority.issue("bob").save_bundle(key)
    holder = subprocess.Popen(
        [
            *(sys.executable, slow_holder.__file__, fleet.folder / "bob", key),
            *(BLOB.digest.hex(), str(BLOB.size)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None

    async def story() -> None:
        async with served(fleet) as (shepherd, fetcher):
            fleet.place("bob", holder.stdout.readline().strip())
            fetching = asyncio.create_task(fetch(fleet, fetcher))
            part = fleet.folder / "ada" / f"{BLOB.digest.hex()}.fetch.part"
            await eventually(lambda: part.exists() and part.stat().st_size > BLOB.size // 4)
            assert sent(shepherd) == 0
            holder.kill()
            await fetching
            assert 0 < sent(shepherd) <= 3 * BLOB.size // 4 + 24 * 100

    try:
        play(story())
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
