"""Products with weights in bfloat16, int8 and int4: as exact as they say beside the weights as they are stored, and refused where arrays
do not fit."""

import sys
from collections.abc import Sequence
from pathlib import Path as File
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
from tests.kernels.native.test_products import LESS

FORMS = ("bf16", "int8", "int8_blocks", "int4")
FEW, MANY = "quantised_product.native", "quantised_product.native_many"
ROUNDED = "quantised_product.native:int8"


def stored(form: str, outputs: int, inputs: int) -> dict[str, np.ndarray[Any, Any]]:
    return nn.quantise(np.random.default_rng(outputs).normal(size=(outputs, inputs)).astype(np.float32), form)


def wide(weights: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """What stored weights mean, in float64, written out another way than `nn.quantised` does."""
    values = weights["values"]
    if values.dtype == ml_dtypes.bfloat16:
        return values.astype(np.float64)
    outputs, scales = len(values), weights["scales"].astype(np.float64)
    if values.dtype == np.int8:
        return values * np.repeat(
            scales.reshape(outputs, -1), values.shape[1] // (scales.size // outputs), axis=1
        )
    found = np.empty((outputs, scales.shape[1], 32))
    for place in range(16):
        byte = values.reshape(outputs, -1, 16)[..., place].astype(np.int64)
        found[..., place], found[..., place + 16] = byte % 16 - 8, byte // 16 - 8
    return (found * scales[..., None]).reshape(outputs, -1)


def native(program: pcp.Program, name: str = FEW, count: int = 1) -> pcp.Plan:
    """Planned with a kernel at every site that it applies to, of which there are so many."""
    found = kernels.sites_of(prepared(program), "cpu")
    chosen = {site.key: kernels.kernel_named(name) for site in found if name in site.kernels}
    assert len(chosen) == count
    return pcp.plan(program, path=Path.of(program, chosen), cache=False)


Case = tuple[str, tuple[int, ...], int, int]
"""A form, rows, outputs and inputs."""


def errors_of(cases: Sequence[Case], name: str = FEW) -> dict[Case, float]:
    """The largest errors beside float64, as a part of the largest number; without a name those of the plain form."""
    given = [
        (
            np.random.default_rng(inputs).normal(size=(*rows, inputs)).astype(np.float32),
            stored(form, outputs, inputs),
        )
        for form, rows, outputs, inputs in cases
    ]
    program = pcp.trace(lambda pairs: [nn.quantised_product(*pair) for pair in pairs], given)
    made = (native(program, name, len(cases)) if name else pcp.plan(program)).run(given)
    found = {}
    for case, (x, weights), y in zip(cases, given, made, strict=True):
        exact = x.astype(np.float64) @ wide(weights).T
        assert y.shape == exact.shape
        found[case] = float(np.abs(np.asarray(y) - exact).max() / np.abs(exact).max())
    return found


def beyond(errors: dict[Case, float], most: float, least: float = -1.0) -> dict[Case, float]:
    """The cases that are wrong by more than there may be, or by less than rounding must be."""
    return {case: error for case, error in errors.items() if not least < error < most}


FEW_SIZES = [((), 1, 32), ((1,), 7, 96), ((2, 4), 301, 64), ((1, 1), 40, 1024)]


def test_it_is_right() -> None:
    cases = [(form, *size) for form in FORMS for size in FEW_SIZES]
    assert not beyond(errors_of(cases), 1e-6)
    assert not beyond(errors_of(cases, name=""), 1e-6)


def test_rows_need_be_no_whole_vectors() -> None:
    cases = [(form, (3,), 13, inputs) for form in ("bf16", "int8") for inputs in (1, 15, 16, 77)]
    assert not beyond(errors_of(cases), 1e-6)


def test_it_is_right_without_avx512() -> None:
    with masked("avx512f"):
        assert not beyond(errors_of([(form, (2,), 13, 96) for form in FORMS]), 1e-6)


@pytest.mark.parametrize("hides", ["", "avx512f"])
def test_rows_of_bytes_are_as_exact_as_their_blocks(hides: str) -> None:
    cases = [(form, *size) for form in ("int8", "int4") for size in (*FEW_SIZES, ((1,), 9, 160))]
    with masked(*filter(None, [hides])):
        assert not beyond(errors_of(cases, ROUNDED), 1e-2, 1e-5)


@pytest.mark.parametrize("hides", ["", "avx512f"])
def test_rows_of_bytes_need_be_no_whole_vectors(hides: str) -> None:
    with masked(*filter(None, [hides])):
        cases = [("int8", (3,), 13, inputs) for inputs in (1, 63, 65, 129, 300)]
        assert not beyond(errors_of(cases, ROUNDED), 2e-2)


def test_integers_of_int4_are_as_exact_as_float32() -> None:
    """Where the processor multiplies bytes, numbers are written as integers of 24 bits: whole numbers stay what they are."""
    x = np.random.default_rng(0).integers(-8_000_000, 8_000_001, (2, 224)).astype(np.float32)
    x[:, ::32], x[1, 32:64] = 8_355_000, 0
    weights = stored("int4", 21, 224)
    weights["scales"] = np.zeros_like(weights["scales"])
    for block in range(7):
        weights["scales"][:] = 0
        weights["scales"][:, block] = 0.25
        made = native(pcp.trace(nn.quantised_product, x, weights)).run(x, weights)
        np.testing.assert_allclose(
            np.asarray(made), x.astype(np.float64) @ wide(weights).T, rtol=3e-7, atol=1
        )


@pytest.mark.parametrize("case", ["infinity", "NaN", "tiny", "huge"])
def test_rows_that_are_no_integers_of_24_bits_are_computed_as_float32(case: str) -> None:
    """One such row, beside another one."""
    x = np.random.default_rng(0).normal(size=(2, 160)).astype(np.float32)
    weights = stored("int4", 9, 160)
    weights["values"][0] = (
        weights["values"][0] & 0xF0 | 0x08
    )  # zeros: their products are NaN with an infinity, else 0
    if case in ("infinity", "NaN"):
        x[1, 7] = np.inf if case == "infinity" else np.nan
    else:
        x[1] *= np.float32(1e-32 if case == "tiny" else 1e37)
    with np.errstate(invalid="ignore"):
        exact = x.astype(np.float64) @ wide(weights).T
    made = np.asarray(native(pcp.trace(nn.quantised_product, x, weights)).run(x, weights))
    np.testing.assert_allclose(made[0], exact[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(made[1], exact[1], rtol=1e-4)


@pytest.mark.parametrize("form", ["int8", "int4"])
@pytest.mark.parametrize("hides", ["", "avx512f"])
def test_blocks_of_integers_are_exact(hides: str, form: str) -> None:
    x = np.random.default_rng(0).integers(-127, 128, (3, 224)).astype(np.float32)
    x[:, ::32] = 127
    weights = stored(form, 21, 224)
    weights["scales"] = np.exp2(np.random.default_rng(1).integers(-3, 3, weights["scales"].shape)).astype(
        np.float32
    )
    with masked(*filter(None, [hides])):
        made = native(pcp.trace(nn.quantised_product, x, weights), ROUNDED).run(x, weights)
    np.testing.assert_array_equal(np.asarray(made), x.astype(np.float64) @ wide(weights).T)


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux says of the process")
def test_memory_of_small_rows_is_kept_once() -> None:
    """Of copies that are smaller than a page, one page would be kept with every call."""
    x, weights = np.ones((1, 64), np.float32), stored("int4", 3, 64)
    plan = native(pcp.trace(nn.quantised_product, x, weights), ROUNDED).bind(x)

    def pages_after(calls: int) -> int:
        for _ in range(calls):
            plan.run(weights)
        return int(File("/proc/self/statm").read_text().split()[1])

    before = pages_after(200)
    assert pages_after(4000) < before + 2000


@pytest.mark.parametrize("form", ["int8", "int4"])
def test_blocks_keep_rows_apart(form: str) -> None:
    x = np.random.default_rng(3).normal(size=(6, 64)).astype(np.float32)
    x[1], x[2, 5], x[3, 7], x[4] = 0, np.inf, np.nan, x[5] * 1e30
    weights = stored(form, 9, 64)
    made = np.asarray(native(pcp.trace(nn.quantised_product, x, weights), ROUNDED).run(x, weights))
    assert not made[1].any()
    assert np.isnan(made[2:4]).all()
    np.testing.assert_allclose(made[4], made[5] * 1e30, rtol=1e-5)


BOUNDS = {MANY: 1e-6, f"{MANY}:bf16": 6e-3, f"{MANY}:int8": 2e-2}
"""By kernels of many rows, the most that they may be wrong."""
SIZES = [((9,), 1, 32), ((2, 7), 33, 96), ((31,), 65, 1056), ((530,), 40, 64), ((10,), 300, 2112)]


def not_within(cases: Sequence[Case]) -> dict[tuple[str, Case], float]:
    """The cases in which a kernel of many rows that is for their form is less exact than it should be."""
    return {
        (name, case): error
        for name, most in BOUNDS.items()
        for case, error in beyond(
            errors_of([case for case in cases if case[0] != "bf16" or not name.endswith("int8")], name), most
        ).items()
    }


def test_of_many_rows() -> None:
    assert not not_within([(form, *size) for form in FORMS for size in SIZES])


def test_many_rows_need_be_no_whole_words() -> None:
    lengths = (1, 15, 77, 513, 2049)
    assert not not_within([(form, (11,), 13, inputs) for form in ("bf16", "int8") for inputs in lengths])


@pytest.mark.parametrize("hides", LESS)
def test_of_many_rows_on_processors_with_less(hides: str) -> None:
    with masked(*hides.split(",")):
        assert not not_within([(form, (23,), 37, inputs) for form in FORMS for inputs in (96, 2080)])


def integers(*shape: int) -> np.ndarray[Any, Any]:
    """From -127 to 127, with a row of the largest at the front of every 2048, so that scales are whole."""
    found = np.random.default_rng(shape[0]).integers(-127, 128, shape)
    found[:, ::2048] = 127
    return found


@pytest.mark.parametrize("hides", ["", "avx512f"])
@pytest.mark.parametrize("inputs", [5, 768, 2060])
def test_products_of_bytes_are_exact_where_numbers_are_integers(hides: str, inputs: int) -> None:
    x, values = integers(17, inputs), integers(35, inputs)
    weights = {"values": values.astype(np.int8), "scales": np.full(35, 0.25, np.float32)}
    with masked(*filter(None, [hides])):
        made = native(pcp.trace(nn.quantised_product, x.astype(np.float32), weights), f"{MANY}:int8").run(
            x.astype(np.float32), weights
        )
    np.testing.assert_array_equal(np.asarray(made), (x @ values.T * 0.25).astype(np.float32))


def test_products_of_bytes_keep_rows_apart() -> None:
    x = np.random.default_rng(3).normal(size=(20, 64)).astype(np.float32)
    x[1], x[2, 5], x[3, 7], x[4] = 0, np.inf, np.nan, x[5] * 1e30
    for form in ("int8", "int4"):
        weights = stored(form, 9, 64)
        made = np.asarray(native(pcp.trace(nn.quantised_product, x, weights), f"{MANY}:int8").run(x, weights))
        assert not made[1].any()
        assert np.isnan(made[2:4]).all()
        np.testing.assert_allclose(made[4], made[5] * 1e30, rtol=1e-5)
        exact = x[5:].astype(np.float64) @ wide(weights).T
        assert np.abs(made[5:] - exact).max() < 2e-2 * np.abs(exact).max()


def test_kernels_of_few_and_of_many_rows_leave_each_other_out() -> None:
    for rows, form, names in (
        (8, "bf16", {FEW}),
        (8, "int8", {FEW, ROUNDED}),
        (8, "int4", {FEW, ROUNDED}),
        (9, "int8", set(BOUNDS)),
        (9, "int4", set(BOUNDS)),
        (9, "bf16", {MANY, f"{MANY}:bf16"}),
    ):
        program = pcp.trace(nn.quantised_product, pcp.spec((rows, 32), "f32"), stored(form, 5, 32))
        found = kernels.sites_of(prepared(program), "cpu")
        assert {
            name for site in found for name in site.kernels if site.family == "quantised_product"
        } == names


def test_products_of_bytes_are_for_processors_that_have_them() -> None:
    program = pcp.trace(nn.quantised_product, pcp.spec((9, 32), "f32"), stored("int8", 5, 32))
    with masked("avx512_vnni"):
        found = kernels.sites_of(prepared(program), "cpu")
    assert f"{MANY}:int8" not in [name for site in found for name in site.kernels]


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
    with pytest.raises(
        nn.NotQuantisable,
        match="cannot be stored as 'int3'; choose one of bf16, int8, int8_blocks, fp8, fp8_e5m2, int4",
    ):
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
        ("quantised_many_f32", (9, 64), (3, 63), (), (9, 3), "a row of weights has 63 elements; expected 64"),
        ("quantised_many_bf16", (9, 64), (3, 64), (3,), (9, 3), "there are 1 arrays of scales; expected 0"),
        ("quantised_many_int8", (9, 64), (3, 64), (2,), (9, 3), "there are 2 scales; expected 3"),
        ("quantised_many_int8", (9, 64), (3, 64), (), (9, 3), "there are 0 arrays of scales; expected 1"),
    ],
)
def test_wrong_shapes_are_refused(
    handler: str, x: Any, weights: Any, scales: Any, result: Any, words: str
) -> None:
    dtype = {"int8": "i8", "int4": "u8"}.get(handler.rpartition("_")[2], "bf16")
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
