"""Products in eight bits: where they stand, what they round, and that XLA is told to leave them to cuBLASLt."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp.backends import Device, Target
from pcp.kernels import kernel_named, replaced, sites_of
from pcp.kernels.products import eight_bits

NAME = "product.xla:fp8"
Array = np.ndarray[Any, Any]
SMALL = (32, 48, 16)


def product(rows: int, columns: int, inner: int) -> pcp.Program:
    """The product of a matrix and of another that is stored by columns, as the embedding is for logits."""
    return pcp.trace(
        lambda a, b: pcp.einsum("rk,ck->rc", a, b),
        pcp.spec((rows, inner), "f32"),
        pcp.spec((columns, inner), "f32"),
    )


def in_eight_bits(program: pcp.Program, monkeypatch: pytest.MonkeyPatch) -> pcp.Program:
    """The program with the kernel, however small it is."""
    monkeypatch.setattr(eight_bits, "USES", 1)
    (site,) = sites_of(program, "cuda")
    assert NAME in {*site.kernels, *site.lacks}
    return replaced(site.region, kernel_named(NAME))


def found(program: pcp.Program, monkeypatch: pytest.MonkeyPatch, *operands: Array) -> Array:
    """What it makes of operands, wherever XLA runs it."""
    return np.asarray(pcp.plan(in_eight_bits(program, monkeypatch)).run(*operands), np.float64)


@pytest.mark.parametrize(
    ("sizes", "stands"),
    [
        ((32768, 50304, 768), True),
        ((32768, 3072, 768), False),  # each number is used too seldom
        ((32768, 50257, 768), False),  # no multiple of 16
        ((32768, 50304, 760), False),
    ],
)
def test_it_stands_where_numbers_are_used_often(sizes: tuple[int, int, int], stands: bool) -> None:
    (site,) = sites_of(product(*sizes), "cuda")
    assert (NAME in {*site.kernels, *site.lacks}) == stands
    (here,) = sites_of(product(*sizes), "cpu")
    assert NAME not in {*here.kernels, *here.lacks}


@pytest.mark.parametrize("size", [1.0, 3e-30, 5e20])
def test_it_rounds_to_four_bits_at_any_scale(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows, columns, inner = SMALL
    a = (rng.normal(size=(rows, inner)) * size).astype(np.float32)
    b = rng.normal(size=(columns, inner)).astype(np.float32)

    def rounded(x: Array) -> Array:
        scale = 2.0 ** np.floor(np.log2(448 / np.abs(x).max()))
        assert 224 <= np.abs(x * scale).max() <= 448
        return (x * np.float32(scale)).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) / scale

    made = found(product(*SMALL), monkeypatch, a, b)
    wanted, exact = rounded(a) @ rounded(b).T, a.astype(np.float64) @ b.T
    assert np.abs(made - wanted).max() < 2**-8 * np.abs(exact).max()
    assert 0.01 < np.linalg.norm(made - exact) / np.linalg.norm(exact) < 0.06


def test_of_zeros_it_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns, inner = SMALL
    made = found(
        product(*SMALL),
        monkeypatch,
        np.zeros((rows, inner), np.float32),
        np.ones((columns, inner), np.float32),
    )
    assert not np.asarray(made).any()


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_spreads(number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns, inner = SMALL
    a = np.ones((rows, inner), np.float32)
    a[3, 5] = number
    made = found(product(*SMALL), monkeypatch, a, np.ones((columns, inner), np.float32))
    assert not np.isfinite(made).any()


def test_other_orders_of_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    program = pcp.trace(
        lambda x, w: pcp.einsum("btij,ijv->btv", x, w),
        pcp.spec((2, 16, 4, 8), "f32"),
        pcp.spec((4, 8, 48), "f32"),
    )
    rng = np.random.default_rng(1)
    x, w = (rng.normal(size=entry.spec.shape).astype(np.float32) for entry in program.arguments)
    exact = np.einsum("btij,ijv->btv", x.astype(np.float64), w)
    made = found(program, monkeypatch, x, w)
    assert np.linalg.norm(made - exact) < 0.06 * np.linalg.norm(exact)


def test_a_gpu_leaves_it_to_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Target("xla", (Device("cuda", 0, 2**40),))
    found = gpu.suited(in_eight_bits(product(*SMALL), monkeypatch))
    assert found.options == (("xla_gpu_enable_triton_gemm", False),)
