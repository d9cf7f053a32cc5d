"""Blocks of a reshaped array written into that array, on XLA, which reads them while it overwrites them."""

from collections.abc import Callable

import numpy as np
import pytest

import pcp
from pcp import Tensor
from pcp.backends.reshaped_updates import with_reshaped_arrays_kept

X = np.arange(12, dtype=np.float32)


def _shifted(y: Tensor, start: Tensor) -> Tensor:
    return pcp.dynamic_update_slice(y, y[:-1], [start, *[0] * (y.ndim - 1)])


@pytest.mark.parametrize(
    ("shape", "build"),
    [
        ((12, 1), lambda x, i: _shifted(x.reshape((12,)), i)),
        ((12,), lambda x, i: _shifted(x.reshape((6, 2)), i)),
        ((6, 1, 2), lambda x, i: _shifted(pcp.tanh(x).reshape((6, 2)), i)),
        ((6, 1, 2), lambda x, i: pcp.dynamic_update_slice(x.reshape((6, 2)), x[:-1].reshape((5, 2)), [i, 0])),
        (
            (12, 1),
            lambda x, i: pcp.fori_loop(0, 3, lambda _, y: _shifted(y.reshape((12,)), i).reshape((12, 1)), x),
        ),
    ],
    ids=["vector", "rows", "computed", "taken before", "in a loop"],
)
def test_a_reshaped_array_is_shifted_within_itself(
    shape: tuple[int, ...], build: Callable[[Tensor, Tensor], Tensor]
) -> None:
    x, start = X.reshape(shape), np.int32(1)
    program = pcp.trace(build, x, start)
    found, right = (np.asarray(pcp.plan(program, at).run(x, start)) for at in ("cpu:0", "arena:cpu"))
    np.testing.assert_allclose(found, right, rtol=1e-6)


def test_other_updates_stay_as_they_are() -> None:
    program = pcp.trace(
        lambda x, u: pcp.dynamic_update_slice(x.reshape((12,)), u, [3]), X.reshape(12, 1), X[:4]
    )
    assert with_reshaped_arrays_kept(program) is program
