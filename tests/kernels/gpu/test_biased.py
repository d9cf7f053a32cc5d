"""Products with a bias for GPUs: run on a processor, which multiplies bfloat16 as well; and where a program cuts the result."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp.backends import Device, Target
from pcp.backends.full_precision import completes_products
from pcp.ir import Program
from pcp.kernels import apply_kernels, features, kernel_named, sites_of
from pcp.kernels.products.biased import LEAST
from pcp.planning.paths.preparation import prepared
from pcp.tensor import Tensor

FAMILY, INNER = "product_epilogue", 24
Parts = tuple[Tensor, ...]


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_found", lambda platform: frozenset({platform, "sm_80"}))


def _program(cut: Callable[[Tensor], Parts], columns: int, turned: bool = False) -> Program:
    def made(x: Tensor, w: Tensor, b: Tensor) -> Parts:
        return cut(x @ (w.T if turned else w) + b)

    shape = (columns, INNER) if turned else (INNER, columns)
    specs = [pcp.spec(each, "f32") for each in ((2, 5, INNER), shape, (columns,))]
    return prepared(pcp.trace(made, *specs))


def _by_kernel(program: Program) -> Program:
    sites = [site for site in sites_of(program, "cuda") if f"{FAMILY}.xla:bf16+result" in site.kernels]
    return apply_kernels(program, {site.key: kernel_named(f"{FAMILY}.xla:bf16+result") for site in sites})


def _thirds(y: Tensor) -> Parts:
    return pcp.split(y, 3, axis=-1)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("cut", "columns", "products"),
    [
        (lambda y: (y,), 3 * LEAST, 1),
        (_thirds, 3 * LEAST, 3),
        (lambda y: pcp.split(y, 2, axis=-1), 2 * LEAST, 2),
        (lambda y: _thirds(y)[::-1], 3 * LEAST, 3),
        (_thirds, 3 * (LEAST - 1), 1),
        (lambda y: pcp.split(y, 4, axis=-1), 4 * LEAST, 1),
        (lambda y: (*_thirds(y), y), 3 * LEAST, 1),
        (lambda y: _thirds(y)[:2], 3 * LEAST, 1),
        (lambda y: (y[..., :LEAST], y[..., LEAST:]), 3 * LEAST, 1),
        (lambda y: (y[:1], y[1:]), LEAST, 1),
    ],
)
def test_it_is_as_exact_as_bfloat16_and_in_parts_where_the_result_is_cut(
    cut: Callable[[Tensor], Parts], columns: int, products: int, turned: bool
) -> None:
    program = _program(cut, columns, turned)
    changed = _by_kernel(program)
    assert changed.text.partition("func.func private")[0].count("stablehlo.dot_general") == products
    assert completes_products(changed)
    rng = np.random.default_rng(columns)
    given = [rng.normal(size=entry.spec.shape).astype(np.float32) for entry in program.arguments]
    x, w, b = (each.astype(ml_dtypes.bfloat16).astype(np.float64) for each in given)
    exact = pcp.plan(pcp.trace(cut, pcp.spec((2, 5, columns), "f32")))(
        (x @ (w.T if turned else w) + b).astype(np.float32)
    )
    for found, right in zip(pcp.plan(changed)(*given), exact, strict=True):
        error = np.linalg.norm(np.asarray(found, np.float64) - np.asarray(right))
        assert error <= 6e-3 * np.linalg.norm(
            right
        )  # the bias comes to a product that was rounded, on a processor


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: x @ w + (b * 0.0 + 1.0).sum(),
        lambda x, w, b: pcp.nn.gelu(x @ w + b),
        lambda x, w, b: (x.T @ w) + b,
        lambda x, w, b: x @ w * b,
    ],
)
def test_other_products_are_left(function: Callable[..., Any]) -> None:
    shapes = ((INNER, INNER), (INNER, 8), (8,))
    program = prepared(pcp.trace(function, *[pcp.spec(shape, "f32") for shape in shapes]))
    sites = [site for site in sites_of(program, "cuda") if f"{FAMILY}.xla:bf16+result" in site.kernels]
    # The bias before an activation is a site of its own, smaller than the activation's.
    assert all(len(site.takes) == 2 for site in sites)


def test_a_program_that_completes_products_is_known_by_its_sums() -> None:
    text = """func.func public @main(%a: tensor<4x4x{0}>, %b: tensor<4x4x{0}>) -> tensor<4x4x{0}> {{
      %c = stablehlo.{1} : (tensor<4x4x{0}>, tensor<4x4x{0}>) -> tensor<4x4x{0}>
      %d = stablehlo.add %b, %c : tensor<4x4x{0}>
      return %d : tensor<4x4x{0}>
    }}"""
    dot, other = "dot_general %a, %b, contracting_dims = [1] x [0]", "multiply %a, %b"
    for kind, op, expected in (("bf16", dot, True), ("f32", dot, False), ("bf16", other, False)):
        assert completes_products(pcp.Program.parse(text.format(kind, op))) is expected


def test_only_what_completes_products_is_compiled_so_and_a_user_may_say_otherwise() -> None:
    program = _program(_thirds, 3 * LEAST)
    gpu = Target("xla", (Device("cuda", 0, 2**40),))
    mine = {"xla_gpu_dot_merger_threshold_mb": 32}
    bf16 = pcp.trace(lambda x: x @ x, pcp.spec((4, 4), "bf16"))
    whole = {
        "xla_gpu_enable_triton_gemm": False,
        "xla_gpu_enable_cublaslt": True,
        "xla_gpu_dot_merger_threshold_mb": 0,
    }
    asked = ((_by_kernel(program), {}), (_by_kernel(program), mine), (bf16, {}))
    found = [dict(gpu.with_options(options).suited(each).options) for each, options in asked]
    assert found == [whole, whole | mine, {}]
