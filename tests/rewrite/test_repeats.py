"""Stretches of a sequence that repeat."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pcp.rewrite.repeats import Repeat, repeats

LAYER = list(range(100, 120))


@pytest.mark.parametrize(
    ("symbols", "expected"),
    [
        ([1, 2, 3, *LAYER * 5, 4, 5], [Repeat(3, 20, 103)]),
        ([*LAYER * 4, 7, *LAYER[::-1] * 3], [Repeat(0, 20, 80), Repeat(81, 20, 141)]),
        ([*LAYER * 2, *LAYER[:9]], [Repeat(0, 20, 49)]),  # the third is not whole
        ([1, *LAYER, 2, *LAYER, 3], []),  # once each is no stretch
        (list(range(300)), []),
        ([5] * 300, []),  # a period of one symbol is too short
        ([], []),
        ([1, 2, 3], []),
    ],
)
def test_what_repeats_is_found(symbols: list[int], expected: list[Repeat]) -> None:
    assert repeats(symbols, shortest=10) == expected


def test_the_longer_of_two_that_overlap_is_found() -> None:
    twice = [*LAYER, *LAYER, 1]  # repeats three times, and in each the layer once
    (found,) = repeats(twice * 3, shortest=10)
    assert found == Repeat(0, 41, 123)
    assert found.saved == 82


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 6)),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 12),
)
def test_every_stretch_repeats_and_none_overlap(parts: list[tuple[list[int], int]], shortest: int) -> None:
    symbols = [symbol for part, times in parts for symbol in part * times]
    found = repeats(symbols, shortest)
    for each in found:
        assert each.period >= shortest
        assert each.saved >= each.period
        stretch = symbols[each.start : each.stop]
        assert stretch[: -each.period] == stretch[each.period :]
    assert all(a.stop <= b.start for a, b in pairwise(found))
