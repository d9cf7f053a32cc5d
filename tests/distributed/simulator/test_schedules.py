"""Seeded schedules of faults: no invariant breaks, every run ends, and its parameters are those of the reference.

`PCP_SIMULATED_SEEDS=10000 pytest tests/distributed/simulator/test_schedules.py` runs more of them.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest

from pcp.distributed.coordinator import Refusal, RunConfig
from pcp.distributed.messages import DataRange
from pcp.distributed.simulator import (
    FAULTS,
    Fault,
    Scenario,
    Simulation,
    SimulationFailed,
    scenario_of,
    simulate,
    training,
)

SEEDS = int(os.environ.get("PCP_SIMULATED_SEEDS", "400"))
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_schedules_lose_nothing_and_end(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        simulate(scenario_of(seed))


def traced(seed: int) -> tuple[object, list[str]]:
    lines: list[str] = []
    return simulate(scenario_of(seed), lines.append), lines


@pytest.mark.parametrize("seed", [3, 10, 16])
def test_a_seed_replays_line_by_line(seed: int) -> None:
    assert traced(seed) == traced(seed)


def calm(config: RunConfig, workers: int) -> Scenario:
    return Scenario(
        seed=1,
        config=config,
        step_seconds=tuple(0.5 + 0.1 * index for index in range(workers)),
        clock_rates=(1.0,) * workers,
        delay_seconds=0.01,
        jitter_seconds=0.01,
        faults=(),
        limit_seconds=200.0,
    )


def test_without_faults_each_worker_trains_one_range_a_round() -> None:
    config = replace(scenario_of(1).config, workers=3, rounds=4, quorum=1.0, step_budgets=False)
    simulation = Simulation(calm(config, workers=3))
    outcome = simulation.run()
    size = config.batches_per_round
    assert outcome.parameters == training.reference([[DataRange(number * size, size)] for number in range(4)])
    assert (outcome.rounds, outcome.epochs) == (4, 1)
    assert [len(ranges) for ranges in simulation.observer.rounds] == [3, 3, 3, 3]


def test_a_run_that_cannot_end_fails_with_its_seed() -> None:
    scenario = replace(scenario_of(7), limit_seconds=1.0, faults=())
    with pytest.raises(
        SimulationFailed, match=r"seed 7, .*the run is not complete after 1 s.*--first 7 --trace"
    ):
        simulate(scenario)


def test_the_schedules_reach_every_fault_and_what_it_leads_to() -> None:
    faults: Counter[str] = Counter()
    inside: set[str] = set()
    seen: Counter[str] = Counter()
    words = (
        "reconnected",
        "fenced",
        "expired",
        "superseded",
        "Compact",
        "carried=1",
        "power lost",
        "killed",
        "say hello first",
        "PreparationFailed",
        "LeaseFailed",
        "UploadFailed",
        "BlobUnavailable",
        "CheckpointFailed",
    )
    for seed in range(150):
        scenario = scenario_of(seed)
        faults.update(fault.kind for fault in scenario.faults)
        lines: list[str] = []
        simulation = Simulation(scenario, lines.append)
        outcome = simulation.run()
        text = "\n".join(lines)
        inside |= simulation.faults.inside
        seen["restart"] += outcome.epochs > 1
        seen.update(word for word in words if word in text)
        network = simulation.network
        seen += Counter(lost=network.lost, doubled=network.doubled, reordered=network.reordered)
        for machine in (simulation.shepherd_machine, *simulation.worker_machines):
            seen["resumed"] += machine.blobs.resumed
            seen["damaged"] += machine.blobs.damaged
    assert set(faults) == set(FAULTS)
    assert len(inside) > len(set(FAULTS)) / 2, "half of them strike inside of a transfer, too"
    reached = ("restart", "lost", "doubled", "reordered", "resumed", "damaged", *words)
    assert all(seen[word] > 0 for word in reached), seen


def test_hostile_updates_meet_every_refusal() -> None:
    seen: set[Refusal] = set()
    for seed in range(40):
        scenario = scenario_of(seed)
        workers = range(len(scenario.step_seconds))
        hostile = tuple(Fault(0.0, "hostile update", worker, seconds=15.0, count=0) for worker in workers)
        lines: list[str] = []
        simulate(replace(scenario, faults=hostile + scenario.faults), lines.append)
        refusals = "\n".join(line for line in lines if "UpdateRefused" in line)
        seen |= {refusal for refusal in Refusal if refusal.value in refusals}
    # The simulated workers upload only sound blobs, and know no lease but their own.
    assert set(Refusal) - seen <= {Refusal.UNUSABLE, Refusal.FOREIGN_LEASE}
