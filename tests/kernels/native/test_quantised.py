"""Products with weights in bfloat16, int8 and int4: right to float32 beside the weights as they are stored, and refused where arrays
do not fit."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp import kernels, nn
from pcp.backends import ExecutionFailed
from pcp.ir import DType, TensorSpec
from pcp.kernels.features import masked
from pcp.kernels.native import LIBRARIES, native_call
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared

FORMS = ("bf16", "int8", "int4")


def stored(form: str, outputs: int, inputs: int) -> dict[str, np.ndarray[Any, Any]]:
    return nn.quantise(np.random.default_rng(outputs).normal(size=(outputs, inputs)).astype(np.float32), form)


def wide(weights: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """What stored weights mean, in float64, written out another way than `nn.quantised` does."""
    values = weights["values"]
    if values.dtype == ml_dtypes.bfloat16:
        return values.astype(np.float64)
    if values.dtype == np.int8:
        return values * weights["scales"].astype(np.float64)[:, None]
    outputs, scales = len(values), weights["scales"].astype(np.float64)
    found = np.empty((outputs, scales.shape[1], 32))
    for place in range(16):
        byte = values.reshape(outputs, -1, 16)[..., place].astype(np.int64)
        found[..., place], found[..., place + 16] = byte % 16 - 8, byte // 16 - 8
    return (found * scales[..., None]).reshape(outputs, -1)


def native(program: pcp.Program) -> pcp.Plan:
    """Planned with the kernel at every site that it applies to; there is one at least."""
    found = kernels.sites_of(prepared(program), "cpu")
    chosen = {
        site.key: kernels.kernel_named("quantised_product.native")
        for site in found
        if "quantised_product.native" in site.kernels
    }
    assert chosen
    return pcp.plan(program, path=Path.of(program, chosen), cache=False)


def error_of(form: str, rows: tuple[int, ...], outputs: int, inputs: int, by_kernel: bool = True) -> float:
    """The largest error beside float64, as a part of the largest number."""
    x = np.random.default_rng(inputs).normal(size=(*rows, inputs)).astype(np.float32)
    weights = stored(form, outputs, inputs)
    program = pcp.trace(nn.quantised_product, x, weights)
    made = (native(program) if by_kernel else pcp.plan(program)).run(x, weights)
    exact = x.astype(np.float64) @ wide(weights).T
    assert made.shape == exact.shape
    return float(np.abs(np.asarray(made) - exact).max() / np.abs(exact).max())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("rows", "outputs", "inputs"), [((), 1, 32), ((1,), 7, 96), ((2, 4), 301, 64), ((1, 1), 40, 1024)]
)
def test_it_is_right(form: str, rows: tuple[int, ...], outputs: int, inputs: int) -> None:
    assert error_of(form, rows, outputs, inputs) < 1e-6
    assert error_of(form, rows, outputs, inputs, by_kernel=False) < 1e-6


@pytest.mark.parametrize("form", ["bf16", "int8"])
@pytest.mark.parametrize("inputs", [1, 15, 16, 77])
def test_rows_need_be_no_whole_vectors(form: str, inputs: int) -> None:
    assert error_of(form, (3,), 13, inputs) < 1e-6


def test_it_is_right_without_avx512() -> None:
    with masked("avx512f"):
        assert max(error_of(form, (2,), 13, 96) for form in FORMS) < 1e-6


def test_many_rows_are_left_to_others() -> None:
    program = pcp.trace(nn.quantised_product, pcp.spec((9, 32), "f32"), stored("int8", 5, 32))
    found = kernels.sites_of(prepared(program), "cpu")
    assert "quantised_product" not in [site.family for site in found]


@pytest.mark.parametrize(
    ("form", "most"), [("bf16", 2**-8), ("int8", 0.5 / 127 * 1.01), ("int4", 0.5 / 7 * 1.01)]
)
def test_weights_are_rounded_to_the_nearest(form: str, most: float) -> None:
    weights = np.random.default_rng(1).normal(size=(5, 64)).astype(np.float32)
    weights[2] = 0  # whose scale is 0
    blocks = weights.reshape(5, -1, 32) if form == "int4" else weights[:, None]
    largest = np.abs(blocks).max(-1, keepdims=True)
    away = np.abs(wide(nn.quantise(weights, form)).reshape(blocks.shape) - blocks)
    assert np.all(away <= most * largest)


def test_rows_of_a_table_are_what_it_stores() -> None:
    for form in FORMS:
        table, rows = stored(form, 11, 64), np.array([[3, 0], [10, 3]], np.int32)
        made = pcp.plan(pcp.trace(nn.embedding, rows, table)).run(rows, table)
        np.testing.assert_allclose(np.asarray(made), wide(table)[rows], rtol=1e-6)


def test_what_cannot_be_stored_is_refused() -> None:
    weights = np.ones((4, 48), np.float32)
    with pytest.raises(nn.NotQuantisable, match="cannot be stored as 'int3'; choose one of bf16, int8, int4"):
        nn.quantise(weights, "int3")
    with pytest.raises(nn.NotQuantisable, match=r"48 inputs .* expected a multiple of that; choose int8"):
        nn.quantise(weights, "int4")
    with pytest.raises(nn.NotQuantisable, match=r"weights float64\[4, 48\] .* expected a float32 array"):
        nn.quantise(weights.astype(np.float64), "int8")


@pytest.mark.parametrize(
    ("handler", "x", "weights", "scales", "result", "words"),
    [
        ("quantised_bf16", (64,), (3, 64), (), (1, 3), r"x has shape \[64\]; expected \[rows,inputs\]"),
        ("quantised_bf16", (1, 64), (3, 63), (), (1, 3), "a row of weights has 63 elements; expected 64"),
        ("quantised_int8", (1, 64), (3, 64), (2,), (1, 3), "there are 2 scales; expected 3"),
        ("quantised_int8", (2, 64), (3, 64), (3,), (1, 3), r"result has shape \[1,3\]; expected \[2,3\]"),
        (
            "quantised_int4",
            (1, 48),
            (3, 24),
            (3, 1),
            (1, 3),
            "there are 48 inputs; expected a multiple of 32",
        ),
        ("quantised_int4", (1, 64), (3, 64), (3, 2), (1, 3), "a row of weights has 64 elements; expected 32"),
        ("quantised_int4", (1, 64), (3, 32), (3, 1), (1, 3), "there are 3 scales; expected 6"),
    ],
)
def test_wrong_shapes_are_refused(
    handler: str, x: Any, weights: Any, scales: Any, result: Any, words: str
) -> None:
    dtype = {"quantised_bf16": "bf16", "quantised_int8": "i8", "quantised_int4": "u8"}[handler]
    specs = [pcp.spec(x, "f32"), pcp.spec(weights, dtype), *([pcp.spec(scales, "f32")] if scales else [])]
    program = pcp.trace(
        lambda *given: native_call(
            LIBRARIES["quantised"], handler, given, [TensorSpec(result, DType.f32)], {}
        )[0],
        *specs,
    )
    with pytest.raises(ExecutionFailed, match=words):
        pcp.plan(program).run(
            *(np.ones(each.spec.shape, each.spec.dtype.numpy) for each in program.arguments)
        )
