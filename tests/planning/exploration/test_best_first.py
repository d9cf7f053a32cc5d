"""Tests of the lazy enumeration of combinations."""

import itertools
import random

from pcp.planning.exploration.best_first import best_first


def test_every_combination_comes_once_and_in_order() -> None:
    rng = random.Random(0)
    for _ in range(50):
        costs = [
            [rng.choice([rng.random(), 0.5]) for _ in range(rng.randint(1, 4))]
            for _ in range(rng.randint(0, 5))
        ]
        found = list(best_first(costs))
        sums = [sum(each[i] for each, i in zip(costs, one, strict=True)) for one in found]
        assert sorted(found) == sorted(itertools.product(*(range(len(each)) for each in costs)))
        assert all(a <= b + 1e-12 for a, b in itertools.pairwise(sums))


def test_it_never_lists_them_all() -> None:
    costs = [[float(option) for option in range(7)] for _ in range(200)]  # 7^200 combinations
    first = list(itertools.islice(best_first(costs), 300))
    assert len(set(first)) == 300
    assert [sum(first[place]) for place in (0, 200, 201)] == [0, 1, 2]
