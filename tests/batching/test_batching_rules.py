"""Every row of the derivative tests, batched, against the same program run for one sample after another."""

from typing import Any

import numpy as np
import pytest

import pcp
from tests.autodiff.rows.row import Row
from tests.autodiff.test_rules import CASES
from tests.execution import run

SIZE = 3


def leaves(results: Any) -> list[Any]:
    return list(results) if isinstance(results, tuple) else [results]


@pytest.mark.share(2, each="row.rule")
@pytest.mark.parametrize("row", CASES)
def test_a_batch_is_its_samples(row: Row) -> None:
    random = np.random.default_rng(0)
    samples = [tuple(domain(random) for domain in row.domains) for _ in range(SIZE)]
    arrays = tuple(np.stack(column) for column in zip(*samples, strict=True))
    single = pcp.trace(row.function, *samples[0])
    # Every argument batched, and then each alone.
    alone = range(len(arrays)) if len(arrays) > 1 else ()

    def all_ways(arrays: Any, first: Any) -> Any:
        found = [pcp.vmap(row.function)(*arrays)]
        for k in alone:
            axes = [0 if i == k else None for i in range(len(arrays))]
            found.append(
                pcp.vmap(row.function, axes)(*(a if i == k else first[i] for i, a in enumerate(arrays)))
            )
        return [tuple(leaves(results)) for results in found]

    found = run(pcp.trace(all_ways, arrays, samples[0]), arrays, samples[0])
    mixed = [
        tuple(sample[i] if i == k else samples[0][i] for i in range(len(arrays)))
        for k in alone
        for sample in samples
    ]
    expected = [leaves(run(single, *sample)) for sample in [*samples, *mixed]]
    for way, results in enumerate(found):
        for index, result in enumerate(results):
            theirs = np.stack([one[index] for one in expected[way * SIZE : (way + 1) * SIZE]])
            np.testing.assert_allclose(result, theirs, rtol=1e-12, atol=1e-12)
