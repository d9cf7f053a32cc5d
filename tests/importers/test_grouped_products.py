"""Products of rows with the matrix of their group: values, gradients, and no work for rows of other groups."""

import re

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.autodiff.gradient import value_and_vjp
from pcp.importers.torch.rows.experts import UnsupportedGroups, grouped_product

ENDS = [[2, 2, 5, 7, 8], [0] * 5, [9] * 5, [0, 0, 9, 9, 9], [1, 3, 5, 7, 9]]


def test_rows_meet_the_matrix_of_their_group() -> None:
    rng = np.random.default_rng(0)
    x, w, g = (rng.normal(size=shape).astype(np.float32) for shape in ((9, 4), (5, 4, 3), (9, 3)))
    ends = pcp.spec((5,), "i32")
    program = value_and_vjp(pcp.trace(grouped_product, pcp.specs_of(x), pcp.specs_of(w), ends), (0, 1))
    for stops in ENDS:
        right = np.zeros((9, 3)), np.zeros((9, 4)), np.zeros((5, 4, 3))
        for i, (start, stop) in enumerate(zip([0, *stops], stops, strict=False)):
            right[0][start:stop] = x[start:stop] @ w[i]
            right[1][start:stop] = g[start:stop] @ w[i].T
            right[2][i] = x[start:stop].T @ g[start:stop]
        y, cotangents = run(program, x, w, np.array(stops, np.int32), g)
        for found, expected in zip([y, *cotangents], right, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(("rows", "count"), [(4096, 8), (4096, 64), (1000, 7), (3, 8), (1, 1)])
def test_rows_of_other_groups_cost_nothing(rows: int, count: int) -> None:
    """One and a half times the rows, and what rounding up brings, whatever the number of groups; of few rows, three a group."""
    specs = pcp.spec((rows, 4), "f32"), pcp.spec((count, 4, 6), "f32"), pcp.spec((count,), "i32")
    text = pcp.trace(grouped_product, *specs).text
    (size,) = re.findall(r"dot_general .*\(tensor<(\d+)x4xf32>, tensor<4x6xf32>\)", text)
    blocks = max(map(int, re.findall(rf"tensor<(\d+)x{size}x4xf32>", text)))
    assert blocks * int(size) <= max(1.5 * rows + 2 * count + int(size), 3 * count)


def test_other_operands_are_refused() -> None:
    specs = pcp.spec((9, 4), "f32"), pcp.spec((4, 3), "f32"), pcp.spec((5,), "i32")
    with pytest.raises(
        UnsupportedGroups,
        match=r"shapes \(9, 4\) and \(4, 3\); expected rows \(n, k\) with the ends of groups",
    ):
        pcp.trace(grouped_product, *specs)
