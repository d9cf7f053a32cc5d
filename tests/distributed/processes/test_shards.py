"""A corpus in shards: Workers fetch what their leases touch, nobody holds it whole, and the run equals a replay."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from pcp.training.data.shards.index import INDEX_NAME, Shard, ShardIndex
from pcp.training.data.shards.place import Place
from pcp.training.data.tokenizer import ByteTokenizer
from pcp.training.run_folder import RunFolder, load_state
from tests.distributed.processes.command import Command, is_round
from tests.distributed.processes.replaying import leases_of, replay
from tests.distributed.processes.test_by_hand import key_of, start_worker
from tests.distributed.tiny_run import assert_equal_arrays

CORPUS_BYTES = 1 << 30  # two for each token
SHARD_TOKENS = 1 << 15

TOML = """
model = "gpt2-nano"
data = "{place}"
workers = 2
steps = 24
inner_steps = 4
merge = "mean"
shares = "equal"
batch = 16
warmup_steps = 4
evaluate_every = 8
checkpoint_every = 8
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder as `pcp data shard` writes it, of random tokens."""
    tokenizer, random, folder = ByteTokenizer(), np.random.default_rng(), Place(str(tmp_path / "place"))

    def shard() -> Shard:
        content = random.integers(0, 256, SHARD_TOKENS, np.uint8).astype("<u2").tobytes()
        found = Shard(hashlib.sha256(content).hexdigest(), SHARD_TOKENS)
        folder.write(found.name, content)
        return found

    shards = [shard() for _ in range(CORPUS_BYTES // (2 * SHARD_TOKENS))]
    validation = Shard(hashlib.sha256(content := bytes(2 * 4096)).hexdigest(), 4096)
    folder.write(validation.name, content)
    index = ShardIndex(tokenizer.to_json(), tokenizer.vocabulary_size, tuple(shards), validation)
    folder.write(INDEX_NAME, index.to_json().encode())
    return Path(folder.url)


def largest_memory(process: int) -> int:
    """Bytes of memory of its own that a process has had, at most, as far as the system tells: what is mapped counts, too."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def shards_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.tokens")}


@pytest.mark.runs
@pytest.mark.timeout(600)  # it writes and digests a gigabyte
def test_workers_fetch_what_their_leases_touch(
    tmp_path: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, run = tmp_path / "run.toml", RunFolder(tmp_path / "run")
    plan.write_text(TOML.format(place=place), encoding="utf-8")
    with Command(["shepherd", str(plan), "--run", str(run.path)], tmp_path) as shepherd:
        address = shepherd.wait_for(lambda record: record.get("event") == "listening")["address"]
        keys = [key_of(name, run.path, capsys) for name in ("alice", "bob")]
        # One of them has the shards on its own disk, the other takes them from the Shepherd and has little room.
        given = (["--data", str(place)], ["--disk", "200MB"])
        folders = [tmp_path / name for name in ("alice", "bob")]
        workers = [
            start_worker(address, key, tmp_path, "--folder", str(folder), *more)
            for key, folder, more in zip(keys, folders, given, strict=True)
        ]
        with workers[0], workers[1]:
            shepherd.wait_for(is_round(5), seconds=400.0)
            memory = [largest_memory(each.process.pid) for each in (shepherd, *workers)]
            assert shepherd.end() == 0, shepherd.said
            assert [worker.end() for worker in workers] == [0, 0], workers[1].said
        records = shepherd.records
    for folder in folders:
        found = shards_in(folder.with_name(f"{folder.name}-shards"))
        assert 1 <= len(found) <= 30
        assert all(content == (place / name).read_bytes() for name, content in found.items())
    assert max(memory) < CORPUS_BYTES  # nor did all that the programs take together with it
    _, state, _ = load_state(run)
    joined = [record["worker"] for record in records if record.get("state") == "joining"]
    assert_equal_arrays(state["params"], replay(run, leases_of(records), joined), 0, 2e-6)
    assert os.path.getsize(run.shard_index_file) < CORPUS_BYTES // 100
