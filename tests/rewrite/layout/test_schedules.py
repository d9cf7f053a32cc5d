"""Orders of a pipeline keep dependences, hold as many micro-batches as they promise, and wait as their formulas say."""

import random
from collections import Counter

import pytest

from pcp.rewrite.layout.schedules import RULES, InvalidPipeline, Kind, Schedule, Unit, needed_by, schedule

SIZES = [(1, 3), (2, 2), (2, 8), (3, 6), (4, 4), (4, 16), (8, 8), (8, 24)]


def assert_is_an_order(made: Schedule, devices: int, batches: int, stages: int, splits: bool) -> None:
    """Every unit once, on its device, and no device ever waits for one that waits for it."""
    units = [unit for order in made.orders for unit in order]
    kinds = list(Kind) if splits else [Kind.forward, Kind.backward]
    assert Counter(units) == Counter(
        Unit(s, b, k) for s in range(stages) for b in range(batches) for k in kinds
    )
    assert all(unit.stage % devices == device for device, order in enumerate(made.orders) for unit in order)
    left, done = [list(order) for order in made.orders], set[Unit]()
    while any(left):
        ready = [order for order in left if order and done.issuperset(needed_by(order[0], stages))]
        assert ready
        done.update(order.pop(0) for order in ready)


def most_ahead(made: Schedule) -> tuple[int, ...]:
    """Of each device, how many forward passes wait for their backward pass at most."""
    peaks = []
    for order in made.orders:
        ahead = [0]
        for unit in order:
            ahead.append(ahead[-1] + {Kind.forward: 1, Kind.backward: -1, Kind.weights: 0}[unit.kind])
        peaks.append(max(ahead))
    return tuple(peaks)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("devices", "batches"), SIZES)
def test_an_order_takes_the_time_and_the_memory_of_its_formula(rule: str, devices: int, batches: int) -> None:
    made = schedule(rule, devices, batches)
    splits = rule == "zero-bubble-h1"
    assert_is_an_order(made, devices, batches, devices, splits)
    waits = (devices - 1) * (1 if splits else 3)
    assert made.seconds == 3 * batches + waits
    assert made.bubble == pytest.approx(waits / (3 * batches + waits))
    live = {
        "gpipe": (batches,) * devices,
        "1f1b": tuple(min(batches, devices - device) for device in range(devices)),
        "zero-bubble-h1": made.live,
        "interleaved": tuple(min(batches, 2 * (devices - device - 1) + 1) for device in range(devices)),
    }[rule]
    assert made.live == live
    assert max(made.live) <= devices or rule not in ("1f1b", "zero-bubble-h1")
    assert most_ahead(made) == (
        live if not splits else tuple(min(batches, devices - d) for d in range(devices))
    )


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize(("devices", "batches"), SIZES[1:])
def test_stages_in_parts_wait_so_many_times_less(devices: int, batches: int, parts: int) -> None:
    made = schedule("interleaved", devices, batches, devices * parts, (1 / parts, 1 / parts, 1 / parts))
    assert_is_an_order(made, devices, batches, devices * parts, splits=False)
    assert made.seconds == pytest.approx(3 * batches + 3 * (devices - 1) / parts)


@pytest.mark.parametrize("rule", RULES)
def test_an_order_is_one_whatever_units_take(rule: str) -> None:
    drawn = random.Random(3)
    for _ in range(10):
        seconds = tuple(drawn.uniform(0.1, 3) for _ in range(3))
        made = schedule(rule, 4, 8, seconds=seconds)
        assert_is_an_order(made, 4, 8, 4, splits=rule == "zero-bubble-h1")
        assert made.seconds >= 8 * sum(seconds)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("2f2b", 2, 4), "a pipeline '2f2b' of 2 devices, 2 stages and 4 micro-batches was given; expected one of gpipe, 1f1b"),
        (("1f1b", 0, 4), "a pipeline '1f1b' of 0 devices"),
        (("interleaved", 4, 8, 6), "of 4 devices, 6 stages and 8 micro-batches was given"),
        (("interleaved", 4, 6, 8), "8 stages on 4 devices and 6 micro-batches were given with 'interleaved'; several stages"),
        (("1f1b", 4, 8, 8), "with '1f1b'; several stages on a device are interleaved, with micro-batches in groups of 4"),
    ],
)  # fmt: skip
def test_what_is_no_pipeline_is_refused(arguments: tuple[str, int, int], message: str) -> None:
    with pytest.raises(InvalidPipeline, match=message):
        schedule(*arguments)
