"""How much of the machines' work is merged when one is slow, or when all of them fail now and then; in virtual time.

The coordinator's and the workers' own logic decide everything; only the seconds are from a model: of a step, of
a transfer by its bytes, of an outer step. Rates are taken between the ends of two rounds, after the first few
(in which no worker has a past yet) and before the last. Run: `python -m benchmarks churn`.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.distributed.fleets.fleet_worker import FleetWorker, Machine
from benchmarks.distributed.fleets.root import Root
from pcp.distributed.algorithms import Algorithm, DecoupledDiLoCo, DiLoCo, SparseLoCo, StreamingDiLoCo
from pcp.distributed.compression import codec
from pcp.distributed.coordinator import RunConfig, TimeoutPolicy
from pcp.distributed.simulator.clock import VirtualClock

STEPS = 30  # H
STEP_SECONDS = 1.0
PARAMETERS = 35_000_000
MEGABIT = 125_000.0  # bytes a second
WORKER_RATE = 100 * MEGABIT
SHEPHERD_RATE = 1000 * MEGABIT
MERGE_SECONDS = 0.3
WARM_ROUNDS = 6
SLOWER = (4.0, 10.0)  # times
ROUND_SECONDS = STEPS * STEP_SECONDS  # of H steps; workers fail every twenty of them, whatever the way


@dataclass(frozen=True, slots=True)
class Way:
    """A way to run: a name, an algorithm, and what else to change of the plan."""

    name: str
    algorithm: Algorithm
    plan: dict[str, Any]


DILOCO = DiLoCo(STEPS, upload="int4", download="int4")
STREAMING = StreamingDiLoCo(STEPS, fragments=2, delay=5, upload="int4", download="int4")
DECOUPLED = DecoupledDiLoCo(STEPS, fragments=2, delay=5, upload="int4", download="int4")
SPARSE = SparseLoCo(STEPS, download="int4")
EQUAL: dict[str, Any] = {"step_budgets": False}
WAYS = (
    Way("diloco, equal shares", DILOCO, EQUAL),
    Way("diloco", DILOCO, {}),
    Way("diloco, quorum 0.75", DILOCO, {"quorum": 0.75}),
    Way("sparse, equal shares", SPARSE, EQUAL),
    Way("sparse", SPARSE, {}),
    Way("streaming, equal shares", STREAMING, EQUAL),
    Way("streaming", STREAMING, {}),
    Way("decoupled, equal shares, quorum 0.75", DECOUPLED, {"quorum": 0.75} | EQUAL),
    Way("decoupled, quorum 0.75", DECOUPLED, {"quorum": 0.75}),
)


def plan(way: Way, workers: int, rounds: int) -> RunConfig:
    """The plan of a run."""
    settings: dict[str, Any] = {
        "run_id": "churn",
        "batches": workers * rounds * way.algorithm.inner_steps,
        "workers": workers,
        "algorithm": way.algorithm,
        "lease": TimeoutPolicy(initial_seconds=120.0, floor_seconds=5.0),
    }
    return RunConfig(**(settings | way.plan))


@dataclass(slots=True)
class Result:
    """What a run merged, and when.

    Arguments:
        root: its Shepherd, at the end.
        up_seconds: time in which each worker was up within the window.
    """

    root: Root

    def window(self) -> tuple[float, float]:
        """Return the ends of the rounds between which rates are taken."""
        ends = {each.round: each.time for each in self.root.merged}
        rounds = sorted(ends)
        return ends[rounds[WARM_ROUNDS]], ends[rounds[int(0.9 * len(rounds))]]

    def rate(self, worker_ids: Sequence[int] = ()) -> float:
        """Return the batches of these workers (of all) that were merged into everything, each second of the window."""
        begin, end = self.window()
        batches = sum(
            each.batches
            for each in self.root.merged
            if begin < each.time <= end and (not worker_ids or each.worker_id in worker_ids)
        )
        return batches / self.root.coordinator.state.run.config.algorithm.fragments / (end - begin)


class Machines:
    """The workers of a run, some of which fail and come back.

    Arguments:
        way: how to run.
        step_seconds: of each worker.
        rounds: outer steps.
        seed: of the failures.
        life_seconds, rest_seconds: mean time in which a worker is up, and is down; None: nothing fails.
    """

    def __init__(
        self,
        way: Way,
        step_seconds: Sequence[float],
        rounds: int,
        seed: int = 0,
        life_seconds: float | None = None,
        rest_seconds: float = 0.0,
    ) -> None:
        self.clock, self.random = VirtualClock(), Random(seed)
        algorithm, size = way.algorithm, PARAMETERS // way.algorithm.fragments
        self.push_bytes = codec(algorithm.upload).payload_bytes(size)
        self.root = Root(
            self.clock,
            plan(way, len(step_seconds), rounds),
            4 * size,
            codec(algorithm.download).payload_bytes(size),
            MERGE_SECONDS,
            rate=SHEPHERD_RATE,
        )
        self.root.start()
        self.incarnations = 0
        self.down: list[tuple[float, float]] = []
        self.life, self.rest = life_seconds, rest_seconds
        for index, seconds in enumerate(step_seconds):
            self.begin(index, seconds)

    def begin(self, index: int, step_seconds: float) -> None:
        """Start a process of a worker, and plan its end."""
        self.incarnations += 1
        machine = Machine(step_seconds, rate=WORKER_RATE)
        worker = FleetWorker(self.root, f"worker-{index}", machine, self.incarnations, self.push_bytes)
        worker.start()
        if self.life is not None:
            life, rest = self.random.expovariate(1 / self.life), self.random.expovariate(1 / self.rest)
            silent = self.random.random() < 0.5
            self.clock.after(life, lambda: self.end(index, step_seconds, worker, rest, silent))

    def end(self, index: int, step_seconds: float, worker: FleetWorker, rest: float, silent: bool) -> None:
        """Kill a worker; it comes back after its rest."""
        worker.stop(silent)
        self.down.append((self.clock.now, self.clock.now + rest))
        self.clock.after(rest, lambda: self.begin(index, step_seconds))

    def run(self) -> Result:
        """Run to the end."""
        self.clock.run(1e6, lambda: self.root.finished)
        if not self.root.finished:
            raise SystemExit("the run does not end")
        return Result(self.root)

    def share_up(self, window: tuple[float, float], workers: int) -> float:
        """Return the mean share of the workers that was up."""
        begin, end = window
        lost = sum(max(0.0, min(end, back) - max(begin, gone)) for gone, back in self.down)
        return 1.0 - lost / workers / (end - begin)


def straggler(way: Way, rounds: int, slower: float) -> dict[str, Any]:
    """Three workers beside one that is so many times slower, against the three alone."""
    alone = Machines(way, [STEP_SECONDS] * 3, rounds).run().rate()
    result = Machines(way, [STEP_SECONDS] * 3 + [slower * STEP_SECONDS], rounds).run()
    names = result.root.coordinator.state.run.worker_ids
    fast = result.rate([names[f"worker-{index}"] for index in range(3)])
    return {
        "study": "straggler",
        "way": way.name,
        "slower": slower,
        "alone": alone,
        "beside": fast,
        "kept": fast / alone,
        "all": result.rate() / alone,
    }


def churn(way: Way, workers: int, rounds: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Workers that fail every twenty rounds in the mean, against the same run undisturbed."""
    calm = Machines(way, [STEP_SECONDS] * workers, rounds).run()
    begin, end = calm.window()
    window_rounds = int(0.9 * len({each.round for each in calm.root.merged})) - WARM_ROUNDS
    round_seconds = (end - begin) / window_rounds
    of_all, of_up, up = [], [], []
    for seed in seeds:
        machines = Machines(way, [STEP_SECONDS] * workers, rounds, seed, 20 * ROUND_SECONDS, ROUND_SECONDS)
        result = machines.run()
        up.append(machines.share_up(result.window(), workers))
        of_all.append(result.rate() / calm.rate())
        of_up.append(of_all[-1] / up[-1])
    return {
        "study": "churn",
        "way": way.name,
        "round_seconds": round_seconds,
        "calm_rate": calm.rate(),
        "up": statistics.mean(up),
        "of_all": statistics.mean(of_all),
        "of_up": statistics.mean(of_up),
        "of_all_worst": min(of_all),
        "of_up_worst": min(of_up),
    }


def show(row: dict[str, Any]) -> None:
    """Print a row for a reader."""
    print(
        "  ".join(
            f"{key} {value if isinstance(value, str) else f'{value:.3f}'}" for key, value in row.items()
        )
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)


def run(options: argparse.Namespace) -> None:
    """Print one row for each study and way."""
    output: Callable[[dict[str, Any]], None] = (
        (lambda row: print(json.dumps(row), flush=True)) if options.json else show
    )
    for way in WAYS:
        for slower in SLOWER:
            output(straggler(way, options.rounds, slower))
    for way in WAYS:
        output(churn(way, options.workers, options.rounds, range(options.seeds)))
