"""The bookkeeping of DiLoCo: what is merged with which weights, in which order."""

from typing import Any

import pytest

from pcp.distributed.algorithms import (
    Contribution,
    DiLoCo,
    InvalidAlgorithm,
    merge_order,
    overlaps,
    segment_steps,
)
from pcp.distributed.messages import Blob, DataRange


def contribution(worker_id: int, lease_id: int, steps: int, tokens: int) -> Contribution:
    return Contribution(worker_id, lease_id, (DataRange(0, steps),), Blob(b"", 0), steps, tokens, 1.0)


CONTRIBUTIONS = [contribution(2, 5, 10, 100), contribution(1, 9, 10, 300), contribution(1, 3, 20, 400)]


def test_the_order_of_reduction_is_by_worker_then_lease() -> None:
    assert [(each.worker_id, each.lease_id) for each in merge_order(CONTRIBUTIONS)] == [
        (1, 3),
        (1, 9),
        (2, 5),
    ]
    assert merge_order(reversed(CONTRIBUTIONS)) == merge_order(CONTRIBUTIONS)


def test_every_token_counts_the_same() -> None:
    assert DiLoCo(inner_steps=10).weights(CONTRIBUTIONS) == (0.125, 0.375, 0.5)


def test_updates_without_tokens_count_equally() -> None:
    idle = [contribution(1, 1, 10, 0), contribution(2, 2, 10, 0)]
    assert DiLoCo(inner_steps=10).weights(idle) == (0.5, 0.5)


def test_the_published_values_are_the_defaults() -> None:
    algorithm = DiLoCo(inner_steps=30)
    assert (algorithm.outer_learning_rate, algorithm.outer_momentum) == (0.7, 0.9)
    assert (algorithm.fragments, algorithm.delay, algorithm.mixing, algorithm.late) == (1, 0, 0.0, "again")
    assert segment_steps(algorithm) == 30
    assert not overlaps(algorithm)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inner_steps": 0}, "inner_steps is 0; it must be at least 1"),
        ({"inner_steps": 1, "outer_learning_rate": 0.0}, "outer_learning_rate is 0.0; it must be positive"),
        (
            {"inner_steps": 1, "outer_momentum": 1.0},
            "outer_momentum is 1.0; it must be at least 0 and below 1",
        ),
    ],
)
def test_a_hyper_parameter_out_of_range_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidAlgorithm, match=message):
        DiLoCo(**arguments)
