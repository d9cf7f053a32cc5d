"""Operations that the arena computes some rows at a time, beside XLA: arrays of several blocks, and rows of more than one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.backends.arena.lifetimes import problems_of
from tests.backends.arena.test_memory import planned
from tests.backends.arena.test_memory_of_calls import (
    BY_BOTH,
    FROM_LEFT,
    FROM_RIGHT,
    LESS,
    NORM,
    fft,
    sort,
    written,
)

import pcp
from pcp.ir.tree import flatten
from pcp.ops.indexing.gathering import WindowAxes, gather, scatter

RANDOM = np.random.default_rng(3)
BLOCKS = WindowAxes((1, 2), (), (0, 1), 1)
STARTS = np.array([[0, 0], [3, -1], [99, 9], [2**31 - 1, 1], [8, 3], [9, 4]], np.int32)
CANONICAL = """%o = stablehlo.constant dense<0.0> : tensor<f32>
%s = stablehlo.compare EQ, %x, %o : (tensor<f32>, tensor<f32>) -> tensor<i1>
%t = stablehlo.select %s, %o, %x : tensor<i1>, tensor<f32>
%u = stablehlo.compare EQ, %y, %o : (tensor<f32>, tensor<f32>) -> tensor<i1>
%v = stablehlo.select %u, %o, %y : tensor<i1>, tensor<f32>
%c = stablehlo.compare LT, %t, %v, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>"""
SWAPPED = LESS.replace("%x, %y", "%y, %x")


def few(*shape: int) -> Any:
    """Of few numbers, so that many are equal."""
    return RANDOM.integers(-4, 4, shape)


def floats(*shape: int) -> Any:
    """Some of them NaN, infinite, or zeros of either sign."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.5, -1.5], np.float32)
    return special[RANDOM.integers(0, 8, shape)]


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def positive(n: int, dtype: str) -> Any:
    x = normal(2, n, n) + (1j * normal(2, n, n) if dtype == "complex64" else 0)
    return (x @ np.conj(np.swapaxes(x, -1, -2)) / n + 2 * np.eye(n)).astype(dtype)


def triangular(n: int) -> Any:
    return normal(n, n) / n + np.eye(n, dtype=np.float32)


def wide(*shape: int) -> Any:
    return (normal(*shape) + 1j * normal(*shape)).astype(np.complex64)


Row = tuple[Callable[[], pcp.Program], tuple[Any, ...]]
PLACED = np.arange(3 * 9000, dtype=np.int32)
IMAGE, FEATURE = "7x80x80xf32", "80xf32"


def traced(function: Callable[..., Any], *arrays: Any) -> Row:
    return (lambda: pcp.trace(function, *arrays)), arrays


def added_up(function: Callable[..., Any], *arrays: Any) -> Row:
    """The gradient of what a function reads, times other numbers."""

    def weighed(*given: Any) -> Any:
        read = function(*given[:-1])
        return (read * given[-1].astype(read.dtype)).sum()

    return (lambda: pcp.grad(pcp.trace(weighed, *arrays), wrt=0)), arrays


ROWS: dict[str, Row] = {
    "few equal rows": (sort("i32", "3x9000", LESS.format("LT", "")), (few(3, 9000), PLACED.reshape(3, 9000))),
    "many rows, the larger first": (sort("i8", "900x30", LESS.format("GT", "")), (few(900, 30), PLACED.reshape(900, 30))),
    "the second compared with the first": (
        sort("ui16", "900x30", SWAPPED.format("LT", "")), (few(900, 30) + 4, PLACED.reshape(900, 30)),
    ),
    "floats in total order": (sort("f32", "27000", LESS.format("LT", ", TOTALORDER")), (floats(27000), PLACED)),
    "floats, alone": (sort("f32", "27000", LESS.format("GT", ", TOTALORDER"), alone=True), (floats(27000),)),
    "floats by another number": (sort("f32", "900x30", CANONICAL), (floats(900, 30), PLACED.reshape(900, 30))),
    "whole numbers, alone": (sort("i16", "900x30", LESS.format("GT", ""), alone=True), (few(900, 30),)),
    "booleans": (sort("i1", "900x30", LESS.format("GT", ""), alone=True), (few(900, 30) > 0,)),
    **{
        f"by two numbers, {n}": (sort("i32", f"3x{n}", BY_BOTH), (few(3, n), few(3, n))) for n in (1, 2, 3, 7, 8, 100, 129)
    },
    "a gather of blocks": traced(lambda x, i: gather(x, i, BLOCKS, (95, 90)), normal(100, 97), STARTS),
    "a scatter of blocks": traced(lambda x, i, u: scatter(x, i, u, BLOCKS), normal(100, 97), STARTS, normal(6, 95, 90)),
    "the last block written": traced(
        lambda x, i, u: scatter(x, i, u, BLOCKS, None, unique=True), normal(100, 97), STARTS[3:5], normal(2, 92, 90)
    ),
    "elements added up": added_up(lambda x, i, j: x[i, j], normal(20, 30), few(90, 100), few(90, 100), normal(90, 100)),
    "bf16 added up": added_up(lambda x, i: x.astype("bf16")[:, i], normal(9, 30), few(900), few(9, 900)),
    "columns": traced(lambda x, i: (x[:, i], x[:, :, i]), normal(5, 9, 8), few(70, 30)),
    "fft": (fft("FFT", "2x9x1024xcomplex<f32>", "2x9x1024xcomplex<f32>", 1), (wide(2, 9, 1024),)),
    "torch_index_select": (
        written("5x6x7xf32 5x9xi32", "5x9x7xf32", '"stablehlo.torch_index_select"(?) <{dim = 1 : i64, batch_dims = 1 : i64}>'),
        (normal(5, 6, 7), few(5, 9) + 4),
    ),
    "solve": (written("150x150xf32 150x9xf32", "150x9xf32", FROM_LEFT), (triangular(150), normal(150, 9))),
    "solve, conjugate": (
        written("150x150xcomplex<f32> 9x150xcomplex<f32>", "9x150xcomplex<f32>", FROM_RIGHT),
        (triangular(150) + 1j * triangular(150) / 9, wide(9, 150)),
    ),
    **{
        f"cholesky, {lower}, {dtype}": (
            written(f"2x150x150x{kind}", f"2x150x150x{kind}", f'"stablehlo.cholesky"(?) <{{lower = {lower}}}>'),
            (positive(150, dtype),),
        )
        for lower in ("true", "false")
        for dtype, kind in (("float32", "f32"), ("complex64", "complex<f32>"))
    },
    "no factor": (
        written("150x150xf32", "150x150xf32", '"stablehlo.cholesky"(?) <{lower = true}>'), (-np.eye(150, dtype=np.float32),),
    ),
    "norm": (
        written(f"{IMAGE} {FEATURE} {FEATURE}", f"{IMAGE} {FEATURE} {FEATURE}", NORM.format("training").replace("= 3", "= 2")),
        (normal(7, 80, 80), normal(80), normal(80)),
    ),
    "norm, gradient": (
        written(
            f"{IMAGE} {FEATURE} {FEATURE} {FEATURE} {IMAGE}", f"{IMAGE} {FEATURE} {FEATURE}",
            NORM.format("grad").replace("= 3", "= 1"),
        ),
        (normal(7, 80, 80), normal(80), normal(80), normal(80) ** 2, normal(7, 80, 80)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_it_is_as_by_xla(name: str) -> None:
    # XLA on a processor: on a GPU it takes -0 for 0 where it sorts in total order.
    make, arrays = ROWS[name]
    program = make()
    given = [
        np.asarray(x).astype(entry.spec.dtype.numpy)
        for x, entry in zip(arrays, program.arguments, strict=True)
    ]
    assert problems_of(planned(program)) == []
    nested = program.argument_tree.unflatten(given)
    made, expected = (flatten(pcp.plan(program, device).run(*nested))[0] for device in ("arena:cpu", "cpu:0"))
    for one, other in zip(made, expected, strict=True):
        array, near = np.asarray(one), 2e-2 if "bf16" in name else 2e-4
        if array.dtype.kind in "iub" or "floats" in name:
            np.testing.assert_array_equal(
                array.view(f"u{array.itemsize}"), np.asarray(other).view(f"u{array.itemsize}")
            )
        else:
            np.testing.assert_allclose(array, other, rtol=near, atol=near)
