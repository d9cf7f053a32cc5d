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


def test_what_does_not_go_together_never_comes() -> None:
    rng = random.Random(1)
    for _ in range(100):
        costs = [
            [rng.choice([rng.random(), 0.5]) for _ in range(rng.randint(1, 3))]
            for _ in range(rng.randint(0, 6))
        ]
        pairs = {
            pair
            for pair in itertools.combinations(range(len(costs)), 2)
            if rng.random() < rng.choice([0.2, 0.7])
        }
        apart = [{a + b - one for a, b in pairs if one in (a, b)} for one in range(len(costs))]
        found = list(best_first(costs, apart))
        sums = [sum(each[i] for each, i in zip(costs, one, strict=True)) for one in found]
        wanted = itertools.product(*(range(len(each)) for each in costs))
        assert sorted(found) == sorted(one for one in wanted if not any(one[a] and one[b] for a, b in pairs))
        assert all(a <= b + 1e-12 for a, b in itertools.pairwise(sums))


def test_a_chain_of_lists_that_do_not_go_together_is_no_deep_recursion() -> None:
    costs = [[1.0, 0.5 + place * 1e-4, 0.8] for place in range(200)]
    apart = [{place - 1, place + 1}.intersection(range(200)) for place in range(200)]
    first = list(itertools.islice(best_first(costs, apart), 10))
    assert len(set(first)) == 10
    assert sum(map(bool, first[0])) == 100
