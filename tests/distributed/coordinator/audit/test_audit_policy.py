"""Which leases are audited, in which pieces."""

import pytest

from pcp.distributed.coordinator import decode, encode
from pcp.distributed.coordinator.audit.policy import AuditPolicy, InvalidAuditPolicy, Piece, pieces


@pytest.mark.parametrize(
    ("steps", "borders"),
    [(8, (0, 2, 4, 6, 8)), (30, (0, 7, 15, 22, 30)), (3, (0, 1, 2, 3)), (1, (0, 1)), (0, (0, 0))],
)
def test_a_lease_is_cut_evenly(steps: int, borders: tuple[int, ...]) -> None:
    assert AuditPolicy(pieces=4).borders(steps) == borders


def test_the_last_piece_includes_the_push() -> None:
    assert pieces((0, 3, 8)) == (Piece(0, 3), Piece(3, 5, push=True))
    assert pieces((0, 0)) == (Piece(0, 0, push=True),)


@pytest.mark.parametrize("rate", [0.0, 0.02, 0.3, 1.0])
def test_so_many_leases_are_picked(rate: float) -> None:
    picked = sum(AuditPolicy(rate, seed=5).is_picked(lease) for lease in range(4000))
    assert abs(picked / 4000 - rate) < 0.02


def test_the_seed_decides() -> None:
    chosen = [[AuditPolicy(0.5, seed=seed).is_picked(lease) for lease in range(64)] for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_the_policy_is_kept_in_the_log() -> None:
    policy = AuditPolicy(0.1, 3, 1e-4, 77)
    assert decode(encode(policy)) == policy


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rate": 1.5}, "the audit rate is 1.5; it is a share of the leases, from 0 to 1"),
        ({"rate": -0.1}, "the audit rate is -0.1; it is a share"),
        ({"pieces": 0}, "a lease is cut into 0 pieces; it must be at least 1"),
        ({"tolerance": float("nan")}, "the tolerance is nan; it must be at least 0"),
    ],
)
def test_a_policy_out_of_range_is_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidAuditPolicy, match=message):
        AuditPolicy(**values)  # type: ignore[arg-type]  # values of any kind, to be refused
