"""Sets of data ranges against plain sets of batches."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcp.distributed.coordinator.rounds import data_ranges
from pcp.distributed.coordinator.rounds.data_ranges import Ranges, RangesOverlap
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


@given(range_sets(), st.integers(0, 50))
def test_gaps_are_what_is_left_out(ranges: Ranges, limit: int) -> None:
    coalesced = data_ranges.coalesce(ranges)
    result = data_ranges.gaps(coalesced, limit)
    assert batches(result) == set(range(limit)) - batches(ranges)
    assert data_ranges.coalesce(result) == result


@given(range_sets(), st.integers(0, 50))
def test_totals(ranges: Ranges, limit: int) -> None:
    assert data_ranges.total(ranges) == len(batches(ranges))
    assert data_ranges.total_below(ranges, limit) == len(batches(ranges) & set(range(limit)))


def test_overlaps_are_named() -> None:
    with pytest.raises(RangesOverlap, match=r"start=2.* overlaps .*start=0.* its batches would count twice"):
        data_ranges.coalesce((DataRange(0, 3), DataRange(2, 2)))


@given(st.integers(0, 100), st.integers(0, 40), st.integers(1, 9))
def test_cut_covers_everything_in_order(start: int, count: int, length: int) -> None:
    pieces = data_ranges.cut(start, count, length)
    assert data_ranges.coalesce(pieces) == ((DataRange(start, count),) if count else ())
    assert all(each.count == length for each in pieces[1:-1])
    assert all(each.start % length == 0 for each in pieces[1:])
