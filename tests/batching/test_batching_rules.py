"""Every row of the derivative tests, batched, against the same program run for one sample after another."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pcp
from tests.autodiff.rows.chunks import of_every_rule
from tests.autodiff.rows.row import Row
from tests.execution import run

SIZE = 3
Arrays = tuple[Any, ...]


def leaves(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]


def alone(arrays: Arrays) -> range:
    """The places of arguments that are batched alone, after all of them together."""
    return range(len(arrays) if len(arrays) > 1 else 0)


def in_all_ways(row: Row, arrays: Any, first: Any) -> list[Arrays]:
    """The row with every argument batched, and then with each alone."""
    found = [pcp.vmap(row.function)(*arrays)]
    for k in alone(arrays):
        axes = [0 if i == k else None for i in range(len(arrays))]
        given = (a if i == k else first[i] for i, a in enumerate(arrays))
        found.append(pcp.vmap(row.function, axes)(*given))
    return [tuple(leaves(results)) for results in found]


def one_by_one(samples: list[Arrays]) -> Iterator[Arrays]:
    """The arguments of every sample of every way."""
    yield from samples
    for k in alone(samples[0]):
        for sample in samples:
            yield tuple(each if i == k else samples[0][i] for i, each in enumerate(sample))


@pytest.mark.parametrize("rows", of_every_rule(2))
def test_a_batch_is_its_samples(rows: dict[str, Row]) -> None:
    samples = [
        [tuple(domain(random) for domain in row.domains) for _ in range(SIZE)]
        for row in rows.values()
        for random in [np.random.default_rng(0)]
    ]
    arrays = [tuple(np.stack(column) for column in zip(*each, strict=True)) for each in samples]
    first = [each[0] for each in samples]

    def batched(arrays: Any, first: Any) -> Any:
        return [in_all_ways(row, *each) for row, *each in zip(rows.values(), arrays, first, strict=True)]

    def single(given: Any) -> Any:
        return [row.function(*each) for row, each in zip(rows.values(), given, strict=True)]

    found = run(pcp.trace(batched, arrays, first), arrays, first)
    # The rows have different numbers of samples: those of few repeat their last.
    program, every = pcp.trace(single, first), [list(one_by_one(each)) for each in samples]
    count = max(map(len, every))
    turns = [run(program, [each[min(turn, len(each) - 1)] for each in every]) for turn in range(count)]
    for place, (name, ways) in enumerate(zip(rows, found, strict=True)):
        expected = [leaves(turn[place]) for turn in turns]
        for way, results in enumerate(ways):
            for index, result in enumerate(results):
                theirs = np.stack([one[index] for one in expected[way * SIZE : (way + 1) * SIZE]])
                np.testing.assert_allclose(result, theirs, rtol=1e-12, atol=1e-12, err_msg=name)
