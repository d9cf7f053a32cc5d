"""Seeded schedules of faults: no invariant breaks, every run ends, and its parameters are those of the reference.

`PCP_SIMULATED_SEEDS=10000 pytest tests/distributed/simulator/test_schedules.py` runs more of them.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest

from pcp.distributed.algorithms import Algorithm, DecoupledDiLoCo, DiLoCo, StreamingDiLoCo
from pcp.distributed.coordinator import Refusal, RunConfig
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


def planned(algorithm: Algorithm, rounds: int, quorum: float = 1.0) -> RunConfig:
    sizes = (training.PAYLOAD_BYTES,) * algorithm.fragments
    config = replace(scenario_of(1).config, algorithm=algorithm, update_bytes=sizes)
    return replace(config, workers=3, rounds=rounds, quorum=quorum, step_budgets=False)


def test_without_faults_each_worker_trains_one_range_a_round() -> None:
    config = planned(DiLoCo(inner_steps=3), rounds=4)
    simulation = Simulation(calm(config, workers=3))
    outcome = simulation.run()
    size = config.batches_per_round
    rounds = [range(at, at + size) for at in range(0, 4 * size, size)]
    assert outcome.parameters == (training.reference(config.algorithm, rounds),)
    assert (outcome.rounds, outcome.epochs) == (4, 1)
    assert simulation.witness.merged_contributions == 4 * 3


@pytest.mark.parametrize("download", ["f32", "int4"])
@pytest.mark.parametrize("delay", [0, 2])
def test_without_faults_fragments_take_turns(delay: int, download: str) -> None:
    algorithm = StreamingDiLoCo(inner_steps=6, fragments=2, delay=delay, upload="int4", download=download)
    simulation = Simulation(calm(planned(algorithm, rounds=3), workers=3))
    outcome = simulation.run()
    # Each fragment merges in every second round; the last push of the other one follows in a flush round.
    assert (outcome.rounds, outcome.epochs) == (7, 1)
    assert simulation.witness.merged_contributions == 7 * 3
    assert simulation.observer.most_in_flight == (2 if delay else 1)


def test_late_workers_carry_what_a_round_closed_without() -> None:
    algorithm = DecoupledDiLoCo(inner_steps=4, fragments=2, delay=1)
    scenario = calm(planned(algorithm, rounds=3, quorum=0.5), workers=3)
    lines: list[str] = []
    simulate(replace(scenario, step_seconds=(0.3, 0.3, 3.0)), lines.append)
    assert any("Outcome.CARRIED" in line for line in lines)
    assert any("count=0" in line and "Assign" in line for line in lines), "a lease of nothing but its push"


def test_the_numbers_that_a_batch_moves_do_not_depend_on_time() -> None:
    algorithm = DecoupledDiLoCo(inner_steps=4, fragments=2, delay=1, upload="f32")
    scenarios = [calm(planned(algorithm, rounds=3, quorum=quorum), workers=3) for quorum in (1.0, 0.5)]
    first, second = (simulate(replace(each, seed=seed)) for seed, each in enumerate(scenarios))
    assert first.parameters == second.parameters
    assert first.seconds != second.seconds


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
        "left=1",
        "CARRIED",
        "Merged(",
        "is_change=True",
        "fresh=True",
        "CancelUpload",
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
        seen["masked"] += simulation.witness.masked_leases
        seen["two in flight"] += simulation.observer.most_in_flight == 2
        for machine in (simulation.shepherd_machine, *simulation.worker_machines):
            seen["resumed"] += machine.blobs.resumed
            seen["damaged"] += machine.blobs.damaged
    assert set(faults) == set(FAULTS)
    assert len(inside) > len(set(FAULTS)) / 2, "half of them strike inside of a transfer, too"
    reached = (
        "restart",
        "lost",
        "doubled",
        "reordered",
        "resumed",
        "damaged",
        "masked",
        "two in flight",
        *words,
    )
    assert not [word for word in reached if not seen[word]]


def test_hostile_updates_meet_every_refusal() -> None:
    seen: set[Refusal] = set()
    for seed in range(40):
        scenario = scenario_of(seed)
        workers = range(len(scenario.step_seconds))
        hostile = tuple(Fault(0.0, "hostile update", worker, seconds=15.0, count=0) for worker in workers)
        lines: list[str] = []
        simulate(replace(scenario, faults=hostile + scenario.faults), lines.append)
        counted = "\n".join(line for line in lines if "RoundMerged" in line)
        seen |= {refusal for refusal in Refusal if f"'{refusal.name}'" in counted}
    assert set(Refusal) - seen <= {Refusal.FOREIGN_LEASE}  # the simulated workers know no lease but their own
