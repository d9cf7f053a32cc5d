"""Products whose operands are rounded to bytes: exact where integers are, as wrong as blocks of scales allow, and only where they pay."""

import numpy as np
import pytest

import pcp
from pcp import kernels, nn
from pcp.kernels.features import masked
from pcp.kernels.products import native
from pcp.ops.linear.products import dot_general
from pcp.planning.paths.preparation import prepared
from tests.kernels.native.test_product_epilogue import worst
from tests.kernels.native.test_products import LESS, Axes, Case, by, exactly, run, run_all, together

NAME, BLOCK = "product.native:int8", 128
NO_TILES = "amx_bf16"
PRODUCTS: list[Case] = [
    ((64, 256), (256, 64), ((1,), (0,)), ((), ())),
    ((71, 1163), (1163, 70), ((1,), (0,)), ((), ())),
    ((1163, 75), (70, 1163), ((0,), (1,)), ((), ())),
    ((1029, 90), (1029, 133), ((0,), (0,)), ((), ())),
    ((65, 2), (99, 2), ((1,), (1,)), ((), ())),
    ((2, 70, 5, 20), (2, 80, 5, 20), ((3,), (3,)), ((0, 2), (0, 2))),
    # summed over two axes that no stride reads as one
    ((66, 5, 7), (7, 64, 5), ((1, 2), (2, 0)), ((), ())),
    ((8, 80, 9), (9, 8, 70), ((2,), (0,)), ((0,), (1,))),
]


def in_bytes(x: tuple[int, ...], y: tuple[int, ...], contract: Axes, batch: Axes) -> pcp.Program:
    """A product by the kernel."""
    return by(
        NAME,
        pcp.trace(lambda a, b: dot_general(a, b, contract, batch), pcp.spec(x, "f32"), pcp.spec(y, "f32")),
    )


def is_offered(program: pcp.Program) -> bool:
    return any(NAME in each.kernels for each in kernels.sites_of(prepared(program), "cpu"))


def product_of(rows: int, columns: int, inner: int) -> pcp.Program:
    return pcp.trace(lambda x, y: x @ y, pcp.spec((rows, inner), "f32"), pcp.spec((inner, columns), "f32"))


@pytest.fixture(autouse=True)
def _is_there() -> None:
    """Asked when the first test runs: it builds the library."""
    if reason := kernels.kernel_named(NAME).lacks("cpu"):
        pytest.skip(reason)


@pytest.mark.parametrize("hides", ["", *LESS])
def test_integers_are_exact_over_any_axes(hides: str) -> None:
    """Where the largest number of each block is 127 a scale is 1, whatever lies where."""
    rng, program = np.random.default_rng(), together(PRODUCTS)
    given = [rng.integers(-127, 128, size=entry.spec.shape).astype(np.float32) for entry in program.arguments]
    for place, array in enumerate(given):
        axes = PRODUCTS[place // 2][2][place % 2]
        inner = np.moveaxis(array, axes, range(len(axes)))  # a view: the numbers of each sum come first
        size = inner.shape[: len(axes)]
        inner[np.unravel_index(np.arange(0, np.prod(size), BLOCK // 2), size)] = -127.0
    with masked(NO_TILES, *filter(None, hides.split(","))):
        found = run_all(by(NAME, program), *given)
    for x, y, case, mine in zip(given[::2], given[1::2], PRODUCTS, found, strict=True):
        np.testing.assert_array_equal(mine, exactly(x, y, *case[2:]), str(case))


@pytest.mark.parametrize("hides", ["", *LESS])
def test_the_error_is_that_of_bytes(hides: str) -> None:
    rng, program = np.random.default_rng(), together(PRODUCTS)
    given = [rng.normal(size=entry.spec.shape).astype(np.float32) for entry in program.arguments]
    with masked(NO_TILES, *filter(None, hides.split(","))):
        found = run_all(by(NAME, program), *given)
    for x, y, case, mine in zip(given[::2], given[1::2], PRODUCTS, found, strict=True):
        exact = exactly(x, y, *case[2:])
        assert np.linalg.norm(mine - exact) <= 1.3e-2 * np.linalg.norm(exact), case


def test_a_large_number_makes_its_own_block_coarse_only() -> None:
    rng = np.random.default_rng()
    x, y = rng.normal(size=(64, 4 * BLOCK)).astype(np.float32), np.zeros((4 * BLOCK, 64), np.float32)
    y[BLOCK:] = rng.normal(size=(3 * BLOCK, 64))
    x[:, 0] = 1e6
    with masked(NO_TILES):
        found = run(in_bytes(x.shape, y.shape, ((1,), (0,)), ((), ())), x, y)
    exact = x.astype(np.float64) @ y
    assert np.linalg.norm(found - exact) <= 1.3e-2 * np.linalg.norm(exact)


def test_nan_spreads_over_its_row_or_column_only_and_tiny_numbers_are_zeros() -> None:
    x, y = np.ones((64, 200), np.float32), np.ones((200, 80), np.float32)
    x[3, 5], y[7, 49], x[9], y[:, 2] = np.inf, np.nan, 1e-38, 0.0
    with masked(NO_TILES):
        found = run(in_bytes(x.shape, y.shape, ((1,), (0,)), ((), ())), x, y).copy()
    assert np.isnan(found[3]).all()
    assert np.isnan(found[:, 49]).all()
    x[3], y[:, 49], found[3], found[:, 49] = 0.0, 0.0, 0.0, 0.0
    np.testing.assert_allclose(found, x.astype(np.float64) @ y, rtol=1e-5, atol=1e-30)


def test_the_bits_do_not_depend_on_the_moment() -> None:
    rng = np.random.default_rng()
    x, y = (rng.normal(size=shape).astype(np.float32) for shape in ((300, 700), (700, 500)))
    with masked(NO_TILES):
        program = in_bytes(x.shape, y.shape, ((1,), (0,)), ((), ()))
        first = run(program, x, y)
        for _ in range(5):
            np.testing.assert_array_equal(run(program, x, y), first)


def test_a_bias_an_activation_and_a_residual_follow_in_registers() -> None:
    x, w, b, r = (pcp.spec(shape, "f32") for shape in ((4, 25, 300), (300, 72), (72,), (4, 25, 72)))
    program = pcp.trace(
        lambda x, w, b, r: (nn.gelu(nn.linear(x, w, b)), r + nn.linear(x * 2.0, w, b)), x, w, b, r
    )
    with masked(NO_TILES):
        assert 1e-4 < worst(program, "product_epilogue.native:int8", count=2) < 2e-2


def test_it_stands_only_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    with masked(NO_TILES):
        assert is_offered(product_of(64, 64, 16384))
        assert not is_offered(product_of(63, 64, 100))
        assert not is_offered(product_of(64, 63, 100))
        assert not is_offered(product_of(64, 64, 16385))
        with masked("avx512_vnni"):
            assert "hides avx512_vnni" in kernels.kernel_named(NAME).lacks("cpu")
    monkeypatch.setattr(native, "features_of", lambda _: frozenset({"avx512_vnni", "amx_bf16"}))
    assert not is_offered(product_of(64, 64, 100))


def test_it_is_what_a_search_tries_first() -> None:
    for family in ("product", "product_epilogue"):
        tried = [
            kernel
            for kernel in kernels.FAMILIES[family].kernels.values()
            if kernel.is_for("cpu") and kernel.place is not None
        ]
        assert min(tried, key=lambda kernel: kernel.storage.exactness).name == f"{family}.native:int8"
