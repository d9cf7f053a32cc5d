"""Sets of data ranges against plain sets of batches."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcp.distributed.coordinator import data_ranges
from pcp.distributed.coordinator.data_ranges import RangeNotHeld, Ranges
from pcp.distributed.messages import DataRange


def batches(ranges: Ranges) -> set[int]:
    return {batch for each in ranges for batch in range(each.start, each.start + each.count)}


@st.composite
def range_sets(draw: st.DrawFn) -> Ranges:
    at, ranges = 0, []
    for gap, count in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=6)):
        ranges.append(DataRange(at + gap, count))
        at += gap + count
    return tuple(ranges)


@given(range_sets(), st.randoms(use_true_random=False))
def test_coalesce_keeps_the_batches(ranges: Ranges, random: object) -> None:
    shuffled = list(ranges)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types it as object
    result = data_ranges.coalesce(shuffled)
    assert batches(result) == batches(ranges)
    assert all(one.start + one.count < other.start for one, other in pairwise(result))


@given(range_sets(), st.integers(0, 30), st.integers(1, 6))
def test_subtract_and_insert_are_inverse(ranges: Ranges, start: int, count: int) -> None:
    piece = DataRange(start, count)
    held = any(each.start <= start and start + count <= each.start + each.count for each in ranges)
    if not held:
        with pytest.raises(RangeNotHeld, match="is not inside one of the ranges"):
            data_ranges.subtract(ranges, piece)
        return
    rest = data_ranges.subtract(ranges, piece)
    assert batches(rest) == batches(ranges) - batches((piece,))
    again = data_ranges.insert(rest, piece)
    assert data_ranges.coalesce(again) == data_ranges.coalesce(ranges)
    assert list(again) == sorted(again, key=lambda each: each.start)


def test_overlaps_are_named() -> None:
    with pytest.raises(RangeNotHeld, match=r"start=2.* overlaps .*start=0.* its batches would count twice"):
        data_ranges.coalesce((DataRange(0, 3), DataRange(2, 2)))


@given(st.integers(0, 100), st.integers(0, 40), st.integers(1, 9))
def test_cut_covers_everything_in_order(start: int, count: int, length: int) -> None:
    pieces = data_ranges.cut(start, count, length)
    assert data_ranges.coalesce(pieces) == ((DataRange(start, count),) if count else ())
    assert all(each.count == length for each in pieces[:-1])
