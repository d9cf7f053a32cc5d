"""Each attack moves the plain mean away from what the honest say, and the default merge hardly."""

from collections.abc import Mapping

import numpy as np
import pytest
from benchmarks.distributed.attacks import ATTACKS, HONEST_PUSHES, UnknownAttack, attack

from pcp.distributed.merging import Merge, merge
from tests.distributed.merging.contributions import SEGMENTS, SIZE, distance, honest, loaders

WORKERS, HOSTILE = 8, (2, 5)
ROUNDS = HONEST_PUSHES + 3

# attack -> how far the plain mean is moved at least; how far the default merge is at most; what it says of the hostile.
# Distances are relative to the mean of all workers, were they honest; that of the honest six lies 0.2 from it.
EXPECTED = {
    "sign flip": (0.5, 0.3, "its cosine with the median of all is -"),
    "sign flip x10": (3.0, 0.3, "its cosine with the median of all is -"),
    "NaN": (0.2, 0.3, "it holds infinities or NaN"),
    "stale": (0.3, 0.3, "it was merged in an earlier round"),
    "copied": (0.25, 0.3, "3 contributions are alike and share the weight of one"),
    "constant bias": (0.09, 0.3, ""),
}


@pytest.fixture(scope="module")
def default() -> Merge:
    return merge("default", SEGMENTS)


def arrived(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """For some rounds: what everybody would have sent, and what came."""
    send, rounds = attack(name, HOSTILE), []
    for round in range(ROUNDS):
        rows = honest(100 + round)
        sent: Mapping[int, np.ndarray] = send(round, 0, dict(enumerate(rows)))
        rounds.append((rows, np.stack([sent[worker] for worker in range(WORKERS)])))
    return rounds


def test_every_attack_has_its_expectation() -> None:
    assert set(EXPECTED) == set(ATTACKS)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_moves_the_mean_and_hardly_the_default_merge(name: str, default: Merge) -> None:
    least, most, words = EXPECTED[name]
    state, rounds = None, arrived(name)
    for _, sent in rounds:
        merged = default(loaders(sent), [1.0] * WORKERS, state)
        state = merged.state
    clean = rounds[-1][0].mean(0, dtype=np.float64)
    assert distance(np.nan_to_num(sent).mean(0, dtype=np.float64), clean) >= least
    assert distance(merged.mean, clean) <= most
    for worker, verdict in enumerate(merged.verdicts):
        if worker in HOSTILE:
            assert verdict.reason.startswith(words)
        elif name != "copied":
            assert verdict.reason == ""


@pytest.mark.parametrize("name", ["sign flip", "sign flip x10", "NaN", "stale"])
def test_who_is_found_out_counts_for_nothing(name: str, default: Merge) -> None:
    state = None
    for _, sent in arrived(name):
        merged = default(loaders(sent), [1.0] * WORKERS, state)
        state = merged.state
    shares = [verdict.weight for verdict in merged.verdicts]
    assert [shares[worker] for worker in HOSTILE] == [0.0, 0.0]
    np.testing.assert_allclose(sum(shares), 1.0)


def test_copies_share_one_weight(default: Merge) -> None:
    _, sent = arrived("copied")[0]
    shares = [verdict.weight for verdict in default(loaders(sent), [1.0] * WORKERS).verdicts]
    np.testing.assert_allclose([shares[worker] for worker in (2, 5, 7)], [1 / 18] * 3)
    np.testing.assert_allclose([shares[worker] for worker in (0, 1, 3, 4, 6)], [1 / 6] * 5)


def test_accomplices_who_agree_in_what_nobody_else_has_share_one_weight(default: Merge) -> None:
    rows = honest(7)
    secret = 2 * np.random.default_rng(8).standard_normal(SIZE) * np.abs(rows[0])
    for worker in HOSTILE:
        rows[worker] += secret.astype(np.float32)
    verdicts = default(loaders(rows), [1.0] * WORKERS).verdicts
    assert all("2 contributions are alike" in verdicts[worker].reason for worker in HOSTILE)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_nobody_honest_is_left_out(seed: int, noise: float, default: Merge) -> None:
    merged = default(loaders(honest(seed, noise=noise)), [1.0] * WORKERS)
    assert [verdict.weight for verdict in merged.verdicts] == [1 / WORKERS] * WORKERS


def test_a_short_lease_is_no_reason_to_be_left_out(default: Merge) -> None:
    rows = honest(11)
    rows[0] *= 0.25
    rows[1:4] = (rows[1:4] + 3 * honest(12)[1:4]) / 8  # a quarter of the steps, noisier
    merged = default(loaders(rows), [1.0, 0.25, 0.25, 0.25, 1.0, 1.0, 1.0, 1.0])
    assert all(verdict.weight > 0 for verdict in merged.verdicts)


def test_two_contributions_that_disagree_are_both_kept(default: Merge) -> None:
    row = honest(13, count=1)[0]
    merged = default(loaders(np.stack([row, -row])), [1.0, 1.0])
    assert [verdict.weight for verdict in merged.verdicts] == [0.5, 0.5]


def test_a_training_that_stands_still_is_merged(default: Merge) -> None:
    rows = honest(14)
    first = default(loaders(rows), [1.0] * WORKERS)
    second = default(loaders(rows), [1.0] * WORKERS, first.state)
    np.testing.assert_array_equal(np.asarray(second.mean), np.asarray(first.mean))


def test_a_scaled_copy_of_an_old_contribution_is_known(default: Merge) -> None:
    old = honest(15)
    state = default(loaders(old), [1.0] * WORKERS).state
    rows = honest(16)
    rows[4] = 1.3 * old[6]
    verdict = default(loaders(rows), [1.0] * WORKERS, state).verdicts[4]
    assert (verdict.weight, verdict.reason) == (0.0, "it was merged in an earlier round")


def test_contributions_without_anything_in_them_are_merged(default: Merge) -> None:
    merged = default(loaders(np.zeros((4, SIZE), np.float32)), [1.0] * 4)
    np.testing.assert_array_equal(np.asarray(merged.mean), np.zeros(SIZE, np.float32))


def test_an_unknown_attack_is_named() -> None:
    with pytest.raises(UnknownAttack, match='no attack "flood"; choose one of NaN, constant bias, copied'):
        attack("flood", [0])
