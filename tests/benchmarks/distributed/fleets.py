"""Small fleets and what they must end with."""

from random import Random

from benchmarks.distributed.fleets.fleet_worker import FleetWorker, Machine
from benchmarks.distributed.fleets.region import Region
from benchmarks.distributed.fleets.root import Root

from benchmarks.distributed.fleets import sums
from pcp.distributed.algorithms import DiLoCo
from pcp.distributed.coordinator import RunConfig
from pcp.distributed.messages import DataRange
from pcp.distributed.simulator.clock import VirtualClock

STEPS, ROUNDS = 6, 4


def plan(run_id: str, workers: int, rounds: int, steps: int) -> RunConfig:
    size = workers * steps
    return RunConfig(
        run_id,
        rounds * size,
        DiLoCo(steps),
        workers,
        patience_seconds=300.0,
        step_budgets=False,
        round_batches=size,
        checkpoint_every=2,
    )


def planned(batches: int) -> bytes:
    """The parameters of a run that merges so many batches a round, each once."""
    return sums.reference(DataRange(number * batches, batches) for number in range(ROUNDS))


def star(workers: int) -> tuple[Root, list[FleetWorker]]:
    random, root = Random(workers), Root(VirtualClock(), plan("star", workers, ROUNDS, STEPS))
    team = [
        FleetWorker(root, f"worker-{index}", Machine(random.uniform(0.5, 1.5)), index)
        for index in range(workers)
    ]
    root.start()
    for each in team:
        each.start()
    return root, team


def tree(regions: int, workers: int) -> tuple[Root, list[Region]]:
    """So many regions of so many workers each."""
    random = Random(regions)
    root = Root(VirtualClock(), plan("tree", regions, ROUNDS, workers * STEPS))
    below, link = plan("below", workers, 1000, STEPS), Machine(step_seconds=1 / workers, prepare_seconds=1.0)
    leaders = [
        Region(
            root,
            f"region-{region}",
            below,
            [
                FleetWorker(root, f"worker-{region}-{index}", Machine(random.uniform(0.5, 1.5)), index)
                for index in range(workers)
            ],
            link,
            incarnation=region,
        )
        for region in range(regions)
    ]
    root.start()
    for leader in leaders:
        leader.start()
    return root, leaders


def finish(root: Root) -> None:
    root.clock.run(2000.0, lambda: root.finished)
    assert root.finished, "the run does not end"
