"""Types of storage come in, go out, are constants, converted and moved as ml_dtypes has them; nothing is computed in them."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import ops
from pcp.ir import DType
from pcp.tensor import DTypeMismatch

STORAGE = [dtype for dtype in DType if dtype.kind == "storage"]
RNG = np.random.default_rng(12)


def numbers(dtype: DType, *shape: int) -> Any:
    """Random numbers that a type holds some of."""
    low, high = {DType.i2: (-2, 2), DType.u2: (0, 4), DType.u4: (0, 16), DType.f8E8M0FNU: (0.1, 9)}.get(
        dtype, (-6, 6)
    )
    if dtype.value[0] in "iu":
        return RNG.integers(low, high, shape).astype(dtype.numpy)
    return RNG.uniform(low, high, shape).astype(np.float32).astype(dtype.numpy)


def assert_same(one: Any, other: Any, label: str = "") -> None:
    array, wanted = np.asarray(one), np.asarray(other)
    assert array.dtype == wanted.dtype, label
    np.testing.assert_array_equal(array.astype(np.float32), wanted.astype(np.float32), err_msg=label)


@pytest.mark.parametrize("dtype", STORAGE)
def test_conversion_rounds_as_ml_dtypes(dtype: DType) -> None:
    x = numbers(dtype, 40)
    wide = x.astype(np.float32) if dtype.value[0] in "iu" else RNG.uniform(0.1, 6, 40).astype(np.float32)

    def converted(x: Any, wide: Any) -> Any:
        return (
            x.astype("f32"),
            x.astype("f16"),
            x.astype("f64"),
            wide.astype(dtype),
            wide.astype(dtype).astype("f32"),
        )

    single, half, double, stored, back = run(pcp.trace(converted, x, wide, roles=("input",) * 2), x, wide)
    assert_same(single, x.astype(np.float32))
    assert_same(half, x.astype(np.float32).astype(np.float16))
    assert_same(double, x.astype(np.float64))
    assert_same(stored, wide.astype(dtype.numpy))
    assert_same(back, wide.astype(dtype.numpy).astype(np.float32))


@pytest.mark.parametrize("dtype", STORAGE)
def test_elements_are_moved_and_kept_as_constants(dtype: DType) -> None:
    x, constant = numbers(dtype, 3, 4), numbers(dtype, 3, 4)

    def moved(x: Any) -> Any:
        return [
            x, constant, x.T, x.reshape(2, 6), x[1:, ::2], x[np.array([2, 0])], ops.concatenate([x, constant], 1),
            ops.flip(x, 0),
            ops.pad(x, [(1, 0), (0, 1)], constant_values=constant[0, 0]),
            ops.where(np.eye(3, 4, dtype=bool), x, constant), ops.stack([x, x]),
            ops.take_along_axis(x, np.array([[0, 3], [1, 1], [2, 0]]), 1), x[:1].broadcast_to((5, 4)), ops.roll(x, 1, 1),
            ops.dynamic_slice(x, (1, 1), (2, 2)), ops.index_update(x, (slice(1, 2),), constant[:1]),
        ]  # fmt: skip

    updated = x.copy()
    updated[1:2] = constant[:1]
    expected = [
        x, constant, x.T, x.reshape(2, 6), x[1:, ::2], x[[2, 0]], np.concatenate([x, constant], 1), x[::-1],
        np.pad(x, [(1, 0), (0, 1)], constant_values=constant[0, 0]), np.where(np.eye(3, 4, dtype=bool), x, constant),
        np.stack([x, x]), np.take_along_axis(x, np.array([[0, 3], [1, 1], [2, 0]]), 1), np.broadcast_to(x[:1], (5, 4)),
        np.roll(x, 1, 1), x[1:3, 1:3], updated,
    ]  # fmt: skip
    program = pcp.trace(moved, x, roles=("input",))
    assert program.digest == pcp.Program.from_artifact(program.artifact()).digest
    for number, (one, other) in enumerate(zip(run(program, x), expected, strict=True)):
        assert_same(one, other, f"movement {number}")


@pytest.mark.parametrize("dtype", STORAGE)
@pytest.mark.parametrize(
    ("name", "compute"),
    [
        ("add", lambda x: x + x), ("multiply", lambda x: x * 2), ("exp", ops.exp), ("less", lambda x: x < x), ("sum", ops.sum),
        ("negate", lambda x: -x), ("max", ops.max), ("matmul", lambda x: x @ x), ("mean", ops.mean), ("softmax", ops.softmax),
        ("sort", ops.sort), ("cumsum", ops.cumsum), ("argmax", ops.argmax), ("divide", lambda x: x / x), ("square", ops.square),
        ("equal", lambda x: x == 1), ("bf16", lambda x: x + np.ones((3, 3), DType.bf16.numpy)),
        ("clip", lambda x: ops.clip(x, 0, 1)),
    ],
)  # fmt: skip
def test_nothing_is_computed_before_a_conversion(dtype: DType, name: str, compute: Any) -> None:
    with pytest.raises(DTypeMismatch, match=rf"{dtype}.*\.astype") as caught:
        pcp.trace(compute, pcp.spec((3, 3), dtype))
    assert "test_storage.py:" in str(caught.value), name
