"""Who exchanges with whom."""

import itertools
from collections import Counter

import pytest

from pcp.distributed.gossip.pairs import pairs, partner_of

NAMES = [f"worker-{number}" for number in range(9)]


@pytest.mark.parametrize("count", range(10))
def test_everybody_has_one_partner_but_for_one_at_most(count: int) -> None:
    members = NAMES[:count]
    found = pairs(7, 3, members)
    assert len(found) == count // 2
    assert len({name for pair in found for name in pair}) == 2 * (count // 2)
    assert found == pairs(7, 3, reversed(members)), "a function of the set of members"
    for one, other in found:
        assert partner_of(one, 7, 3, members) == other
        assert partner_of(other, 7, 3, set(members) - {other}) is not None or count == 2
    alone = [name for name in members if partner_of(name, 7, 3, members) is None]
    assert len(alone) == count % 2


def test_partners_differ_from_exchange_to_exchange_and_from_run_to_run() -> None:
    met = Counter(partner_of("worker-0", 1, number, NAMES[:8]) for number in range(700))
    assert set(met) == set(NAMES[1:8])
    assert max(met.values()) < 150, "each of seven about 100 times"
    assert any(pairs(1, number, NAMES) != pairs(2, number, NAMES) for number in range(3))


def test_others_stay_paired_when_one_leaves_more_often_than_not() -> None:
    kept = [len({*pairs(5, number, NAMES[:8])} & {*pairs(5, number, NAMES[:7])}) for number in range(200)]
    assert sum(kept) > 200, "of three pairs, more than one on average"


def test_a_member_counts_itself_in() -> None:
    for seed, number in itertools.product(range(3), range(5)):
        assert partner_of("a", seed, number, ["b"]) == "b"
        assert partner_of("a", seed, number, []) is None
