"""GELU by Triton, interpreted, beside float64; and lowered for a GPU, where the gradient adds up its columns."""

import itertools

import jax
import numpy as np
import pytest

import pcp
from pcp.kernels import apply_kernels, cover, features, kernel_named, sites_of
from pcp.kernels.activations.triton import SUMMED, Gelu
from pcp.planning.paths.preparation import prepared
from tests.kernels.gpu import lowers_for_gpus
from tests.kernels.gpu.emulated import interpreted


def test_it_computes_the_activation_and_its_gradient() -> None:
    rng = np.random.default_rng(8)
    rows, width = 3, 1280
    x, g = (rng.normal(0, 3, (rows, width)).astype(np.float32) for _ in range(2))
    x[0, :3] = -40, 40, 0
    bias = rng.normal(size=width).astype(np.float32)
    root, cubic = np.sqrt(2 / np.pi), 0.044715
    biased = x.astype(np.float64) + bias
    tanh = np.tanh(root * (biased + cubic * biased**3))
    slope = (1 - tanh**2) * root * (1 + 3 * cubic * biased**2)
    exact = biased / 2 * (1 + tanh)
    of_x = g * ((1 + tanh) / 2 + biased / 2 * slope)
    for operands, expected in (((), exact), ((g,), of_x)):
        for rounded, error in ((False, 1e-6), (True, 3e-3)):
            (found,) = interpreted(Gelu(rounded))(x, bias[None], *operands)
            assert found.dtype.name == ("bfloat16" if rounded else "float32")
            away = np.asarray(found, np.float64) - expected
            assert np.linalg.norm(away) < error * np.linalg.norm(expected)
            assert np.abs(away).max() <= 2 * error * np.abs(expected).max()


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
