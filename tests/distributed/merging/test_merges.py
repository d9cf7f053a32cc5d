"""Every merge: its formula in float64, what it refuses, and what the order of contributions changes."""

from itertools import permutations

import numpy as np
import pytest

from pcp.distributed.merging import (
    MERGES,
    InvalidSegments,
    InvalidWeights,
    Merge,
    NothingToMerge,
    NothingUsable,
    Segment,
    UnknownMerge,
    WrongLength,
    merge,
)
from pcp.distributed.merging.base import NOT_FINITE, Loader
from tests.distributed.merging.contributions import SEGMENTS, SIZE, distance, honest, joined, leaves, loaders

WEIGHTS = np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0])
SHARES = WEIGHTS / WEIGHTS.sum()


@pytest.fixture(scope="module")
def merges() -> dict[str, Merge]:
    return {name: merge(name, SEGMENTS) for name in MERGES}


def norms(rows: np.ndarray) -> np.ndarray:
    return np.stack([np.linalg.norm(leaf, axis=1) for leaf in leaves(rows)], axis=1)


def mean(rows: np.ndarray) -> np.ndarray:
    return np.asarray(SHARES @ rows.astype(np.float64))


def clip(rows: np.ndarray) -> np.ndarray:
    scale = np.minimum(1, np.median(norms(rows), axis=0) / norms(rows))
    return joined([SHARES @ (leaf * scale[:, [i]]) for i, leaf in enumerate(leaves(rows))])


def trimmed(rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.sort(rows.astype(np.float64), axis=0)[2:-2].mean(axis=0))


def centred(rows: np.ndarray, start: float | np.ndarray = 0.0) -> np.ndarray:
    centre = np.zeros(SIZE) + start
    for _ in range(2):
        away = rows.astype(np.float64) - centre
        distances = np.linalg.norm(away, axis=1)
        centre = centre + SHARES @ (away * np.minimum(1, np.median(distances) / distances)[:, None])
    return centre


def radial(rows: np.ndarray) -> np.ndarray:
    parts = []
    for segment, leaf in zip(SEGMENTS, leaves(rows), strict=True):
        length = np.linalg.norm(leaf, axis=1)
        towards = SHARES @ (leaf / length[:, None])
        radius = SHARES @ length
        parts.append(SHARES @ leaf if segment.embedding else radius * towards / np.linalg.norm(towards))
    return joined(parts)


def default(rows: np.ndarray) -> np.ndarray:
    # All are honest: only the norms are clipped, each to the median of what the others' would be at its weight.
    longer = np.maximum(1, WEIGHTS[:, None] / WEIGHTS[None])
    bounds = np.median(longer[:, :, None] * norms(rows)[None], axis=1)
    scale = np.minimum(1, bounds / norms(rows))
    return joined([SHARES @ (leaf * scale[:, [i]]) for i, leaf in enumerate(leaves(rows))])


REFERENCES = {
    "mean": mean,
    "clip": clip,
    "trimmed": trimmed,
    "centred": centred,
    "radial": radial,
    "default": default,
}


def test_every_merge_has_a_reference() -> None:
    assert set(REFERENCES) == set(MERGES)


@pytest.mark.parametrize("name", MERGES)
def test_a_merge_is_its_formula(name: str, merges: dict[str, Merge]) -> None:
    rows = honest(1)
    rows[3] *= 1.5  # so that something is clipped
    merged = merges[name](loaders(rows), WEIGHTS.tolist())
    assert distance(merged.mean, REFERENCES[name](rows)) < 2e-6
    expected = np.full(8, 1 / 8) if name == "trimmed" else SHARES
    np.testing.assert_allclose([verdict.weight for verdict in merged.verdicts], expected)


@pytest.mark.parametrize("name", MERGES)
def test_the_order_of_workers_changes_only_rounding(name: str, merges: dict[str, Merge]) -> None:
    rows = honest(2, count=4)
    rows[1] *= -10
    weights = [1.0, 2.0, 1.5, 1.0]
    first = merges[name](loaders(rows), weights)
    for order in list(permutations(range(4)))[1::5]:
        other = merges[name](loaders(rows[list(order)]), [weights[place] for place in order])
        assert distance(other.mean, np.asarray(first.mean, np.float64)) < 2e-6
        assert [other.verdicts[order.index(place)].reason for place in range(4)] == [
            verdict.reason for verdict in first.verdicts
        ]


@pytest.mark.parametrize("name", MERGES)
def test_the_same_contributions_in_the_same_order_give_the_same_bits(
    name: str, merges: dict[str, Merge]
) -> None:
    rows = honest(3)
    once, again = (merges[name](loaders(rows), WEIGHTS.tolist()) for _ in range(2))
    np.testing.assert_array_equal(np.asarray(once.mean), np.asarray(again.mean))
    assert once.verdicts == again.verdicts


@pytest.mark.parametrize("name", MERGES)
@pytest.mark.parametrize("count", [1, 2])
def test_equal_contributions_are_one(name: str, count: int, merges: dict[str, Merge]) -> None:
    row = honest(4, count=1)
    merged = merges[name](loaders(np.repeat(row, count, axis=0)), [3.0] * count)
    assert distance(merged.mean, row[0]) < 1e-6
    assert all(verdict.reason == "" for verdict in merged.verdicts)


def test_the_mean_of_what_is_finite_loads_each_contribution_once(merges: dict[str, Merge]) -> None:
    rows, loaded = honest(6, count=4), [0] * 4

    def loader(place: int) -> Loader:
        def load() -> np.ndarray:
            loaded[place] += 1
            return rows[place]

        return load

    counted = [loader(place) for place in range(4)]
    merges["mean"](counted, [1.0, 2.0, 3.0, 4.0])
    assert loaded == [1, 1, 1, 1]
    rows[2, 7] = np.inf
    merges["mean"](counted, [1.0, 2.0, 3.0, 4.0])
    assert loaded == [4, 4, 3, 4]  # and the one that is not finite is not added again


@pytest.mark.parametrize("name", MERGES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_contribution_that_is_not_finite_is_refused(
    name: str, value: float, merges: dict[str, Merge]
) -> None:
    rows = honest(5, count=4)
    rows[2, 1605] = value
    merged = merges[name](loaders(rows), [1.0, 2.0, 3.0, 4.0])
    alone = merges[name](loaders(rows[[0, 1, 3]]), [1.0, 2.0, 4.0])
    np.testing.assert_array_equal(np.asarray(merged.mean), np.asarray(alone.mean))
    assert merged.verdicts[2].weight == 0
    assert merged.verdicts[2].reason == NOT_FINITE


@pytest.mark.parametrize("name", sorted(set(MERGES) - {"mean", "radial"}))
def test_a_huge_finite_contribution_moves_nothing_far(name: str, merges: dict[str, Merge]) -> None:
    rows = honest(6)
    rows[0] = 3e38
    merged = merges[name](loaders(rows), WEIGHTS.tolist())
    assert distance(merged.mean, honest(6, noise=0)[0]) < 1


@pytest.mark.parametrize("name", MERGES)
def test_errors_say_what_was_given(name: str, merges: dict[str, Merge]) -> None:
    rows = honest(7, count=2)
    with pytest.raises(NothingToMerge, match="no contribution was given; a merge needs one or more"):
        merges[name]([], [])
    with pytest.raises(InvalidWeights, match="2 contributions with 1 weights; expected one for each"):
        merges[name](loaders(rows), [1.0])
    with pytest.raises(InvalidWeights, match=r"weights \[1.0, 0.0\]; each must be finite and above zero"):
        merges[name](loaders(rows), [1.0, 0.0])
    with pytest.raises(WrongLength, match=rf"contribution 1 has shape \(3,\); the fragment's is \({SIZE},\)"):
        merges[name]([loaders(rows)[0], lambda: np.zeros(3, np.float32)], [1.0, 1.0])
    with pytest.raises(NothingUsable, match="none of the 2 contributions is usable"):
        merges[name](loaders(rows * np.float32(np.nan)), [1.0, 1.0])
    with pytest.raises(
        InvalidSegments, match=r"segments of sizes \[4, 0\]; a fragment needs one leaf or more"
    ):
        MERGES[name]([Segment("a", 4), Segment("b", 0)], None)


def test_an_unknown_merge_is_named() -> None:
    with pytest.raises(UnknownMerge, match='no merge "average"; choose one of centred, clip, default'):
        merge("average", SEGMENTS)


def test_what_lies_far_away_is_told_in_words(merges: dict[str, Merge]) -> None:
    rows = honest(8)
    rows[1] *= 10
    reasons = {
        name: merges[name](loaders(rows), [1.0] * 8).verdicts[1].reason
        for name in ("clip", "centred", "default")
    }
    assert "is left of it, which is what the median allows" in reasons["clip"]
    assert "times as far from the centre as the median" in reasons["centred"]
    assert "is left of it, which is what the median allows" in reasons["default"]


def test_directions_that_cancel_are_averaged_plainly(merges: dict[str, Merge]) -> None:
    row = honest(9, count=1)[0]
    merged = merges["radial"](loaders(np.stack([row, -row])), [1.0, 1.0])
    np.testing.assert_array_equal(np.asarray(merged.mean), np.zeros(SIZE, np.float32))


def test_centred_clipping_begins_at_what_the_last_round_came_to(merges: dict[str, Merge]) -> None:
    rows = honest(10)
    first = merges["centred"](loaders(rows), WEIGHTS.tolist())
    other = honest(11)
    second = merges["centred"](loaders(other), WEIGHTS.tolist(), first.state)
    assert distance(second.mean, centred(other, np.asarray(first.mean, np.float64))) < 2e-6
    assert distance(second.mean, centred(other)) > 1e-5
