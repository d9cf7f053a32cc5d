"""Collectives: the operations that they declare verify, travel, and say what is wrong with their groups."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import Program, ops
from pcp.ops.collectives import InvalidGroups
from pcp.tensor import DTypeMismatch, ShapeMismatch

PAIRS = [[0, 1], [2, 3]]


def every(x: pcp.Tensor) -> Any:
    """The results of all collectives in groups of two."""
    return (
        ops.all_reduce(x, PAIRS, "max"),
        ops.all_gather(x, PAIRS, 1),
        ops.reduce_scatter(x, PAIRS, -1),
        ops.all_to_all(x, PAIRS, 1, 0),
        ops.collective_permute(x, [(0, 1), (1, 2)]),
    )


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "u64"])
def test_they_are_operations_of_the_program(dtype: str) -> None:
    program = pcp.trace(every, pcp.spec((3, 4), dtype))
    assert [r.spec.shape for r in program.results] == [(3, 4), (3, 8), (3, 2), (6, 2), (3, 4)]
    text = program.text
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"):
        assert f"stablehlo.{name}" in text
    assert text.count("dense<[[0, 1], [2, 3]]>") == 4
    assert "dense<[[0, 1], [1, 2]]>" in text
    assert Program.from_artifact(program.artifact()).digest == program.digest


def test_a_group_of_one_changes_nothing() -> None:
    def alone(x: pcp.Tensor) -> Any:
        return (
            ops.all_reduce(x, [[0]]),
            ops.all_gather(x, [[0]]),
            ops.reduce_scatter(x, [[0]]),
            ops.all_to_all(x, [[0]]),
        )

    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    for part in run(pcp.trace(alone, x), x):
        np.testing.assert_array_equal(part, x)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda x: ops.all_reduce(x, []),
            InvalidGroups,
            r"all_reduce: groups \[\] were given; expected groups of one size",
        ),
        (lambda x: ops.all_gather(x, [[0, 1], [2]]), InvalidGroups, "all_gather: groups"),
        (lambda x: ops.all_to_all(x, [[0, 0]]), InvalidGroups, "each replica once"),
        (lambda x: ops.all_reduce(x, [[1]]), InvalidGroups, "each replica once, from 0"),
        (lambda x: ops.all_gather(x, [[0, 2]]), InvalidGroups, r"groups \[\(0, 2\)\] were given"),
        (
            lambda x: ops.collective_permute(x, [(0, 1), (0, 2)]),
            InvalidGroups,
            "a replica sends once at most",
        ),
        (
            lambda x: ops.collective_permute(x, [(0, 1), (2, 1)]),
            InvalidGroups,
            "a replica receives once at most",
        ),
        (
            lambda x: ops.all_reduce(x, PAIRS, "mean"),
            DTypeMismatch,
            "all_reduce: there is no reduction 'mean' of f32; choose one of sum",
        ),
        (
            lambda x: ops.reduce_scatter(x, PAIRS),
            ShapeMismatch,
            r"axis 0 of shape \(3, 4\) cannot be cut into 2 equal parts",
        ),
        (
            lambda x: ops.all_gather(x, PAIRS, 2),
            ShapeMismatch,
            "all_gather: axis 2 was given for a tensor of rank 2",
        ),
    ],
)
def test_wrong_groups_are_explained(function: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pcp.trace(function, pcp.spec((3, 4), "f32"))
