"""`pcp train --algorithm streaming` as a whole: overlapping rounds of fragments in four bits, with a death and without."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from pcp.distributed.algorithm_choice import algorithm_of
from pcp.distributed.coordinator import Coordinator, DirectoryStorage, EventLog
from pcp.distributed.coordinator.invariants import check_books
from pcp.distributed.round_arithmetic.lockstep import Lockstep
from pcp.ir.tree import flatten, map_tree
from pcp.training.recipes.prepare import prepare
from pcp.training.run_folder import RunFolder, load_state
from tests.distributed.processes.command import Command, is_round, process_ids
from tests.distributed.tiny_run import assert_equal_arrays

STREAMING = [
    "--algorithm=streaming",
    "--fragments=2",
    "--delay=2",
    "--inner-steps=8",
    "--upload=int4",
    "--download=int4",
]


@pytest.mark.runs
def test_a_worker_that_is_killed_in_the_middle_costs_no_batch(tmp_path: Path, settings: list[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    options = [*settings, *STREAMING, "--steps=56", "--run", str(folder.path)]
    with Command(["train", *options], tmp_path) as train:
        train.wait_for(is_round(2))
        os.kill(process_ids(folder.path)["worker-1"], signal.SIGKILL)
        train.wait_for(lambda record: record.get("process") == "worker-1")
        assert train.end() == 0, train.said
        records = train.records
    rounds = [record for record in records if "round" in record]
    assert [record["round"] for record in rounds] == list(range(1, len(rounds) + 1))
    assert rounds[-1]["tokens"] == 2 * 56 * 2 * 64
    assert rounds[-1]["loss"] < rounds[0]["loss"] - 0.3

    storage = DirectoryStorage(folder.path / "coordinator")
    coordinator = Coordinator.restore(EventLog(storage).records())
    storage.close()
    check_books(coordinator.state)
    assert coordinator.state.run.finished
    step, state, _ = load_state(folder)
    assert step == 56
    assert all(np.isfinite(leaf).all() for leaf in flatten(state)[0])
    assert sorted(state["outer"]) == ["0", "1"]


@pytest.mark.runs
def test_one_worker_is_what_the_arithmetic_alone_leads_to(tmp_path: Path, small: list[str]) -> None:
    """Bit for bit: neither processes, nor transfers, nor their times leave a trace in the parameters."""
    folder = RunFolder(tmp_path / "run")
    options = [*small, *STREAMING, "--workers=1", "--steps=16", "--run", str(folder.path)]
    with Command(["train", *options], tmp_path) as train:
        assert train.end() == 0, train.said
    recipe = prepare(folder)
    alone = Lockstep(recipe, algorithm_of(recipe.config), 1)
    for _ in range(recipe.config.steps // 4):
        alone.round()
    alone.flush()
    _, state, metadata = load_state(folder)
    assert metadata["round"] == alone.rounds
    assert_equal_arrays(state["params"], map_tree(np.asarray, alone.parameters()))


@pytest.mark.runs
def test_two_workers_repeat_a_run_bit_for_bit(tmp_path: Path, small: list[str]) -> None:
    states = []
    for number in range(2):
        folder = RunFolder(tmp_path / f"run-{number}")
        options = [*small, "--upload=int4", "--download=int4", "--run", str(folder.path)]
        with Command(["train", *options], tmp_path) as train:
            assert train.end() == 0, train.said
        states.append(load_state(folder)[1])
    assert_equal_arrays(states[0], states[1])
