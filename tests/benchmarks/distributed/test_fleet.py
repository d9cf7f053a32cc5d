"""A fleet merges every batch once, in the time that its machines and links take."""

import math

from benchmarks.distributed.fleets.fleet import Pipe
from benchmarks.distributed.fleets.fleet_worker import FleetWorker, Machine
from benchmarks.distributed.fleets.root import Root
from tests.benchmarks.distributed.fleets import ROUNDS, STEPS, finish, planned, star

from pcp.distributed.algorithms import DiLoCo
from pcp.distributed.coordinator import RunConfig
from pcp.distributed.simulator.clock import VirtualClock


def test_a_star_ends_with_the_parameters_of_its_plan() -> None:
    root, _ = star(7)
    finish(root)
    assert root.parameters() == planned(7 * STEPS)
    assert sum(each.batches for each in root.merged) == 7 * STEPS * ROUNDS
    assert root.meter.received["Update"] == 7 * ROUNDS
    assert root.meter.bytes_in == 7 * ROUNDS * 8


def test_killed_workers_lose_no_batch() -> None:
    root, team = star(5)
    root.clock.at(9.0, lambda: team[1].stop(silent=True))
    root.clock.at(13.0, lambda: team[2].stop(silent=False))
    successor = FleetWorker(root, "worker-1", Machine(0.7), 99)
    root.clock.at(25.0, successor.start)
    finish(root)
    assert root.parameters() == planned(5 * STEPS)
    assert successor.busy_seconds > 0


def test_a_round_takes_its_steps_its_transfers_and_its_merge() -> None:
    clock = VirtualClock()
    config = RunConfig("timed", ROUNDS * STEPS, DiLoCo(STEPS), checkpoint_every=100)
    root = Root(clock, config, fragment_bytes=3000, merge_seconds=2.0, delay_seconds=0.125)
    root.start()
    FleetWorker(root, "alone", Machine(1.5, rate=1000.0), 1, update_bytes=500).start()
    finish(root)
    first, second = (next(each.time for each in root.merged if each.round == number) for number in (1, 2))
    # Assign, fragment, steps, push, its acknowledgement, Update: one delay each besides the bytes.
    delays = 5 * 0.125
    assert math.isclose(second - first, delays + 3000 / 1000 + STEPS * 1.5 + 500 / 1000 + 2.0)


def test_a_pipe_carries_one_transfer_after_the_other() -> None:
    pipe = Pipe(rate=10.0)
    assert [pipe.carry(0.0, 20), pipe.carry(1.0, 5), pipe.carry(9.0, 10)] == [2.0, 2.5, 10.0]
