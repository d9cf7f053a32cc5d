"""Time limits from measured durations."""

import pytest

from pcp.distributed.coordinator.config import TimeoutPolicy
from pcp.distributed.coordinator.timing import (
    PAST,
    Pace,
    RoundClock,
    bounded,
    expected_seconds,
    joint_speed,
    lease_seconds,
    spread_limit,
    step_budget,
    typical_step_seconds,
)

POLICY = TimeoutPolicy(initial_seconds=50.0, deviations=6.0, slack=2.0, floor_seconds=3.0, cap_seconds=40.0)


def test_a_regular_past_is_bounded_by_the_slack() -> None:
    assert spread_limit([1.0, 1.0, 1.0], POLICY) == 2.0


def test_an_irregular_past_is_bounded_by_its_deviation() -> None:
    assert spread_limit([1.0, 2.0, 3.0, 4.0, 5.0], POLICY) == 3.0 + 6.0 * 1.0


def test_one_outlier_does_not_move_the_limit() -> None:
    assert spread_limit([1.0] * 8 + [1000.0], POLICY) == 2.0


@pytest.mark.parametrize(("seconds", "limit"), [(1.0, 3.0), (10.0, 10.0), (99.0, 40.0)])
def test_floor_and_cap(seconds: float, limit: float) -> None:
    assert bounded(seconds, POLICY) == limit


def test_a_lease_of_a_newcomer_has_the_initial_limit_or_that_of_the_others() -> None:
    assert lease_seconds(Pace(), 4, 0.0, POLICY) == 50.0
    assert lease_seconds(Pace(), 4, 10.0, POLICY) == 80.0


def test_each_expired_lease_doubles_the_limit_beyond_the_cap() -> None:
    pace = Pace(step_seconds=(10.0,), expired=3)
    assert lease_seconds(pace, 10, 0.0, POLICY) == 8 * 40.0


def test_success_forgives() -> None:
    pace = Pace(expired=3, failed=2, fenced=1)
    pace.rest(100.0, 2.0)
    assert pace.rest_until == 108.0
    for seconds in range(1, 40):
        pace.trained(4.0 * seconds, 2.0 * seconds, 4)
    assert (pace.expired, pace.failed, pace.fenced) == (3, 3, 1)
    pace.succeeded()
    assert (pace.expired, pace.failed, pace.fenced) == (0, 0, 0)
    assert pace.step_seconds == tuple(float(seconds) for seconds in range(40 - PAST, 40))
    assert pace.work_seconds == tuple(seconds / 2 for seconds in range(40 - PAST, 40))


@pytest.mark.parametrize("told", [0.0, -1.0, 9.0, float("nan")])
def test_a_worker_cannot_have_trained_longer_than_it_took_nor_in_no_time(told: float) -> None:
    pace = Pace()
    pace.trained(8.0, told, 4)
    assert pace.work_seconds == (2.0,)


def test_a_push_alone_says_nothing_about_steps() -> None:
    pace = Pace()
    pace.trained(8.0, 1.0, 0)
    assert pace == Pace()


def test_expected_end_of_a_lease() -> None:
    assert expected_seconds(Pace(), 4, POLICY) == 50.0
    assert expected_seconds(Pace(step_seconds=(2.0,)), 4, POLICY) == 16.0


def test_budgets_let_slow_and_fast_end_together() -> None:
    paces = [Pace(work_seconds=(1.0,)), Pace(work_seconds=(1.0, 1.0)), Pace(work_seconds=(4.0,)), Pace()]
    typical = typical_step_seconds(paces)
    assert typical == 1.0
    speed = joint_speed(paces, typical)
    assert speed == 3.25
    clock = RoundClock(opened=100.0, speed=speed, end=100.0 + 65 / speed)
    assert [step_budget(pace, clock, 100.0, 65, 20) for pace in paces] == [20, 20, 5, 20]
    # Half of the time is over; what is pending matters once all of it is.
    assert [step_budget(pace, clock, 110.0, 13, 20) for pace in paces] == [10, 10, 2, 20]
    assert [step_budget(pace, clock, 130.0, 13, 20) for pace in paces] == [4, 4, 1, 20]
    assert step_budget(Pace(work_seconds=(1000.0,)), clock, 100.0, 65, 20) == 1
    assert step_budget(Pace(work_seconds=(1.1,)), clock, 100.0, 65, 20) == 20


def test_nothing_measured_means_no_budgets() -> None:
    assert joint_speed([Pace(), Pace()], 0.0) == 0.0
    assert step_budget(Pace(work_seconds=(9.0,)), RoundClock(0.0), 1.0, 100, 20) == 20
