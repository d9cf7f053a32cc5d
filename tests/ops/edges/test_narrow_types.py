"""Narrow numbers: 16-bit floats are accumulated in f32, small integers in 32 bits; results that would not fit otherwise."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import nn, ops
from pcp.ir import DType

HALVES = ("f16", "bf16")
RNG = np.random.default_rng(11)


def _largest(dtype: str) -> float:
    return float(ml_dtypes.finfo(DType(dtype).numpy).max)


FUNCTIONS: dict[str, Any] = {
    "mean": lambda x: x.mean(1),
    "var": lambda x: ops.var(x / 64, 1),
    "std": lambda x: ops.std(x, 1),
    "norm": lambda x: ops.norm(x / 16, 2, 1),
    "softmax": lambda x: ops.softmax(x / 64, 1) * 1000,
    "log_softmax": lambda x: ops.log_softmax(x / 64, 1),
    "logsumexp": lambda x: ops.logsumexp(x / 64, 1),
    "cumsum": lambda x: ops.cumsum(x / 64, 1),
    "layer_norm": lambda x: nn.layer_norm(x, np.ones(x.shape[-1], x.dtype.numpy)),
    "rms_norm": lambda x: nn.rms_norm(x, np.ones(x.shape[-1], x.dtype.numpy)),
    "group_norm": lambda x: nn.group_norm(x, 2),
    "avg_pool": lambda x: ops.avg_pool(x.reshape(4, -1, 1), 2048),
    "mse": lambda x: nn.mse(x / 4, 0.0),
    "huber": lambda x: nn.huber(x, 0.0),
    "mae": lambda x: nn.mae(x, 0.0),
    "cross_entropy": lambda x: nn.cross_entropy(x / 64, np.array([1, 3, 5, 2000])),
    "binary_cross_entropy": lambda x: nn.binary_cross_entropy(x / 64, 1.0),
    "matmul": lambda x: x / 256 @ (x / 256).T,
    "trace": lambda x: ops.trace((x / 512) @ (x / 512).T),
}


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_accumulated_in_f32_and_rounded_once(dtype: str) -> None:
    """4 rows of 4,096 numbers near 500: in f16 a sum of them overflows, in bf16 it stops growing."""
    kind = DType(dtype).numpy
    x = RNG.normal(500, 100, (4, 4096)).astype(kind)
    narrow = run(pcp.trace(lambda x: [f(x) for f in FUNCTIONS.values()], x, roles=("input",)), x)
    wide = x.astype(np.float32)
    exact = run(pcp.trace(lambda x: [f(x) for f in FUNCTIONS.values()], wide, roles=("input",)), wide)
    step = float(ml_dtypes.finfo(kind).eps)
    for name, one, other in zip(FUNCTIONS, narrow, exact, strict=True):
        assert one.dtype == kind, name
        fits = np.abs(other) <= _largest(dtype)
        assert fits.all(), name
        scale = np.abs(other).max()
        np.testing.assert_allclose(
            one.astype(np.float32), other, rtol=4 * step, atol=4 * step * scale, err_msg=name
        )


@pytest.mark.parametrize(
    ("dtype", "result"),
    [("bool", "i32"), ("i8", "i32"), ("i16", "i32"), ("u8", "u32"), ("u16", "u32"), ("i32", "i32"), ("i64", "i64"),
     ("u64", "u64"), ("f16", "f16"), ("bf16", "bf16"), ("f32", "f32"), ("c64", "c64")],
)  # fmt: skip
def test_sums_and_products_of_narrow_integers_are_of_32_bits(dtype: str, result: str) -> None:
    def everything(x: pcp.Tensor) -> Any:
        return (
            x.sum(),
            ops.product(x),
            x.prod(),
            x.cumsum(),
            ops.cumprod(x),
            x.sum(()),
            ops.trace(x.reshape(2, 2)),
        )

    program = pcp.trace(everything, pcp.spec((4,), dtype))
    assert {str(entry.spec.dtype) for entry in program.results} == {result}


def test_sums_of_narrow_integers_do_not_wrap() -> None:
    x = RNG.integers(-128, 127, (3, 500), endpoint=True).astype(np.int8)
    y = RNG.integers(0, 255, (3, 500), endpoint=True).astype(np.uint8)
    program = pcp.trace(lambda x, y: (x.sum(1), y.sum(1), x.mean(1), y.cumsum(1)), x, y, roles=("input",) * 2)
    signed, unsigned, mean, running = run(program, x, y)
    np.testing.assert_array_equal(signed, x.sum(1))
    np.testing.assert_array_equal(unsigned, y.sum(1))
    np.testing.assert_allclose(mean, x.mean(1), rtol=1e-5)
    np.testing.assert_array_equal(running, y.cumsum(1))


def test_an_einsum_keeps_the_type_of_its_operands() -> None:
    x, y = (RNG.integers(-9, 9, (3, 4)).astype(np.int8) for _ in range(2))
    program = pcp.trace(lambda x, y: ops.einsum("ij,ik->k", x, y), x, y, roles=("input",) * 2)
    assert program.results[0].spec.dtype == "i8"
    np.testing.assert_array_equal(run(program, x, y), np.einsum("ij,ik->k", x, y))


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_the_spread_of_complex_numbers_is_real(dtype: str) -> None:
    z = (RNG.normal(size=(3, 5)) + 1j * RNG.normal(size=(3, 5))).astype(DType(dtype).numpy)
    var, std = run(pcp.trace(lambda z: (z.var(1), z.std(1)), z, roles=("input",)), z)
    assert var.dtype == std.dtype == z.real.dtype
    np.testing.assert_allclose(var, z.var(1), rtol=1e-5)
    np.testing.assert_allclose(std, z.std(1), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "c64"])
def test_the_mean_of_nothing_is_nan(dtype: str) -> None:
    program = pcp.trace(lambda x: (x.mean(1), x.var(1), x.std(1)), pcp.spec((2, 0), dtype))
    for found in run(program, np.zeros((2, 0), DType(dtype).numpy)):
        assert np.isnan(found.astype(np.complex64)).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_the_place_of_an_extreme_is_that_of_the_first_nan(dtype: str) -> None:
    x = np.array(
        [[1, 5, 3, 2], [2, np.nan, 7, np.nan], [np.nan] * 4, [np.inf, 0, -np.inf, np.inf]], DType(dtype).numpy
    )
    most, least = run(pcp.trace(lambda x: (x.argmax(1), x.argmin(1)), x, roles=("input",)), x)
    np.testing.assert_array_equal(most, np.argmax(x.astype(np.float64), 1))
    np.testing.assert_array_equal(least, np.argmin(x.astype(np.float64), 1))


def test_not_is_a_truth_value_and_the_operator_inverts_bits() -> None:
    x = np.array([0, 1, 2, -1], np.int8)
    logical, bits = run(pcp.trace(lambda x: (ops.logical_not(x), ~x), x, roles=("input",)), x)
    np.testing.assert_array_equal(logical, np.logical_not(x))
    np.testing.assert_array_equal(bits, ~x)


def test_a_diagonal_keeps_type_and_signs_of_zeros() -> None:
    x = np.array([[-0.0, 1.0], [np.nan, -0.0]], np.float32)
    truths = np.array([[True, False], [False, False]])
    zeros, flags = run(
        pcp.trace(lambda x, p: (ops.diagonal(x), ops.diagonal(p)), x, truths, roles=("input",) * 2), x, truths
    )
    assert np.signbit(zeros).all()
    assert flags.tolist() == [True, False]


def test_complex_numbers_lose_their_imaginary_part_also_where_they_are_constants() -> None:
    """XLA's process ended by a conversion of a constant, and it took i for False."""
    z = np.array([2.5 - 1j, 1j, 0, -3], np.complex64)
    program = pcp.trace(
        lambda z: (
            pcp.full((2,), 1.5 + 2j, "c64").astype("i32"),
            z[:0].sum().astype("f32"),
            z.astype("f64"),
            z.astype("bool"),
            pcp.full((2,), 1j, "c64").astype("bool"),
        ),
        z,
    )
    made = run(program, z)
    for found, right in zip(
        made, ([1, 1], 0.0, z.real, [True, True, False, True], [True, True]), strict=True
    ):
        np.testing.assert_array_equal(found, right)
