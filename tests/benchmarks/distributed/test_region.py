"""A tree of Shepherds merges what a star would, with the root's traffic that of its regions."""

import pytest
from tests.benchmarks.distributed.fleets import ROUNDS, STEPS, finish, planned, star, tree


def test_a_tree_ends_with_the_parameters_of_the_star() -> None:
    root, _ = tree(3, 4)
    finish(root)
    flat, _ = star(12)
    finish(flat)
    assert root.parameters() == flat.parameters() == planned(12 * STEPS)


def test_the_root_hears_regions_not_workers() -> None:
    root, leaders = tree(3, 4)
    finish(root)
    assert root.meter.received["Hello"] == 3
    assert root.meter.received["Update"] == 3 * ROUNDS
    assert root.meter.bytes_in == 3 * ROUNDS * 8
    below = [leader.below for leader in leaders]
    assert [each.meter.received["Update"] for each in below if each] == [4 * ROUNDS] * 3


@pytest.mark.parametrize("time", [3.0, 8.0, 13.0, 14.5, 17.0, 24.0])
@pytest.mark.parametrize("silent", [False, True])
def test_a_killed_regional_shepherd_loses_no_batch(time: float, silent: bool) -> None:
    root, leaders = tree(3, 4)

    def fall() -> None:
        leaders[1].stop(silent)
        root.clock.after(6.0, lambda: leaders[1].successor(99).start())

    root.clock.at(time, fall)
    finish(root)
    assert root.parameters() == planned(12 * STEPS)


def test_without_a_successor_the_other_regions_do_its_share() -> None:
    root, leaders = tree(3, 4)
    root.clock.at(12.0, lambda: leaders[1].stop(silent=True))
    finish(root)
    assert root.parameters() == planned(12 * STEPS)
    done = {each.worker_id: 0 for each in root.merged}
    for each in root.merged:
        done[each.worker_id] += each.batches
    assert sum(done.values()) == 12 * STEPS * ROUNDS


def test_workers_of_a_region_may_fail_too() -> None:
    root, leaders = tree(3, 4)
    for time, worker in ((9.0, 0), (16.0, 2)):
        root.clock.at(time, lambda worker=worker: leaders[0].team[worker].stop(silent=True))
    finish(root)
    assert root.parameters() == planned(12 * STEPS)
