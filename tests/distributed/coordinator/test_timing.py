"""Time limits from measured durations."""

import math
from statistics import median

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pcp.distributed.coordinator.config import TimeoutPolicy
from pcp.distributed.coordinator.log.records import MeasuredPace
from pcp.distributed.coordinator.peers import Peers, PeersPace
from pcp.distributed.coordinator.timing import (
    LONGEST_REST_SECONDS,
    PAST,
    Pace,
    bounded,
    expected_seconds,
    lease_seconds,
    spread_limit,
    typical_step_seconds,
)

POLICY = TimeoutPolicy(initial_seconds=20.0, deviations=6.0, slack=2.0, floor_seconds=3.0, cap_seconds=40.0)


def pace_of(*workers: Pace) -> PeersPace:
    peers = Peers()
    for number, worker in enumerate(workers, 1):
        peers.note(number, worker.usual)
    return peers.pace()


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
    assert lease_seconds(Pace(), 4, True, 0.0, POLICY) == 20.0
    assert lease_seconds(Pace(), 4, True, 4.0, POLICY) == 32.0
    assert lease_seconds(Pace(), 4, True, 10.0, POLICY) == 40.0


@pytest.mark.parametrize(("expired", "limit"), [(0, 8.0), (1, 16.0), (2, 32.0), (3, 40.0), (60, 40.0)])
def test_each_expired_lease_doubles_the_limit_up_to_the_cap(expired: int, limit: float) -> None:
    pace = Pace(work_seconds=(1.0,), overhead_seconds=(1.0,), expired=expired)
    assert lease_seconds(pace, 3, False, 0.0, POLICY) == limit


def test_the_limit_beside_peers_is_a_multiple_of_what_the_median_of_those_that_deliver_takes() -> None:
    def delivering(seconds: float, overhead: float) -> Pace:
        pace = Pace()
        pace.trained(4 * seconds + overhead, 4 * seconds, 4)
        pace.succeeded()
        return pace

    paces = [delivering(1.0, 2.0), delivering(3.0, 5.0), delivering(9.0, 9.0)]
    silent = Pace(work_seconds=(1000.0,), overhead_seconds=(0.0,))
    found = pace_of(*paces, silent, Pace())
    assert found == PeersPace(3.0, 5.0)
    assert found.limit(4, POLICY) == 10 * (5.0 + 4 * 3.0)
    assert PeersPace(0.01, 0.0).limit(4, POLICY) == POLICY.floor_seconds
    assert pace_of(silent).limit(4, POLICY) == math.inf
    paces[1].let_expire(0.0, 1.0, 30.0)
    assert pace_of(*paces[:2]) == PeersPace(1.0, 2.0), "who lets leases expire is no measure"


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.none() | st.tuples(st.floats(0, 9), st.floats(0, 9))), max_size=30
    )
)
def test_the_median_of_the_peers_is_the_same_however_they_came_to_be_what_they_are(
    changes: list[tuple[int, tuple[float, float] | None]],
) -> None:
    peers = Peers()
    for worker_id, usual in changes:
        peers.note(worker_id, usual)
    for without in range(7):
        others = [usual for each, usual in peers.usual.items() if each != without]
        expected = PeersPace(*(median(each) for each in zip(*others, strict=True))) if others else PeersPace()
        assert peers.pace(without) == expected


def test_who_lets_leases_expire_rests_the_longer_the_longer_others_waited() -> None:
    pace, rests, now = Pace(), [], 100.0
    for _ in range(6):
        pace.let_expire(now, 1.0, 30.0)
        rests.append(pace.rest_until - now)
        now = pace.rest_until + 30.0
    assert rests == [60.0, 120.0, 240.0, 480.0, 480.0, 480.0], "a seventeenth of the time is lost at most"
    rare = Pace()
    rare.let_expire(100.0, 1.0, 10_000.0)
    assert rare.rest_until == 100.0 + LONGEST_REST_SECONDS
    alone = Pace()
    alone.let_expire(100.0, 1.0, 0.0)
    assert alone.rest_until == 101.0


@given(
    waits=st.lists(st.tuples(st.floats(0.01, 1.0), st.booleans(), st.booleans()), min_size=1, max_size=200),
    longest=st.floats(1.0, 20_000.0),
)
@example(waits=[(1.0, True, True)] * 200, longest=30.0)  # silent, and then one push, by turns
@example(waits=[(1.0, True, False)] * 200, longest=10_000.0)  # longer than the longest rest of the first
def test_however_a_worker_mixes_silence_and_pushes_it_takes_a_seventeenth_of_the_time(
    waits: list[tuple[float, bool, bool]], longest: float
) -> None:
    pace, now, waited = Pace(), 0.0, 0.0
    for part, expires, delivers in waits:
        now = max(now, pace.rest_until) + part * longest
        waited += part * longest
        (pace.let_expire if expires else pace.rest)(now, 1.0, part * longest)
        if delivers:
            now = max(now, pace.rest_until)
            pace.succeeded()
    assert waited <= now / 17 + 6 * longest, "but for the first few, which are forgiven"


def test_who_is_late_now_and_then_rests_only_where_it_costs_others_more_than_it_saves_them() -> None:
    useful = Pace()
    for now in range(0, 3000, 30):
        useful.delivered(now, 10.0, 40.0 if now % 150 == 0 else 0.0)
    assert useful.rest_until < 3000.0
    dear, waited, now = Pace(), 0.0, 0.0
    for count in range(400):
        late = 40.0 if count % 5 == 0 else 0.0
        now = max(now, dear.rest_until) + 1.0 + late
        waited += late
        dear.delivered(now, 1.0, late)
    assert waited <= now / 17 + 6 * 40.0 + 400.0, "and what it saved"


def test_a_past_is_remembered_by_its_medians() -> None:
    pace = Pace((1.0, 2.0, 9.0), (0.5,), (4.0, 6.0), expired=2)
    again = Pace.remembered(pace.measured(7))
    assert pace.measured(7) == again.measured(7) == MeasuredPace(7, 2.0, 0.5, 5.0, 2)
    assert not again.delivers
    assert pace_of(Pace.remembered(MeasuredPace(1, 2.0, 0.5, 0.0, 0))) == PeersPace(2.0, 0.5)
    assert Pace.remembered(MeasuredPace(1, 0.0, 0.0, 0.0, 3)) == Pace(expired=3)


def test_what_was_never_measured_is_not_remembered_as_nothing() -> None:
    pace = Pace.remembered(MeasuredPace(1, 2.0, 0.0, 5.0, 0))
    assert pace.overhead_seconds == ()
    assert lease_seconds(pace, 1, False, 0.0, POLICY) == 2 * (5.0 + 2.0)
    at_once = Pace.remembered(MeasuredPace(1, 2.0, 0.0, 0.0, 0))
    assert lease_seconds(at_once, 1, True, 0.0, POLICY) == 2 * 2.0


def test_the_limit_of_a_short_lease_holds_what_any_lease_takes() -> None:
    pace = Pace(work_seconds=(1.0,), overhead_seconds=(4.0,), fetching_overhead_seconds=(15.0,))
    assert lease_seconds(pace, 1, False, 0.0, POLICY) == 2 * (4.0 + 1.0)
    assert lease_seconds(pace, 1, True, 0.0, POLICY) == 2 * (15.0 + 1.0)
    assert lease_seconds(Pace(work_seconds=(1.0,), overhead_seconds=(4.0,)), 1, True, 0.0, POLICY) == 10.0


def test_success_forgives() -> None:
    pace = Pace(expired=3, failed=2, fenced=1)
    pace.rest(100.0, 2.0)
    assert pace.rest_until == 108.0
    for seconds in range(1, 40):
        pace.trained(4.0 * seconds, 2.0 * seconds, 4)
    assert (pace.expired, pace.failed, pace.fenced) == (3, 3, 1)
    pace.succeeded()
    assert (pace.expired, pace.failed, pace.fenced) == (0, 0, 0)
    assert pace.work_seconds == tuple(seconds / 2 for seconds in range(40 - PAST, 40))
    assert pace.overhead_seconds == tuple(2.0 * seconds for seconds in range(40 - PAST, 40))
    assert pace.fetching_overhead_seconds == ()


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
    assert expected_seconds(Pace(), 4, False, POLICY) == 20.0
    pace = Pace(work_seconds=(2.0,), overhead_seconds=(1.0,))
    assert expected_seconds(pace, 4, False, POLICY) == 2 * (1.0 + 4 * 2.0)


def test_the_typical_worker_is_the_median_of_those_with_a_past() -> None:
    paces = [Pace(work_seconds=(seconds,)) for seconds in (1.0, 1.0, 4.0)]
    assert typical_step_seconds([*paces, Pace()]) == 1.0
    assert typical_step_seconds([Pace()]) == 0.0


def test_a_worker_that_keeps_failing_rests_at_most_sixteen_units() -> None:
    pace = Pace()
    rests = []
    for _ in range(7):
        pace.rest(100.0, 2.0)
        rests.append((pace.rest_until - 100.0) / 2.0)
    assert rests == [1, 2, 4, 8, 16, 16, 16]
