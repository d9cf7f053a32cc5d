"""Time limits from measured durations."""

import pytest

from pcp.distributed.coordinator.config import TimeoutPolicy
from pcp.distributed.coordinator.timing import (
    PAST,
    Pace,
    bounded,
    expected_seconds,
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
        pace.succeeded(4.0 * seconds, 4)
    assert (pace.expired, pace.failed, pace.fenced) == (0, 0, 0)
    assert pace.step_seconds == tuple(float(seconds) for seconds in range(40 - PAST, 40))


def test_expected_end_of_a_lease() -> None:
    assert expected_seconds(Pace(), 4, POLICY) == 50.0
    assert expected_seconds(Pace(step_seconds=(2.0,)), 4, POLICY) == 16.0


def test_budgets_are_proportional_to_speed() -> None:
    paces = [Pace(step_seconds=(1.0,)), Pace(step_seconds=(1.0, 1.0)), Pace(step_seconds=(4.0,)), Pace()]
    typical = typical_step_seconds(paces)
    assert typical == 1.0
    assert [step_budget(pace, typical, 20) for pace in paces] == [20, 20, 5, 20]
    assert step_budget(Pace(step_seconds=(1000.0,)), typical, 20) == 1
    assert step_budget(Pace(step_seconds=(1.1,)), typical, 20) == 20
