"""What NumPy takes within a call is in the plan of the arena, but for some hundred KiB: operation by operation."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.backends.arena.test_memory import measured_and_planned

import pcp
from pcp import ops
from pcp.ops.indexing.gathering import WindowAxes, gather, scatter

LARGE, INDICES, PLACES = (
    pcp.spec((2048, 2048), "f32"),
    pcp.spec((1900,), "i32"),
    pcp.spec((2048, 1024), "i32"),
)
Made = Callable[[], pcp.Program]


def traced(function: Callable[..., Any], *specs: Any) -> Made:
    return lambda: pcp.trace(function, *specs)


def gradient(function: Callable[..., Any], *specs: Any) -> Made:
    return lambda: pcp.grad(pcp.trace(lambda *given: (function(*given) ** 2).sum(), *specs))


def written(operands: str, results: str, operation: str) -> Made:
    """A program of one operation, in which `?` stands for its operands."""
    kinds, made = ([f"tensor<{each}>" for each in text.split()] for text in (operands, results))
    names = [f"%{letter}" for letter, _ in zip("abcde", kinds, strict=False)]
    arguments = ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True))
    outs = ", ".join(f"%r{number}" for number in range(len(made)))
    signature = f"({', '.join(kinds)}) -> ({', '.join(made)})"
    return lambda: pcp.Program.parse(
        f"func.func @main({arguments}) -> ({', '.join(made)}) {{\n"
        f"{outs} = {operation.replace('?', ', '.join(names))} : {signature}\nreturn {outs} : {', '.join(made)}\n}}"
    )


def sort(dtype: str, shape: str, comparison: str, *, alone: bool = False) -> Made:
    """Of numbers, with whole numbers that follow them unless they are alone."""
    kinds = f"{shape}x{dtype}" if alone else f"{shape}x{dtype} {shape}xi32"
    scalars = [dtype, dtype] if alone else [dtype, dtype, "i32", "i32"]
    block = ", ".join(f"%{letter}: tensor<{each}>" for letter, each in zip("xyzw", scalars, strict=False))
    body = f"({{\n^bb0({block}):\n{comparison.replace('*', dtype)}\nstablehlo.return %c : tensor<i1>\n}})"
    along = f"dimension = {shape.count('x')} : i64, is_stable = true"
    return written(kinds, kinds, f'"stablehlo.sort"(?) <{{{along}}}> {body}')


def fft(kind: str, operand: str, result: str, axes: int) -> Made:
    attributes = (
        f"fft_type = #stablehlo<fft_type {kind}>, fft_length = array<i64: {', '.join(['1024'] * axes)}>"
    )
    return written(operand, result, f'"stablehlo.fft"(?) <{{{attributes}}}>')


LESS = "%c = stablehlo.compare {}, %x, %y{} : (tensor<*>, tensor<*>) -> tensor<i1>"
BY_BOTH = """%l = stablehlo.compare LT, %x, %y : (tensor<*>, tensor<*>) -> tensor<i1>
%e = stablehlo.compare EQ, %x, %y : (tensor<*>, tensor<*>) -> tensor<i1>
%m = stablehlo.compare GT, %z, %w : (tensor<i32>, tensor<i32>) -> tensor<i1>
%both = stablehlo.and %e, %m : tensor<i1>
%c = stablehlo.or %l, %both : tensor<i1>"""
SOLVE = '"stablehlo.triangular_solve"(?) <{{left_side={}, lower={}, unit_diagonal={}, transpose_a={}}}>'
FROM_LEFT = SOLVE.format("true", "true", "false", "#stablehlo<transpose NO_TRANSPOSE>")
FROM_RIGHT = SOLVE.format("false", "false", "true", "#stablehlo<transpose ADJOINT>")
UPPER = '"stablehlo.cholesky"(?) <{lower = false}>'
PRODUCT = '"stablehlo.einsum"(?) <{einsum_config = "ij,jk->ik"}>'
BLOCKS = WindowAxes((1, 2), (), (0, 1), 1)
NORM = '"stablehlo.batch_norm_{}"(?) <{{epsilon = 0.001 : f32, feature_index = 3 : i64}}>'
IMAGES, FEATURES = "64x64x64x16xf32", "16xf32"
NORMED = f"{IMAGES} {FEATURES} {FEATURES}"

ROWS: dict[str, tuple[Made, int]] = {
    "sort": (sort("i32", "1024x1024", LESS.format("LT", ""), alone=True), 0),
    "sort, the larger first": (sort("i32", "1024x1024", LESS.format("GT", ""), alone=True), 0),
    "sort of floats": (sort("f32", "1024x1024", LESS.format("LT", ", TOTALORDER"), alone=True), 0),
    "sort of pairs": (sort("i16", "2048x1024", LESS.format("LT", "")), 0),
    "sort of a row": (sort("i64", "262144", LESS.format("LT", "")), 4 * 262144),
    "sort by two numbers": (sort("i32", "1024x256", BY_BOTH), 0),
    "pcp.sort": (traced(lambda x: ops.sort(x, 1), LARGE), 0),
    "rows": (traced(lambda x, i: x[i], LARGE, INDICES), 0),
    "columns": (traced(lambda x, i: x[:, i], LARGE, INDICES), 0),
    "rows by u64": (traced(lambda x, i: x[i.astype("u64")], LARGE, INDICES), 0),
    "elements": (traced(lambda x, i, j: x[i, j], LARGE, PLACES, PLACES), 0),
    "elements of each row": (traced(lambda x, i: ops.take_along_axis(x, i, 1), LARGE, PLACES), 0),
    "rows, gradient": (gradient(lambda x, i: x[i], LARGE, INDICES), 0),
    "columns, gradient": (gradient(lambda x, i: x[:, i], LARGE, INDICES), 0),
    "elements, gradient": (gradient(lambda x, i, j: x[i, j], LARGE, PLACES, PLACES), 0),
    "a scatter of blocks": (
        traced(lambda x, u, i: scatter(x, i, u, BLOCKS), LARGE, pcp.spec((4, 99, 2000), "f32"),
               pcp.spec((4, 2), "i32")), 0,
    ),
    "a gather of blocks": (traced(lambda x, i: gather(x, i, BLOCKS, (99, 2000)), LARGE, pcp.spec((4, 2), "i32")), 0),
    "torch_index_select": (
        written("64x128x1024xf32 64x96xi32", "64x96x1024xf32",
                '"stablehlo.torch_index_select"(?) <{dim = 1 : i64, batch_dims = 1 : i64}>'), 0,
    ),
    "fft": (fft("FFT", "1024x1024xcomplex<f32>", "1024x1024xcomplex<f32>", 2), 32 * 8192),
    "ifft": (fft("IFFT", "1024x1024xcomplex<f64>", "1024x1024xcomplex<f64>", 1), 32 * 8192),
    "rfft": (fft("RFFT", "1024x1024xf32", "1024x513xcomplex<f32>", 2), 48 * 8192),
    "irfft": (fft("IRFFT", "1024x513xcomplex<f64>", "1024x1024xf64", 2), 32 * 8192),
    "cholesky": (written("1500x1500xf32", "1500x1500xf32", '"stablehlo.cholesky"(?) <{lower = true}>'), 0),
    "cholesky, upper": (written("2x900x900xcomplex<f32>", "2x900x900xcomplex<f32>", UPPER), 0),
    "triangular_solve": (written("512x512xf32 512x4096xf32", "512x4096xf32", FROM_LEFT), 0),
    "triangular_solve, conjugate": (
        written("128x128xcomplex<f32> 9000x128xcomplex<f32>", "9000x128xcomplex<f32>", FROM_RIGHT), 0,
    ),
    "batch_norm_inference": (written(f"{IMAGES}{f' {FEATURES}' * 4}", IMAGES, NORM.format("inference")), 0),
    "batch_norm_training": (written(f"{IMAGES}{f' {FEATURES}' * 2}", NORMED, NORM.format("training")), 0),
    "batch_norm_grad": (written(f"{IMAGES}{f' {FEATURES}' * 3} {IMAGES}", NORMED, NORM.format("grad")), 0),
    "einsum": (written("512x512xbf16 512x512xbf16", "512x512xbf16", PRODUCT), 0),
    "largest of bf16": (traced(lambda x: x.max((0, 2)), pcp.spec((512, 1024, 8), "bf16")), 0),
}  # fmt: skip
"""Programs of one operation, and the bytes that NumPy takes from the system where `tracemalloc` does not see them."""


@pytest.mark.parametrize("name", ROWS)
def test_an_operation_takes_the_memory_that_its_plan_says(name: str) -> None:
    make, unseen = ROWS[name]
    measured, planned = measured_and_planned(make())
    assert 0.98 * (planned - unseen) <= measured <= 1.02 * planned
