"""Native products: any axes, as exact as they say, with infinities and NaN where they belong, on processors with less, too."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp import kernels
from pcp.backends import CompilationFailed, ExecutionFailed
from pcp.ir import DType, Program
from pcp.kernels.features import masked
from pcp.kernels.native import LIBRARIES, built
from pcp.kernels.products.native import ALONE
from pcp.ops.linear.products import dot_general
from pcp.tracing import trace
from tests.kernels.native.programs import calling

LIBRARY = LIBRARIES["products"]
Axes = tuple[tuple[int, ...], tuple[int, ...]]
PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...], Axes, Axes]] = [
    ((1, 1), (1, 1), ((1,), (0,)), ((), ())),
    ((14, 256), (256, 32), ((1,), (0,)), ((), ())),
    ((29, 1035), (1035, 70), ((1,), (0,)), ((), ())),
    ((1035, 29), (70, 1035), ((0,), (1,)), ((), ())),
    ((1035, 29), (1035, 70), ((0,), (0,)), ((), ())),
    ((3, 9000), (9000, 5), ((1,), (0,)), ((), ())),
    ((7,), (7,), ((0,), (0,)), ((), ())),
    ((600, 3), (3,), ((1,), (0,)), ((), ())),
    ((5, 1), (1, 900), ((1,), (0,)), ((), ())),
    # of one row or one column: beside the panels
    ((1, 1035), (1035, 700), ((1,), (0,)), ((), ())),
    ((1, 1035), (70, 1035), ((1,), (1,)), ((), ())),
    ((700, 1035), (1035, 1), ((1,), (0,)), ((), ())),
    ((1035, 70), (1035,), ((0,), (0,)), ((), ())),
    ((4, 1, 40), (40, 4, 17), ((2,), (0,)), ((0,), (1,))),
    # of attention: heads beside the numbers of each, positions outside
    ((2, 33, 4, 20), (2, 17, 4, 20), ((3,), (3,)), ((0, 2), (0, 2))),
    ((2, 4, 33, 17), (2, 17, 4, 20), ((3,), (1,)), ((0, 1), (0, 2))),
    # summed over two axes, in another order on the right; a free axis between two others
    ((6, 5, 7), (7, 11, 5), ((1, 2), (2, 0)), ((), ())),
    ((6, 5, 7), (5, 3, 4), ((1,), (0,)), ((), ())),
    ((40, 6, 5), (5, 40, 7), ((2,), (0,)), ((0,), (1,))),
]


Case = tuple[tuple[int, ...], tuple[int, ...], Axes, Axes]


def together(cases: Sequence[Case], dtype: str = "f32", result: DType | None = None) -> Program:
    """The products of several cases, each of two arguments of its own, compiled as one program."""

    def products(*given: Any) -> list[Any]:
        pairs = zip(given[::2], given[1::2], cases, strict=True)
        return [dot_general(a, b, *case[2:], result) for a, b, case in pairs]

    return trace(products, *(pcp.spec(shape, dtype) for case in cases for shape in case[:2]))


def by(name: str, program: Program) -> Program:
    """A program all of whose products are computed by a kernel."""
    sites = kernels.sites_of(program, "cpu")
    assert len(sites) == len(program.results)
    return kernels.apply_kernels(program, {site.key: kernels.kernel_named(name) for site in sites})


NAMES = ("product.native", "product.native:bf16")


def forms(x: tuple[int, ...], y: tuple[int, ...], contract: Axes, batch: Axes) -> list[Program]:
    """A product by both native kernels."""
    program = trace(lambda a, b: dot_general(a, b, contract, batch), pcp.spec(x, "f32"), pcp.spec(y, "f32"))
    return [by(name, program) for name in NAMES]


def run(program: Program, *arguments: Any) -> np.ndarray[Any, Any]:
    return np.asarray(pcp.plan(program, cache=False).run(*arguments))


def run_all(program: Program, *arguments: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(each) for each in pcp.plan(program, cache=False).run(*arguments)]


def exactly(x: Any, y: Any, contract: Axes, batch: Axes) -> np.ndarray[Any, Any]:
    """The product in float64, by einsum."""
    left, right = list("abcdefgh"[: x.ndim]), list("ijklmnop"[: y.ndim])
    for a, b in (*zip(*contract, strict=True), *zip(*batch, strict=True)):
        right[b] = left[a]
    together = [left[axis] for axis in batch[0]]
    free = [name for axis, name in enumerate(left) if axis not in (*contract[0], *batch[0])]
    free += [name for axis, name in enumerate(right) if axis not in (*contract[1], *batch[1])]
    spelled = f"{''.join(left)},{''.join(right)}->{''.join(together + free)}"
    return np.asarray(np.einsum(spelled, x.astype(np.float64), y.astype(np.float64)))


LESS = [
    pytest.param("avx512_bf16", marks=pytest.mark.long),
    "avx512f,avx512_bf16",
    pytest.param("avx512f,avx512_bf16,avx2", marks=pytest.mark.long),
]
"""Features to hide, so that another build is called."""


@pytest.mark.parametrize("hides", ["", *LESS])
def test_they_are_products_over_any_axes(hides: str) -> None:
    rng, program = np.random.default_rng(), together(PRODUCTS)
    given = [rng.normal(size=entry.spec.shape).astype(np.float32) for entry in program.arguments]
    with masked(*filter(None, hides.split(","))):
        found = [run_all(by(name, program), *given) for name in NAMES]
    for x, y, case, native, narrow in zip(given[::2], given[1::2], PRODUCTS, *found, strict=True):
        exact = exactly(x, y, *case[2:])
        scale = np.linalg.norm(exactly(np.abs(x), np.abs(y), *case[2:]))
        assert native.shape == exact.shape
        assert np.linalg.norm(native - exact) <= 1e-6 * scale, case
        assert np.linalg.norm(narrow - exact) <= 8e-3 * scale, case


@pytest.mark.parametrize("hides", ["", *LESS])
def test_numbers_are_rounded_to_nearest_and_ties_to_even(hides: str) -> None:
    """Products of bfloat16 numbers with 1 are those numbers: what comes out is what was rounded."""
    bits = np.random.default_rng().integers(0, 1 << 32, 4096, dtype=np.uint32)
    bits[:4] = (0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001)
    x = bits.view(np.float32)
    x = np.where(np.isfinite(x) & (np.abs(x) > 1e-30) & (np.abs(x) < 1e30), x, np.float32(1.5))
    rounded = pcp.plan(trace(lambda a: a.astype("bf16").astype("f32"), pcp.spec(x.shape, "f32"))).run(x)
    with masked(*filter(None, hides.split(","))):
        for shape, contract in (((4096, 1), ((1,), (0,))), ((1, 4096), ((0,), (0,)))):
            _, narrow = forms(shape, (1, 1), contract, ((), ()))
            found = run(narrow, x.reshape(shape), np.ones((1, 1), np.float32))
            np.testing.assert_array_equal(found.ravel(), np.asarray(rounded))


def of_bf16(x: Any, y: Any, contract: Axes, batch: Axes, result: DType) -> np.ndarray[Any, Any]:
    """The product of bfloat16 arrays by the native kernel, in float32."""
    specs = (pcp.spec(each.shape, "bf16") for each in (x, y))
    program = trace(lambda a, b: dot_general(a, b, contract, batch, result), *specs)
    found = run(by("product.native", program), x, y)
    assert found.dtype == result.numpy
    return found.astype(np.float32)


@pytest.mark.parametrize("hides", ["", *LESS])
def test_products_of_bfloat16_are_exact_but_for_sums_in_float32(hides: str) -> None:
    rng = np.random.default_rng()
    given = [rng.normal(size=shape).astype(DType.bf16.numpy) for case in PRODUCTS for shape in case[:2]]
    programs = [together(PRODUCTS, "bf16", result) for result in (DType.f32, DType.bf16)]
    with masked(*filter(None, hides.split(","))):
        found = [run_all(by("product.native", program), *given) for program in programs]
    for x, y, case, sums, rounded in zip(given[::2], given[1::2], PRODUCTS, *found, strict=True):
        assert (sums.dtype, rounded.dtype) == (np.float32, DType.bf16.numpy)
        exact = exactly(x, y, *case[2:])
        terms = exactly(*(np.abs(each.astype(np.float32)) for each in (x, y)), *case[2:])
        assert np.all(np.abs(sums - exact) <= 2e-6 * terms), case
        wide = rounded.astype(np.float32)
        assert np.all(np.abs(wide - exact) <= 2.0**-8 * np.abs(exact) + 4e-6 * terms), case
        np.testing.assert_array_equal(wide, sums.astype(DType.bf16.numpy).astype(np.float32), str(case))


def test_products_of_bfloat16_keep_infinities_and_nan_in_their_rows_and_columns() -> None:
    x, y = np.ones((30, 1040), DType.bf16.numpy), np.ones((1040, 50), DType.bf16.numpy)
    x[3, 5], x[29, 1039], y[7, 49] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        exact = x.astype(np.float64) @ y.astype(np.float64)
    for result in (DType.f32, DType.bf16):
        np.testing.assert_array_equal(of_bf16(x, y, ((1,), (0,)), ((), ()), result), exact)


def test_products_of_bfloat16_that_say_how_precise_they_are_stay() -> None:
    specs = (pcp.spec((64, 64), "bf16"), pcp.spec((64, 64), "bf16"))
    program = pcp.from_jax(
        lambda x, y: jax.lax.dot(x, y, precision="highest"),
        *(jax.ShapeDtypeStruct((64, 64), "bfloat16"),) * 2,
    )
    assert not [site for site in kernels.sites_of(program, "cpu") if "product.native" in site.kernels]
    assert kernels.sites_of(trace(lambda x, y: x @ y, *specs), "cpu")


@pytest.mark.parametrize(
    ("handler", "types"), [("product_of_bf16", ("bf16", "i16")), ("product_f32", ("f32", "u16"))]
)
def test_a_handler_refuses_a_result_of_another_type(handler: str, types: tuple[str, str]) -> None:
    strides = {"left_strides": [3, 1], "right_strides": [4, 1]}
    program = calling(handler, [(2, 3), (3, 4)], [(2, 4)], types, sizes=[2, 4, 3], **strides, **ALONE)
    x, y = (np.ones(shape, DType(types[0]).numpy) for shape in ((2, 3), (3, 4)))
    with pytest.raises((ExecutionFailed, CompilationFailed), match="the result is of another type"):
        run(program, x, y)


def test_infinities_and_nan_stay_where_they_belong() -> None:
    x, y = np.ones((30, 40), np.float32), np.ones((40, 50), np.float32)
    x[3, 5], x[29, 39], y[7, 49] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        exact = x.astype(np.float64) @ y
    for program in forms((30, 40), (40, 50), ((1,), (0,)), ((), ())):
        np.testing.assert_array_equal(run(program, x, y), exact)


def test_the_bits_do_not_depend_on_the_moment() -> None:
    rng = np.random.default_rng()
    x, y = (rng.normal(size=shape).astype(np.float32) for shape in ((300, 700), (700, 500)))
    for program in forms((300, 700), (700, 500), ((1,), (0,)), ((), ())):
        first = run(program, x, y)
        for _ in range(5):
            np.testing.assert_array_equal(run(program, x, y), first)


@pytest.mark.parametrize("hides", ["", *LESS])
def test_few_rows_have_the_bits_that_they_have_among_others(hides: str) -> None:
    """Of less than 32 rows, for more of them are multiplied by tiles where there are any."""
    rng, counts = np.random.default_rng(), (31, 2, 4, 5, 8, 9, 14, 18)
    x, y = (rng.normal(size=shape).astype(np.float32) for shape in ((31, 600), (600, 70)))
    program = together([((rows, 600), y.shape, ((1,), (0,)), ((), ())) for rows in counts])
    given = [each for rows in counts for each in (x[:rows], y)]
    with masked(*filter(None, hides.split(","))):
        for name in NAMES:
            all_rows, *found = run_all(by(name, program), *given)
            for rows, few in zip(counts[1:], found, strict=True):
                np.testing.assert_array_equal(few, all_rows[:rows], f"{rows} rows")


@pytest.mark.parametrize(
    ("sizes", "left", "right", "words"),
    [
        ([2, 4], [3, 1], [4, 1], "there are 2 sizes; expected three or more"),
        ([2, -4, 3], [3, 1], [4, 1], "a size is negative"),
        ([2, 5, 3], [3, 1], [4, 1], "the result has 8 elements; its sizes say 10"),
        ([1 << 40, 1 << 40, 3], [3, 1], [4, 1], "the sizes are too large"),
        ([2, 4, 3], [3], [4, 1], "the left operand has 1 strides; expected 2"),
        ([2, 4, 3], [3, 1], [4, 1, 1], "the right operand has 3 strides; expected 2"),
        ([2, 4, 3], [4, 1], [4, 1], "the left operand has 6 elements; its strides reach element 6"),
        ([2, 4, 3], [3, 1], [4, 2], "the right operand has 12 elements; its strides reach element 14"),
        ([2, 4, 3], [-3, 1], [4, 1], "a stride of the left operand is negative or too large"),
        ([2, 4, 3], [1 << 62, 1 << 62], [4, 1], "a stride of the left operand is negative or too large"),
        ([2, 4, 1 << 62], [3, 1], [4, 1], "strides reach element"),
    ],
)
def test_a_handler_refuses_what_lies_outside_of_its_arrays(
    sizes: list[int], left: list[int], right: list[int], words: str
) -> None:
    program = calling(
        "product_f32",
        [(2, 3), (3, 4)],
        [(2, 4)],
        sizes=sizes,
        left_strides=left,
        right_strides=right,
        **ALONE,
    )
    with pytest.raises((ExecutionFailed, CompilationFailed)) as raised:
        run(program, np.ones((2, 3), np.float32), np.ones((3, 4), np.float32))
    assert words in str(raised.value)


def test_a_processor_with_less_gets_another_build() -> None:
    usual = built(LIBRARY)
    with masked("avx512f", "avx2"):
        assert built(LIBRARY).digest != usual.digest
