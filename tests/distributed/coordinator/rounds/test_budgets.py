"""Slow and fast workers end together."""

from random import Random

import pytest

from pcp.distributed.coordinator.rounds.budgets import common_end


def test_workers_that_are_free_share_by_speed() -> None:
    assert common_end(65, [(100.0, 1.0), (100.0, 1.0), (100.0, 0.25), (100.0, 1.0)]) == 100.0 + 65 / 3.25


def test_who_is_free_later_does_less() -> None:
    assert common_end(6, [(10.0, 1.0), (12.0, 1.0)]) == 14.0


def test_who_is_free_too_late_does_nothing() -> None:
    assert common_end(3, [(50.0, 8.0), (0.0, 1.0)]) == 3.0


def test_the_common_end_is_where_the_work_is_done() -> None:
    random = Random(7)
    for _ in range(200):
        work = random.uniform(1.0, 500.0)
        workers = [(random.uniform(0.0, 60.0), random.uniform(0.1, 5.0)) for _ in range(random.randint(1, 9))]
        end = common_end(work, workers)
        assert sum(max(0.0, end - free) * speed for free, speed in workers) == pytest.approx(work)
