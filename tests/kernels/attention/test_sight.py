"""Which keys a query sees, as all kernels of attention take it from one record: beside a table of every query and key."""

import math
from typing import Any

import numpy as np
import pytest

from pcp.kernels.attention.sight import Band, Sight

LENGTHS = ((1, 1), (5, 5), (4, 9), (9, 4), (7, 6))
BANDS = [Band(first, end) for first in (None, -7, -2, 0, 1, 4) for end in (None, -1, 0, 1, 3, 9)]


def table(band: Band, rows: int, columns: int) -> Any:
    """Which of so many places belong together."""
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    seen = np.ones((rows, columns), bool)
    if band.first is not None:
        seen &= j - i >= band.first
    if band.end is not None:
        seen &= j - i < band.end
    return seen


def held(band: Band, rows: slice, columns: slice) -> Any:
    """The same by its conditions, counted from the beginning of a tile."""
    shape = (rows.stop - rows.start, columns.stop - columns.start)
    seen = np.ones(shape, bool)
    for each in band.holds(np.arange(shape[0])[:, None], np.arange(shape[1])[None, :]):
        seen &= each
    return seen


def clipped(bounds: tuple[Any, Any], most: int) -> range:
    first, end = bounds
    return range(max(0, first or 0), most if end is None else min(end, most))


@pytest.mark.parametrize(("rows", "columns"), LENGTHS)
def test_a_band_is_its_table(rows: int, columns: int) -> None:
    for band in BANDS:
        whole = table(band, rows, columns)
        np.testing.assert_array_equal(whole, table(band.turned, columns, rows).T)
        for start in range(rows):
            for stop in range(start + 1, rows + 1):
                part, count = whole[start:stop], stop - start
                some, every = (
                    clipped(band.some(start, count), columns),
                    clipped(band.all(start, count), columns),
                )
                assert set(np.flatnonzero(part.any(0))) <= set(some)
                assert set(np.flatnonzero(part.all(0))) == set(every)
                tile = slice(start, stop), slice(columns // 2, columns)
                inside = band.within(*tile)
                np.testing.assert_array_equal(held(inside, *tile), part[:, tile[1]])
                for bound in ("first", "end"):  # none that hides nothing is left
                    if getattr(inside, bound) is not None:
                        alone = Band(**{bound: getattr(inside, bound)})
                        assert not held(alone, *tile).all()


def expected(queries: int, keys: int, offset: int | None, window: int | None) -> Any:
    seen = np.ones((queries, keys), bool)
    for query in range(queries):
        for key in range(keys):
            if offset is not None and key > query + offset:
                seen[query, key] = False
            if window is not None and key <= query + offset - window:
                seen[query, key] = False
    return seen


@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_attributes_say_which_keys_are_seen(queries: int, keys: int) -> None:
    for offset in (None, -2, 0, 1, keys - queries):
        for window in (None, 1, 2, 5, 1 << 30) if offset is not None else (None,):
            given: dict[str, Any] = {"causal": offset is not None}
            given |= {} if offset is None else {"offset": offset, "fill": -math.inf}
            given |= {} if window is None else {"window": window}
            sight, seen = Sight.of(given, queries, keys), expected(queries, keys, offset, window)
            np.testing.assert_array_equal(table(sight.band, queries, keys), seen)
            hides = not np.array_equal(seen, expected(queries, keys, offset, None))
            assert (sight.window is not None) is hides
            assert sight.skips is (offset is not None and bool(seen.any(1).all()))
            for start in range(queries):
                rows = slice(start, min(queries, start + 3))
                looks = sight.looks(rows)
                needed = np.flatnonzero(seen[rows].any(0)) if sight.skips else np.arange(keys)
                assert (looks.start, looks.stop) == (needed[0], needed[-1] + 1)


def test_masked_rows_that_count_are_looked_at() -> None:
    def skips(fill: float, *others: str) -> bool:
        given = {"causal": True, "offset": 0, "fill": fill, **dict.fromkeys(others, (0, 1))}
        return Sight.of(given, 8, 8).skips

    assert skips(-math.inf)
    assert skips(-math.inf, "mask", "bias")
    assert skips(-1e30)
    assert skips(-3e38)
    assert skips(-1e9)
    assert not skips(-1e4)  # a score that another row of low scores would not outweigh
    assert not skips(-1e30, "mask")
    assert not skips(-3e38, "bias")


def test_lengths_keep_all_numbers_finite_in_gradients() -> None:
    lengths = Sight.of({"causal": False, "fill": -math.inf, "key_lengths": (0,)}, 8, 8)
    assert (lengths.fill, lengths.finite) == (-math.inf, -1e30)
    assert lengths.has_lengths
    assert not lengths.has_masks
    masks = Sight.of({"causal": False, "fill": -math.inf, "mask": (0, 1)}, 8, 8)
    assert (masks.finite, masks.has_lengths, masks.has_masks) == (-math.inf, False, True)
