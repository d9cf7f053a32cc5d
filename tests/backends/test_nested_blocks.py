"""Blocks of blocks on XLA, with starts within and beyond their bounds: what they are in the arena."""

from collections.abc import Callable

import numpy as np
import pytest

import pcp
from pcp import Tensor
from pcp.backends.nested_blocks import with_blocks_within_bounds
from pcp.ops.indexing.gathering import WindowAxes, gather, scatter

ROW = WindowAxes((0,), (0,), (0,), 0)
ROWS = WindowAxes((1,), (0,), (0,), 1)
X = np.arange(40, dtype=np.float32).reshape(5, 8)


def _block(x: Tensor, start: Tensor, rows: int) -> Tensor:
    return pcp.dynamic_slice(x, [start, 0], [rows, 8])


@pytest.mark.parametrize(
    "inner",
    [
        lambda x, t: _block(x, t, 1) + 1,
        lambda x, t: _block(x.reshape(4, 2, 4).reshape(4, 8), t, 2),
        lambda x, t: gather(x, t.reshape(1), ROW, (1, 8)),
        lambda x, t: scatter(x, t.reshape(1, 1), x[:1] * 2, ROWS),
        lambda x, t: _block(scatter(x, t.reshape(1, 1), x[:1] * 2, ROWS), t, 2),
        lambda x, t: pcp.fori_loop(0, 3, lambda i, total: total + _block(x, t + i, 1), x[:1]),
    ],
    ids=["block", "reshaped", "row", "scattered", "block of it", "in a loop"],
)
def test_each_start_is_kept_within_its_own_bounds(
    inner: Callable[[Tensor, Tensor], Tensor],
) -> None:
    program = pcp.trace(lambda x, s, t: inner(_block(x, s, 4), t), X, np.int32(0), np.int32(0))
    xla, arena = pcp.plan(program, "cpu:0"), pcp.plan(program, "arena:cpu")
    for start in (-3, 0, 1, 5):
        for second in (-2, 0, 2, 9):
            given = X, np.int32(start), np.int32(second)
            np.testing.assert_array_equal(
                np.asarray(xla.run(*given)), np.asarray(arena.run(*given)), f"{start}, {second}"
            )


def test_starts_of_eight_bits_are_clamped_in_eight_bits() -> None:
    x = np.arange(600, dtype=np.float32)
    program = pcp.trace(
        lambda x, s: pcp.dynamic_slice(pcp.dynamic_slice(x, [s], [300]), [s], [2]), x, np.uint8(0)
    )
    assert np.asarray(pcp.plan(program, "cpu:0").run(x, np.uint8(255))).tolist() == [510, 511]


def test_blocks_of_arguments_stay_as_they_are() -> None:
    program = pcp.trace(lambda x, s: _block(x, s, 4) * 2, X, np.int32(0))
    assert with_blocks_within_bounds(program) is program
    nested = pcp.trace(lambda x, s: _block(_block(x, s, 4), s, 2), X, np.int32(0))
    assert len({with_blocks_within_bounds(nested).digest for _ in range(3)}) == 1
