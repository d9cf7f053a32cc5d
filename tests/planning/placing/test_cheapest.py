"""The cheapest placement beside all that there are, of small random programs."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from pcp.planning.placing.cheapest import CopyCost, Costs, Flow, best_placements, cheapest


def random_costs(seed: int, places: int, operations: int = 6) -> Costs:
    """A random program: every operation reads some earlier values; some cannot run in some place."""
    rng = np.random.default_rng(seed)
    readers: list[set[int]] = [set() for _ in range(2 + operations)]
    for number in range(operations):
        for value in rng.choice(2 + number, size=min(2 + number, rng.integers(1, 4)), replace=False):
            readers[value].add(number)
    flows = [
        Flow(
            None if index < 2 else index - 2,
            tuple(sorted(read)),
            bool(index >= 2 and (not read or rng.random() < 0.2)),
            int(rng.integers(1, 50)),
        )
        for index, read in enumerate(readers)
    ]
    seconds = [
        (
            float(rng.integers(1, 60)),
            *(math.inf if rng.random() < 0.15 else float(rng.integers(1, 60)) for _ in range(places - 1)),
        )
        for _ in range(operations)
    ]
    copies = {
        pair: CopyCost(float(rng.integers(0, 5)), float(rng.integers(1, 20)))
        for pair in itertools.permutations(range(places), 2)
    }
    return Costs(tuple(seconds), tuple(flows), copies)


def everything(costs: Costs) -> Iterator[tuple[int, ...]]:
    ways = [[p for p in range(len(times)) if times[p] < math.inf] for times in costs.seconds]
    return itertools.product(*ways)


@pytest.mark.parametrize("seed", range(60))
def test_of_two_places_the_cheapest_is_found(seed: int) -> None:
    costs = random_costs(seed, places=2)
    found = cheapest(costs)
    assert found is not None
    assert costs.of(found) == pytest.approx(min(map(costs.of, everything(costs))), abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_all_placements_come_in_the_order_of_what_they_cost(seed: int) -> None:
    costs = random_costs(seed, places=2, operations=5)
    found = list(best_placements(costs))
    assert [places for _, places in found] == list(dict.fromkeys(places for _, places in found))
    assert {places for _, places in found} == set(everything(costs))
    assert [seconds for seconds, _ in found] == pytest.approx(
        sorted(map(costs.of, everything(costs))), abs=1e-9
    )


def test_operations_that_are_not_moved_follow_the_others() -> None:
    costs = random_costs(3, places=2)
    found = list(best_placements(costs, [0, 4]))
    least: dict[tuple[int, int], float] = {}
    for places in everything(costs):
        key = places[0], places[4]
        least[key] = min(least.get(key, math.inf), costs.of(places))
    assert [seconds for seconds, _ in found] == pytest.approx(sorted(least.values()), abs=1e-9)


def test_of_three_places_what_is_found_is_nearly_always_the_cheapest_and_never_much_worse() -> None:
    ratios = []
    for seed in range(60):
        costs = random_costs(seed, places=3)
        found = cheapest(costs)
        assert found is not None
        ratios.append(costs.of(found) / min(map(costs.of, everything(costs))))
    assert min(ratios) >= 1 - 1e-9
    assert sum(ratio < 1 + 1e-9 for ratio in ratios) >= 50
    assert max(ratios) < 1.3


def test_an_operation_that_can_run_nowhere_has_no_placement() -> None:
    costs = Costs(((math.inf, math.inf),), (), {(0, 1): CopyCost(1, 1), (1, 0): CopyCost(1, 1)})
    assert cheapest(costs) is None
    assert list(best_placements(costs)) == []
