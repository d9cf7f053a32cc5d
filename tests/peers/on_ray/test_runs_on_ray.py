"""`pcp train --engine ray` as a whole: it equals the ordinary engine, and it outlives what dies."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.distributed.processes.command import SECONDS, Command, is_round
from tests.distributed.tiny_run import assert_equal_arrays
from tests.distributed.waiting import is_gone, wait_until
from tests.peers.on_ray.conftest import ENVIRONMENT, FORKS, RayCluster
from tests.peers.on_ray.listening import listened_on
from tests.peers.on_ray.replaying import batches_of, replay
from tests.training.loss_files import plain

from pcp.training.data.shards.place import Place
from pcp.training.data.shards.write import write_shards
from pcp.training.display.metrics import read_metrics
from pcp.training.run_folder import RunFolder, load_state

pytest.importorskip("ray")

import ray

pytestmark = FORKS

SAMPLES = 8  # of a batch


ENDLESS = 100_000  # steps


def ended(command: Command, seconds: float = SECONDS) -> list[dict[str, Any]]:
    assert command.end(seconds) == 0, command.said
    return command.records


def options(folder: Path, **settings: Any) -> list[str]:
    """Of `pcp train`, for a loss from a file that is over in seconds."""
    return [
        f"--{name.replace('_', '-')}={value}" for name, value in plain(folder).settings(**settings).items()
    ]


def test_a_run_on_ray_equals_one_of_processes(tmp_path: Path) -> None:
    settings = options(tmp_path, steps=24, workers=1, inner_steps=4, evaluate_every=8, merge="mean")
    ours, ordinary = RunFolder(tmp_path / "ray"), RunFolder(tmp_path / "processes")
    engine = ["--engine=ray", "--run", str(ours.path)]
    unlike = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}
    with (
        Command(["train", *settings, *engine], tmp_path, ENVIRONMENT | unlike) as on_ray,
        Command(["train", *settings, "--run", str(ordinary.path)], tmp_path) as of_processes,
    ):
        on_ray.wait_for(lambda record: record.get("state") == "joining")
        assert listened_on(on_ray.process.pid) == {"127.0.0.1"}, "a cluster of this machine alone"
        records = [ended(on_ray), ended(of_processes)]
    (step, state, facts), (other_step, other_state, other_facts) = load_state(ours), load_state(ordinary)
    assert (step, facts) == (other_step, other_facts) == (24, {"tokens": 24 * SAMPLES, "round": 6})
    assert_equal_arrays(state, other_state)
    losses = [[record["loss"] for record in each if "round" in record] for each in records]
    assert losses[0] == losses[1]
    assert len(losses[0]) == 6
    assert records[0][-1]["validation_loss"] == records[1][-1]["validation_loss"]
    assert ours.trained_file.read_bytes() == ordinary.trained_file.read_bytes()
    assert ours.plot_file.stat().st_size > 1000
    assert [record["loss"] for record in read_metrics(ours.metrics_file) if "round" in record] == losses[0]


def test_workers_on_ray_train_on_shards(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(np.random.default_rng().bytes(20_000))
    write_shards(str(text), Place(str(tmp_path / "place")), tokenizer="bytes", shard_tokens=1024)
    settings = [
        f"--data={tmp_path / 'place'}",
        "--workers=1",
        "--steps=8",
        "--inner-steps=4",
        "--batch=2",
        "--merge=mean",
    ]
    ours, ordinary = RunFolder(tmp_path / "ray"), RunFolder(tmp_path / "processes")
    for folder, more, variables in ((ours, ["--engine=ray"], ENVIRONMENT), (ordinary, [], {})):
        command = ["train", *settings, "--warmup-steps=2", "--run", str(folder.path), *more]
        with Command(command, tmp_path, variables) as train:
            ended(train)
    assert_equal_arrays(load_state(ours)[1]["params"], load_state(ordinary)[1]["params"])


class Watched:
    """A run on a cluster whose actors are killed.

    Arguments:
        command: `pcp train`.
        folder: of the run.
    """

    def __init__(self, command: Command, folder: RunFolder) -> None:
        self.command, self.folder = command, folder
        self.pids: set[int] = set()

    def actor(self, name: str) -> Any:
        return ray.get_actor(name, namespace=f"pcp:{self.folder.path}")

    def process_of(self, name: str) -> int:
        pid = int(ray.get(self.actor(name).process_id.remote()))
        self.pids.add(pid)
        return pid

    def restarted(self, name: str) -> None:
        """Wait until an actor is made again."""
        self.command.wait_for(lambda record: record.get("process") == name)

    def next(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Wait for another record that fulfils a condition."""
        self.command.wait_for(condition, sum(map(condition, self.command.records)) + 1)

    def goes_on(self, rounds: int = 2) -> None:
        """Wait for more rounds."""
        done = max((record.get("round", 0) for record in self.command.records), default=0)
        self.command.wait_for(is_round(done + rounds))

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing new is given to anybody, so that there is little to replay: a second may have twenty rounds, or one."""
        asked = self.folder.path / "paused"
        asked.touch()
        yield
        asked.unlink()

    def goes_on_without(self, name: str) -> None:
        """A worker was killed: the other one goes on, and then waits for it."""
        self.goes_on()
        with self.paused():
            self.restarted(name)
            self.command.wait_for(
                lambda record: record.get("state") == "joining" and record["worker"] == name, 2
            )


@pytest.mark.timeout(800)
def test_a_run_outlives_killed_actors_and_a_killed_node(tmp_path: Path, cluster: RayCluster) -> None:
    """It is interrupted when it has: how long the rest would take is the machine's affair."""
    folder = RunFolder(tmp_path / "run")
    settings = options(
        tmp_path,
        steps=ENDLESS,
        workers=2,
        algorithm="data-parallel",
        shares="equal",
        checkpoint_every=2,
        evaluate_every=20,
    )
    engine = ["--engine=ray", f"--address={cluster.address}", "--run", str(folder.path)]
    with Command(["train", *settings, *engine], tmp_path, ENVIRONMENT) as train:
        train.wait_for(is_round(2), seconds=300.0)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        run = Watched(train, folder)

        os.kill(run.process_of("worker-1"), signal.SIGKILL)
        run.goes_on_without("worker-1")

        run.process_of("worker-0")
        ray.kill(run.actor("worker-0"))
        run.goes_on_without("worker-0")

        shepherd = run.process_of("shepherd")
        # A round that is merged and not told of had the batches of both then.
        run.next(lambda record: record.get("contributions") == 2)
        run.next(lambda record: bool(record.get("lease")))
        os.kill(shepherd, signal.SIGKILL)
        run.restarted("shepherd")
        run.goes_on()

        before = [record["round"] for record in train.records if "round" in record][-1]
        cluster.kill_node()
        run.goes_on(rounds=5)
        train.process.send_signal(signal.SIGINT)
        assert train.end() == 130, train.said
    wait_until(lambda: all(is_gone(pid) for pid in run.pids), 30.0)

    restarts = [record["process"] for record in train.records if record.get("event") == "restart"]
    assert restarts[:3] == ["worker-1", "worker-0", "shepherd"]
    assert len(set(restarts[3:])) <= 1, "the worker of the killed node, which Ray may place there once more"
    records = read_metrics(folder.metrics_file)  # who is interrupted may not have shown the last of them
    rounds = [record for record in records if "round" in record]
    assert [record["round"] for record in rounds] == sorted({record["round"] for record in rounds})
    granted = [record["lease"] for record in records if record.get("lease")]
    merged = rounds[-1]["tokens"] // SAMPLES
    assert len(granted) - merged <= 2 * 4 + 2, "at most a round was trained again each time, and one is out"
    _, state, facts = load_state(folder)
    assert facts["round"] > before, "it is of the time after the last death"
    batches = batches_of(rounds, SAMPLES, 2)[: facts["round"]]
    assert facts["tokens"] == batches[-1].stop * SAMPLES, "every batch was merged exactly once"
    assert_equal_arrays(state["params"], replay(folder, batches), 0, 1e-6)


@pytest.mark.timeout(500)
def test_a_run_whose_own_node_is_gone_ends_and_says_how_it_goes_on(
    tmp_path: Path, cluster: RayCluster
) -> None:
    folder = RunFolder(tmp_path / "run")
    settings = options(tmp_path, steps=ENDLESS, workers=2, algorithm="data-parallel")
    engine = ["--engine=ray", f"--address={cluster.address}", "--run", str(folder.path)]
    with Command(["train", *settings, *engine], tmp_path, ENVIRONMENT) as train:
        train.wait_for(is_round(2), seconds=300.0)
        cluster.made.head_node.kill_raylet(check_alive=False)
        assert train.end() == 2
    assert "this machine is no longer part of the Ray cluster" in train.said
    assert f"pcp train --resume {folder.path} --engine ray" in train.said
