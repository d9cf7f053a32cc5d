"""An array that is shifted within itself, on IREE: what is read is not what was just written."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("iree.runtime")
pytest.importorskip("iree.compiler")

import pcp
from pcp import Tensor

X = np.arange(1, 13, dtype=np.float32).reshape(6, 2)


def _shifted(x: Tensor, start: Any) -> Tensor:
    return pcp.dynamic_update_slice(x, x[0:5], [start, 0])


@pytest.mark.parametrize(
    "build",
    [
        _shifted,
        lambda x, _: _shifted(x, 1),
        lambda x, start: _shifted(x + x, start),
        lambda x, start: pcp.dynamic_update_slice(
            x, pcp.dynamic_slice(x, [start - 1, 0], [4, 2]), [start, 0]
        ),
        lambda x, start: pcp.dynamic_update_slice(x, x[:, :1].reshape(2, 3).reshape(6, 1), [0, start]),
        lambda x, start: pcp.fori_loop(0, 3, lambda _, y: _shifted(y, start), x),
        lambda x, start: pcp.dynamic_update_slice(x + x, (x + x)[0:5], [start, 0]),
    ],
    ids=["shifted", "by a constant", "computed", "dynamic", "column", "in a loop", "of an equal array"],
)
@pytest.mark.parametrize("dtype", ["f32", "u8"])
def test_an_array_is_shifted_within_itself(build: Callable[[Tensor, Tensor], Tensor], dtype: str) -> None:
    x, start = X.astype(pcp.ir.DType(dtype).numpy), np.int32(1)
    program = pcp.trace(build, x, start)
    found, right = (np.asarray(pcp.plan(program, at).run(x, start)) for at in ("iree:llvm-cpu", "arena:cpu"))
    np.testing.assert_array_equal(found, right)


def test_a_block_that_is_computed_is_written_as_it_is() -> None:
    from pcp.backends.iree.prepared import with_safe_forms

    program = pcp.trace(lambda x, y, i: pcp.dynamic_update_slice(x, y[0:5] * 2, [i, 0]), X, X, np.int32(1))
    assert with_safe_forms(program) is program
