"""What the composed operations say about operands that they do not take."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import ops
from pcp.tensor import DTypeMismatch, ShapeMismatch

COMPLEX = np.ones((2, 2), np.complex64)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda x: ops.sinh(COMPLEX), DTypeMismatch, "sinh: element type c64 was given; expected float"),
        (lambda x: ops.logaddexp(x, COMPLEX[0, :1]), DTypeMismatch, "logaddexp: element type c64"),
        (lambda x: ops.is_inf(COMPLEX), DTypeMismatch, "is_inf: element type c64 was given; expected float"),
        (lambda x: ops.hypot(x, np.ones(3)), ShapeMismatch, r"hypot: shapes \(2, 4\) and \(3,\) do not broadcast"),
        (lambda x: ops.arange(0, 3, 0), ShapeMismatch, "arange: a step of 0 was given"),
        (lambda x: ops.meshgrid(x), ShapeMismatch, r"meshgrid: shapes \(2, 4\) were given; expected vectors"),
        (lambda x: ops.meshgrid(x[0], indexing="yx"), ShapeMismatch, "meshgrid: indexing 'yx' was given"),
        (lambda x: ops.moveaxis(x, 0, (0, 1)), ShapeMismatch, "moveaxis: 1 axes were given for 2 places"),
        (lambda x: ops.moveaxis(x, 2, 0), ShapeMismatch, "moveaxis: axis 2 was given for a tensor of rank 2"),
        (lambda x: ops.roll(x, (1, 2), 0), ShapeMismatch, "roll: 2 shifts were given for 1 axes"),
        (lambda x: ops.tile(x, -1), ShapeMismatch, r"tile: counts \(-1,\) were given; expected none below 0"),
        (lambda x: ops.repeat(x, -1), ShapeMismatch, "repeat: a count of -1 was given"),
        (lambda x: ops.repeat(x, x), DTypeMismatch, "repeat: Tensor was given as a count; expected an integer"),
        (lambda x: ops.diff(x, axis=3), ShapeMismatch, "diff: axis 3 was given for a tensor of rank 2"),
        (lambda x: ops.median(x[:0], 0), ShapeMismatch, r"quantile: axis 0 of shape \(0, 4\) is empty"),
        (lambda x: ops.quantile(x, 1.5), ShapeMismatch, "quantile: q = 1.5 was given; expected 0 <= q <= 1"),
        (lambda x: ops.sort(COMPLEX), DTypeMismatch, "sort: element type c64 was given; complex numbers have no order"),
        (lambda x: ops.argsort(x, 2), ShapeMismatch, "argsort: axis 2 was given for a tensor of rank 2"),
        (lambda x: ops.top_k(x, 5), ShapeMismatch, r"top_k: k = 5 was given for axis 1 of shape \(2, 4\)"),
        (lambda x: ops.top_k(COMPLEX, 1), DTypeMismatch, "top_k: element type c64"),
        (lambda x: ops.searchsorted(x, x), ShapeMismatch, r"searchsorted: the ordered tensor has shape \(2, 4\)"),
        (lambda x: ops.searchsorted(x[0], x, "middle"), ShapeMismatch, "searchsorted: side 'middle' was given"),
        (lambda x: ops.cumsum(x, 2), ShapeMismatch, "cumsum: axis 2 was given for a tensor of rank 2"),
        (lambda x: ops.cummax(COMPLEX), DTypeMismatch, "cummax: element type c64 was given"),
        (lambda x: ops.logcumsumexp(np.ones(3, int)), DTypeMismatch, "logcumsumexp: element type i64 was given"),
        (lambda x: ops.tril(x[0]), ShapeMismatch, r"tril: shape \(4,\) was given; expected at least two axes"),
        (lambda x: ops.diagonal(x, 0, 0, -2), ShapeMismatch, "diagonal: axes .* name one axis twice"),
        (lambda x: ops.diag(x[None]), ShapeMismatch, r"diag: shape \(1, 2, 4\) was given; expected a vector or a matrix"),
        (lambda x: ops.tensordot(x, x, 3), ShapeMismatch, "tensordot: 3 axes were given for shapes"),
        (lambda x: ops.tensordot(x, x, ((0,), (0, 1))), ShapeMismatch, "tensordot: 1 axes of the first and 2 of the second"),
        (lambda x: ops.tensordot(x, x, 1), ShapeMismatch, "are paired but differ in size"),
        (lambda x: ops.cholesky(x), ShapeMismatch, r"cholesky: shape \(2, 4\) was given; expected square matrices"),
        (lambda x: ops.cholesky(np.eye(2, dtype=int)), DTypeMismatch, "cholesky: element type i64 was given; expected float"),
        (
            lambda x: ops.triangular_solve(x[:, :2], x[0]),
            ShapeMismatch,
            r"triangular_solve: a of shape \(2, 2\) needs b of shape \(2, 'm'\); \(4,\) was given",
        ),
    ],
)  # fmt: skip
def test_wrong_operands_are_explained(function: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        pcp.trace(function, pcp.spec((2, 4), "f32"))
    assert "test_refusals.py:" in str(caught.value)
