"""`pcp train --workers 2` as a whole: it completes, it equals a replay, and it outlives what dies."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from pcp.training.display.metrics import read_metrics
from pcp.training.run_folder import RunFolder, load_state
from tests.distributed.processes.command import (
    Command,
    is_round,
    process_ids,
)
from tests.distributed.processes.replaying import leases_of, replay
from tests.distributed.tiny_run import assert_equal_arrays
from tests.distributed.waiting import is_gone, wait_until


def assert_no_process_is_left(pids: dict[str, int]) -> None:
    wait_until(lambda: all(is_gone(pid) for pid in pids.values()), 30.0)


@pytest.mark.runs
def test_a_run_completes_and_equals_a_replay_of_its_leases(tmp_path: Path, settings: list[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    with Command(["train", *settings, "--run", str(folder.path)], tmp_path) as train:
        train.wait_for(is_round(1))
        pids = process_ids(folder.path)
        assert sorted(pids) == ["shepherd", "supervisor", "worker-0", "worker-1"]
        assert train.end() == 0, train.said
        records = train.records
    assert_no_process_is_left(pids)
    rounds = [record for record in records if "round" in record]
    assert [(record["step"], record["round"], record["contributions"]) for record in rounds] == [
        (4 * number, number, 2) for number in range(1, 7)
    ]
    assert all(record["tokens_per_second"] > 0 and record["refused"] == 0 for record in rounds)
    assert rounds[-1]["tokens"] == 2 * 24 * 2 * 64
    assert rounds[-1]["loss"] < rounds[0]["loss"] - 0.3
    losses = [record["step"] for record in records if "validation_loss" in record and "event" not in record]
    assert losses[-1] == 24
    assert set(losses) <= {8, 16, 24}
    assert records[-1]["event"] == "finished"
    assert [record for record in read_metrics(folder.metrics_file) if "round" in record] == rounds
    assert [path.name for path in sorted(folder.checkpoints.iterdir())][-1] == "step-00000024"

    step, state, metadata = load_state(folder)
    assert (step, metadata) == (24, {"tokens": 6144, "round": 6})
    joined = [record["worker"] for record in records if record.get("state") == "joining"]
    assert_equal_arrays(state["params"], replay(folder, leases_of(records), joined), 0, 2e-6)


@pytest.mark.runs
def test_a_run_outlives_a_killed_worker_and_a_killed_shepherd(tmp_path: Path, settings: list[str]) -> None:
    run = tmp_path / "run"
    with Command(
        ["train", *settings, "--inner-steps=12", "--steps=60", "--run", str(run)], tmp_path
    ) as train:
        train.wait_for(is_round(1))
        train.wait_for(lambda record: bool(record.get("lease")), count=4)
        first = process_ids(run)
        os.kill(first["worker-1"], signal.SIGKILL)
        train.wait_for(lambda record: record.get("process") == "worker-1")
        train.wait_for(lambda record: record.get("state") == "lost" and record["worker"] == "worker-1")
        train.wait_for(is_round(3))
        second = process_ids(run)
        assert second["worker-1"] != first["worker-1"]
        os.kill(second["shepherd"], signal.SIGKILL)
        train.wait_for(lambda record: record.get("process") == "shepherd")
        assert train.end() == 0, train.said
        records = train.records
    assert_no_process_is_left(first | {f"second {name}": pid for name, pid in second.items()})
    rounds = [record["round"] for record in records if "round" in record]
    # The Shepherd may have died after it merged a round and before it said so.
    assert rounds == sorted(set(rounds))
    assert rounds[-1] >= 5, "as many, or more that were cut while a worker was away"
    assert records[-1]["step"] == 60
    final = next(record for record in reversed(records) if "round" in record)
    assert final["tokens"] == 2 * 60 * 2 * 64, "every batch was merged exactly once"
    restarts = [record["process"] for record in records if record.get("event") == "restart"]
    assert restarts == ["worker-1", "shepherd"]


@pytest.mark.runs
def test_an_interrupted_run_leaves_a_checkpoint_and_no_process_and_goes_on(
    tmp_path: Path, settings: list[str]
) -> None:
    folder = RunFolder(tmp_path / "run")
    with Command(["train", *settings, "--steps=48", "--run", str(folder.path)], tmp_path) as train:
        train.wait_for(is_round(3))
        pids = process_ids(folder.path)
        train.process.send_signal(signal.SIGINT)
        assert train.end(30.0) == 130
        assert f"pcp: interrupted; pcp train --resume {folder.path} continues it" in train.said
        assert "Traceback" not in train.said
    assert_no_process_is_left(pids)
    assert not (folder.path / "logs" / "processes.json").exists()
    step, state, _ = load_state(folder)
    assert step % 8 == 0
    assert np.isfinite(state["params"]["wte"]).all()
    done = last_round(folder)

    with Command(["train", "--resume", str(folder.path)], tmp_path) as train:
        assert train.wait_for(is_round(1))["round"] in (done + 1, done + 2)
        pids = process_ids(folder.path)
        train.process.kill()  # and nobody tells its children
        train.process.wait()
    assert_no_process_is_left(pids)

    with Command(["train", "--resume", str(folder.path)], tmp_path) as train:
        assert train.end() == 0, train.said
        assert (train.records[-1]["event"], train.records[-1]["step"]) == ("finished", 48)
    rounds = [record for record in read_metrics(folder.metrics_file) if "round" in record]
    assert rounds[-1]["tokens"] == 2 * 48 * 2 * 64
    assert [record["round"] for record in rounds] == sorted({record["round"] for record in rounds})
    assert load_state(folder)[0] == 48


def last_round(folder: RunFolder) -> int:
    """The last outer step that a run told of."""
    return max(record.get("round", 0) for record in read_metrics(folder.metrics_file))


def test_a_run_that_is_terminated_as_it_starts_leaves_no_process(tmp_path: Path, settings: list[str]) -> None:
    run = tmp_path / "run"
    with Command(["train", *settings, "--run", str(run)], tmp_path) as train:
        wait_until(lambda: (run / "logs" / "processes.json").exists())
        pids = process_ids(run)
        train.process.send_signal(signal.SIGTERM)
        assert train.end(30.0) == 143
    assert_no_process_is_left(pids)
