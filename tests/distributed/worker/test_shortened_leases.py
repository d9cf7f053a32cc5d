"""A lease that ends sooner than it was granted: the trainer decides where, and the Shepherd hears it with every heartbeat."""

from dataclasses import replace

import pytest

from pcp.distributed.messages import Assign, DataRange, HeartbeatReply, Lease, Resume, Update
from pcp.distributed.worker.effects import Shorten
from pcp.distributed.worker.events import LeaseProgress, LeaseTrained, Prepared
from pcp.distributed.worker.training.course import Course
from tests.distributed.worker.bench import LEASE, PAYLOAD, WELCOME, Bench

LONG = replace(LEASE, data=DataRange(40, 8), further=(DataRange(90, 4),), last_step=24)


@pytest.fixture
def training() -> Bench:
    """A worker that trains a lease of twelve batches and exchanges after every four."""
    bench = Bench()
    bench.connect()
    bench.do(Prepared(0.0, "{}", resumes=True))
    bench.hear(Assign(LONG))
    bench.fetched()
    return bench


def answer(bench: Bench, batches: int, last_step: int = 24) -> list[object]:
    bench.hear(HeartbeatReply(1, LONG.lease_id, batches, last_step))
    return list(bench.effects)


def heartbeat(bench: Bench) -> tuple[int, int]:
    bench.wait(1.0)
    [beat] = bench.said()
    return beat.steps_done, beat.batches  # type: ignore[union-attr]  # a heartbeat


def test_what_the_shepherd_wants_goes_to_the_trainer_once(training: Bench) -> None:
    assert answer(training, 12) == []
    assert answer(training, 4, 20) == [Shorten(LONG.lease_id, 4, 20)]
    assert answer(training, 4, 20) == []
    training.hear(HeartbeatReply(1, LONG.lease_id + 1, 4, 20))
    assert training.effects == []


def test_the_trainer_decides_and_it_is_said_until_the_end(training: Bench) -> None:
    answer(training, 4)
    assert heartbeat(training) == (0, 12)
    training.do(LeaseProgress(training.now, LONG.lease_id, 5, 0.1, 8))
    assert heartbeat(training) == (5, 8)
    assert heartbeat(training) == (5, 8)
    training.lose()
    training.connect(replace(WELCOME, generation=12))
    resumed = next(each for each in training.said() if isinstance(each, Resume))
    assert resumed.lease.ranges == (DataRange(40, 8),)
    training.do(LeaseTrained(training.now, LONG.lease_id, PAYLOAD, 800, (2.0,) * 8, 3.0, batches=8))
    training.uploaded()
    [update] = [each for each in training.said() if isinstance(each, Update)]
    assert update.steps == 8


def walked(course: Course, wanted: dict[int, Shorten]) -> tuple[list[int], list[int]]:
    """The batches, and their step numbers; what is wanted is heard after so many."""
    batches, steps = [], []
    for done, batch in enumerate(course, 1):
        batches.append(batch)
        steps.append(course.step)
        if done in wanted:
            course.shorten(wanted[done], done)
    return batches, steps


def shorten(batches: int, last_step: int = 24) -> Shorten:
    return Shorten(LONG.lease_id, batches, last_step)


def test_a_course_goes_through_all_ranges_in_order() -> None:
    course = Course(LONG, 4)
    assert not course.stretched
    assert walked(course, {}) == ([*range(40, 48), *range(90, 94)], list(range(12, 24)))


@pytest.mark.parametrize(
    ("done", "wanted", "batches"),
    [(1, 4, 4), (4, 4, 4), (5, 4, 8), (8, 4, 8), (9, 4, 12), (1, 7, 8), (1, 99, 12), (1, 0, 4)],
)
def test_a_course_ends_at_an_exchange_and_never_before_what_is_done(
    done: int, wanted: int, batches: int
) -> None:
    assert len(walked(Course(LONG, 4), {done: shorten(wanted)})[0]) == batches


def test_it_never_becomes_longer_again() -> None:
    assert len(walked(Course(LONG, 4), {1: shorten(4), 2: shorten(12)})[0]) == 4


def test_schedules_end_with_the_lease() -> None:
    _, steps = walked(Course(LONG, 4), {2: shorten(8)})
    assert steps[:2] == [12, 13]
    assert steps[2:] == [14 + done * (24 - 14) // 6 for done in range(6)]
    stretched = Course(replace(LONG, last_step=36), 4)
    assert stretched.stretched
    assert walked(stretched, {})[1] == list(range(12, 36, 2))


def test_a_schedule_never_goes_back() -> None:
    _, steps = walked(Course(LONG, 4), {8: shorten(12, 2)})
    assert steps == [*range(12, 20), 20, 20, 20, 20]


def test_a_lease_is_cut_range_by_range() -> None:
    lease: Lease = LONG.cut(9)
    assert (lease.ranges, lease.batches, lease.named) == (
        (DataRange(40, 8), DataRange(90, 1)),
        9,
        "40-47, 90-90",
    )
