"""GELU by Triton, interpreted, beside float64; and lowered for a GPU, where the gradient adds up its columns."""

import itertools
import math
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp.kernels import apply_kernels, cover, features, kernel_named, sites_of
from pcp.kernels.activations.gated import Gated
from pcp.kernels.activations.triton import SUMMED, Gelu
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising.activations import ACTIVATIONS
from tests.kernels.gpu import lowers_for_gpus
from tests.kernels.gpu.emulated import interpreted


def of_numbers(function: str, x: Any) -> tuple[Any, Any]:
    """An activation and its derivative, in float64."""
    x = np.float64(x)
    if function == "squared_relu":
        return np.maximum(x, 0) ** 2, 2 * np.maximum(x, 0)
    if function == "exact_gelu":
        weight = np.vectorize(math.erfc)(-x * math.sqrt(0.5)) / 2
        return x * weight, weight + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    if function == "tanh_gelu":
        root, cubic = np.sqrt(2 / np.pi), 0.044715
        tanh = np.tanh(root * (x + cubic * x**3))
        slope = (1 - tanh**2) * root * (1 + 3 * cubic * x**2)
        return x / 2 * (1 + tanh), (1 + tanh) / 2 + x / 2 * slope
    scale = {"silu": 1.0, "quick_gelu": 1.702}[function]
    logistic = 1 / (1 + np.exp(-scale * x))
    return x * logistic, logistic + x * scale * logistic * (1 - logistic)


@pytest.mark.parametrize("function", ACTIVATIONS)
def test_it_computes_the_activation_and_its_gradient(function: str) -> None:
    rng = np.random.default_rng(8)
    rows, width = 3, 1280
    x, g = (rng.normal(0, 3, (rows, width)).astype(np.float32) for _ in range(2))
    x[0, :3] = -40, 40, 0
    bias = rng.normal(size=width).astype(np.float32)
    exact, slope = of_numbers(function, x.astype(np.float64) + bias)
    for operands, expected in (((), exact), ((g,), g * slope)):
        for rounded, error in ((False, 1e-6), (True, 3e-3)):
            (found,) = interpreted(Gelu(rounded, function=function))(x, bias[None], *operands)
            assert found.dtype.name == ("bfloat16" if rounded else "float32")
            away = np.asarray(found, np.float64) - expected
            assert np.linalg.norm(away) < error * np.linalg.norm(expected)
            assert np.abs(away).max() <= 2 * error * np.abs(expected).max()


@pytest.mark.parametrize("function", ACTIVATIONS)
def test_extreme_numbers_are_those_of_the_formula(function: str) -> None:
    """What is far from 0 is itself or 0, and its slope 1 or 0, but for the square of ReLU; -0.0 stays; no number stays none."""
    x = np.zeros((1, 128), np.float32)
    x[0, :9] = np.nan, np.inf, 1e15, 200, 1e-30, -0.0, -1e-30, -200, -1e15
    zero, one = np.full_like(x, -0.0), np.ones_like(x)
    (y,), (slope,) = (
        map(np.asarray, interpreted(Gelu(function=function))(x, zero, *more)) for more in ((), (one,))
    )
    squared = function == "squared_relu"
    far = [np.inf, np.float32(1e15) ** 2, 4e4] if squared else [np.inf, np.float32(1e15), 200]
    np.testing.assert_array_equal(y[0, :4], [np.nan, *far])
    np.testing.assert_allclose(slope[0, :4], [np.nan, *((np.inf, 2e15, 400) if squared else (np.nan, 1, 1))])
    np.testing.assert_allclose(
        y[0, 4:9], np.float32([0, 0, 0, 0, 0]) if squared else [5e-31, 0, -5e-31, 0, 0], rtol=1e-6
    )
    np.testing.assert_allclose(
        slope[0, 4:9], [2e-30, 0, 0, 0, 0] if squared else [0.5, 0.5, 0.5, 0, 0], 1e-6, 1e-32
    )
    assert np.signbit(y[0, 5]) == (not squared)


@pytest.mark.parametrize("width", [128, 640])
def test_the_gradient_adds_up_its_columns(width: int) -> None:
    rng = np.random.default_rng(width)
    rows = 2 * SUMMED.rows
    x, g = (rng.normal(size=(rows, width)).astype(np.float32) for _ in range(2))
    bias = rng.normal(size=(1, width)).astype(np.float32)
    (alone,) = interpreted(Gelu())(x, bias, g)
    for rounded in (False, True):
        found, sums = interpreted(Gelu(rounded, summed=True))(x, bias, g)
        assert np.array_equal(np.asarray(found), np.asarray(alone.astype(found.dtype)))
        exact = np.asarray(alone, np.float64).reshape(2, SUMMED.rows, width).sum(1)  # before they are rounded
        assert np.abs(np.asarray(sums) - exact).max() < 1e-5


def test_what_is_no_number_reaches_its_place_and_its_column_alone() -> None:
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(rows, 128)).astype(np.float32) for rows in (SUMMED.rows, 1, SUMMED.rows)]
    gradient = jax.jit(interpreted(Gelu(summed=True)))
    usual, (total,) = map(np.asarray, gradient(*given))
    for place, number in itertools.product((0, 2), (np.nan, np.inf, -np.inf)):
        changed = [each.copy() for each in given]
        changed[place][2, 9] = number
        found, (sums,) = map(np.asarray, gradient(*changed))
        assert np.array_equal(np.argwhere(found != usual), [[2, 9]]), (place, number)
        assert np.array_equal(np.flatnonzero(sums != total), [9]), (place, number)
        assert np.isfinite(sums[9]) == np.isfinite(found[2, 9]), (place, number)
        if place == 2:
            assert not np.isfinite(sums[9]), number


def test_rows_of_any_length_are_numbers_in_order_where_there_is_no_bias(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(features, "_found", lambda platform: frozenset({platform, "sm_80"}))
    for shape, with_bias, takes in (
        ((2, 256, 197), False, True),
        ((2, 256, 197), True, False),
        ((3, 5, 7), False, False),
        ((197, 128), True, True),
    ):
        specs = [pcp.spec(shape, "f32"), pcp.spec(shape[-1:], "f32")][: 1 + with_bias]
        program = prepared(pcp.trace(lambda x, *b: pcp.nn.gelu(x + b[0] if b else x), *specs))
        assert len(sites_of(program, "cuda")) == takes, shape


@lowers_for_gpus
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_triton_takes_every_function() -> None:
    rows, bias, flat = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((64, 256), (1, 256), (4096,)))
    for function, more in itertools.product(ACTIVATIONS, (0, 1)):
        for kernel, operands in (
            (Gelu(True, bool(more), function=function), [rows, bias, *[rows] * more]),
            (Gated(True, 1 + more, function=function), [flat, flat, *[flat] * more]),
        ):
            jax.jit(lambda *x, kernel=kernel: kernel(*x)).trace(*operands).lower(lowering_platforms=("cuda",))


@lowers_for_gpus
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
@pytest.mark.parametrize(("rows", "summed"), [(2 * SUMMED.rows, True), (2 * SUMMED.rows + 1, False)])
def test_a_bias_needs_no_reading_of_its_own(rows: int, summed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_found", lambda platform: frozenset({platform, "sm_80"}))

    def loss(x: pcp.Tensor, w: pcp.Tensor, b: pcp.Tensor, g: pcp.Tensor) -> pcp.Tensor:
        return (pcp.nn.gelu(x @ w + b) * g).sum()

    specs = [pcp.spec(shape, "f32") for shape in ((rows, 16), (16, 128), (128,), (rows, 128))]
    program = prepared(pcp.value_and_grad(pcp.trace(loss, *specs), wrt=(0, 1, 2)))
    sites = cover(site for site in sites_of(program, "cuda") if site.family == "gelu_gradient")
    chosen = {site.key: kernel_named("gelu_gradient.triton:bf16") for site in sites}
    text = apply_kernels(program, chosen).text.partition("func.func private")[0]
    assert text.count("__gpu$xla.gpu.triton") == 1
    sums = [
        line for line in text.splitlines() if "stablehlo.reduce(" in line and "-> tensor<128xf32>" in line
    ]
    read = f"tensor<{2 if summed else rows}x128xf32>, tensor<f32>"
    assert [read in line for line in sums] == [True]
