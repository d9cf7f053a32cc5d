"""Native convolutions against float64: any order of axes, strides, padding and dilations, and their gradients."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import kernels
from pcp.autodiff.gradient import value_and_vjp
from pcp.kernels.convolution import native
from pcp.kernels.features import features_of
from pcp.kernels.native.compiling import compiler
from pcp.kernels.sites import Site
from pcp.planning.paths.preparation import prepared
from pcp.planning.search import everywhere
from pcp.planning.search.site_classes import site_classes
from tests.execution import exactly, run

needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")

ORDERS = (
    ("NHWC", "HWIO", "NHWC"),
    ("NCHW", "OIHW", "NCHW"),
    ("NHWC", "OHWI", "NHWC"),
    ("NCHW", "HIWO", "HNCW"),
    ("CHNW", "HIOW", "WNCH"),
)
LIMITS = {"convolution.native": 2e-6, "convolution.native:bf16": 1e-2, "convolution.native:bf16_x3": 1e-4}
"""The largest relative errors."""


@pytest.fixture(autouse=True)
def also_where_it_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "SHORTEST", 1)


def sites(x: Any, kernel: Any, *how: Any) -> Iterator[Site]:
    """The convolutions of a convolution and its gradients."""
    specs = pcp.spec(x, "f32"), pcp.spec(kernel, "f32")
    program = prepared(value_and_vjp(pcp.trace(lambda a, b: pcp.conv_general(a, b, *how), *specs), (0, 1)))
    return (site for site in kernels.sites_of(program, "cpu", bare=True) if site.family == "convolution")


def check(site: Site, random: np.random.Generator) -> set[str]:
    """The kernels of a site, each of which is near what float64 gives."""
    arrays = [random.normal(size=entry.spec.shape).astype(np.float32) for entry in site.region.arguments]
    (exact,) = exactly(site.region, *arrays)
    for name in site.kernels:
        (found,) = run(kernels.replaced(site.region, kernels.kernel_named(name)), *arrays, device="cpu:0")
        distance = np.linalg.norm(found - exact)
        assert distance <= LIMITS[name] * np.linalg.norm(exact), (name, distance, site.region.text)
    return set(site.kernels)


def sized(order: str, **sizes: int) -> tuple[int, ...]:
    return tuple(sizes[letter] for letter in order)


@needs_compiler
@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(s, marks=pytest.mark.long) for s in range(6, 90))]
)
def test_convolutions_and_their_gradients_are_near_float64(seed: int) -> None:
    random = np.random.default_rng(seed)

    def integers(low: int, high: int, count: int = 2) -> tuple[int, ...]:
        return tuple(int(number) for number in random.integers(low, high, count))

    orders = ORDERS[seed % len(ORDERS)]
    (n, c, o), (h, w), (high, wide) = integers(1, 40, 3), integers(5, 14), integers(1, 4)
    pads = [integers(-1, 4) for _ in range(2)]
    x = sized(orders[0], N=1 + n % 3, C=c, H=h, W=w)
    kernel = sized(orders[1], I=c, O=o, H=high, W=wide)
    strides, dilations = integers(1, 3), integers(1, 3)
    spread = integers(1, 3) if seed % 3 == 0 else 1
    for site in sites(x, kernel, strides, pads, spread, dilations, 1, orders):
        if site.kernels:
            check(site, random)


@needs_compiler
@pytest.mark.share(2, each="strides")
@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize("strides", [1, 2, (3, 1)])
def test_strided_convolutions_and_both_gradients_have_kernels(orders: Any, strides: Any) -> None:
    """Windows of three, in whose gradients the cotangent is spread; one axis is longer than a window, the other is even."""
    x = sized(orders[0], N=2, C=5, H=11, W=8)
    kernel = sized(orders[1], I=5, O=7, H=3, W=3)
    found = list(sites(x, kernel, strides, "SAME", 1, 1, 1, orders))
    assert len(found) == 3
    for site in found:
        assert {"convolution.native", "convolution.native:bf16"} <= check(site, np.random.default_rng(1))


@needs_compiler
@pytest.mark.parametrize(
    ("x", "kernel"), [((5, 40, 20, 40), (3, 3, 40, 33)), ((1, 9, 9, 700), (3, 3, 700, 17))]
)
def test_many_rows_and_many_numbers_of_a_window(x: Any, kernel: Any) -> None:
    """Rows are shared out by parts of 224, and windows of 6,300 numbers are more than one block of panels."""
    for site in sites(x, kernel, 1, "SAME"):
        assert check(site, np.random.default_rng(2))


@needs_compiler
def test_a_phase_that_nothing_of_the_kernel_meets_is_zero() -> None:
    """A kernel of one place over a spread input, as frameworks write the gradient of a strided one: one phase of four is not zero."""
    specs = pcp.spec((1, 4, 3, 5), "f32"), pcp.spec((1, 1, 5, 3), "f32")
    program = prepared(pcp.trace(lambda x, k: pcp.conv_general(x, k, 1, [(0, 1), (1, 0)], 2), *specs))
    (site,) = kernels.sites_of(program, "cpu")
    check(site, np.random.default_rng(3))
    kernel = kernels.kernel_named("convolution.native")
    assert kernels.replaced(site.region, kernel).text.count("custom_call") == 1


@needs_compiler
@pytest.mark.parametrize(("axes", "windows"), [((2, 9, 4), (3, 4, 6)), ((2, 5, 6, 7, 4), (2, 3, 2, 4, 6))])
def test_other_numbers_of_axes(axes: Any, windows: Any) -> None:
    for site in sites(axes, windows, 2, "SAME"):
        assert check(site, np.random.default_rng(4))


@needs_compiler
def test_what_is_not_a_number_stays_where_windows_reach_it() -> None:
    site = next(sites((1, 9, 9, 3), (3, 3, 3, 4), 1, "SAME"))
    x = np.ones((1, 9, 9, 3), np.float32)
    x[0, 4, 4, 1] = np.nan
    kernel = kernels.kernel_named("convolution.native")
    (found,) = run(
        kernels.replaced(site.region, kernel), x, np.ones((3, 3, 3, 4), np.float32), device="cpu:0"
    )
    expected = np.zeros((9, 9), bool)
    expected[3:6, 3:6] = True
    np.testing.assert_array_equal(np.isnan(found[0, ..., 0]), expected)


@pytest.mark.parametrize(
    ("x", "kernel", "how"),
    [
        ((1, 9, 9, 4), (3, 3, 2, 6), (1, "SAME", 1, 1, 2)),  # groups
        ((1, 9, 9, 4), (3, 3, 4, 6), (2, [(4, 4)] * 2, 2)),  # strides of a spread input
        ((1, 9, 9, 4), (3, 3, 4, 6), (1, [(4, 4)] * 2, 2, 2)),  # a spread window on a spread input
        ((1, 9, 9, 0), (3, 3, 0, 6), (1, "SAME")),  # nothing
    ],
)
def test_what_is_not_covered_is_left_to_the_compiler(x: Any, kernel: Any, how: Any) -> None:
    program = pcp.trace(
        lambda a, b: pcp.conv_general(a, b, *how), pcp.spec(x, "f32"), pcp.spec(kernel, "f32")
    )
    found = [s for s in kernels.sites_of(program, "cpu", bare=True) if s.family == "convolution"]
    assert [site.kernels for site in found] == [()]


@pytest.mark.parametrize(("dtype", "able"), [("f64", ()), ("bf16", ("convolution.native",))])
def test_float64_is_left_to_the_compiler_and_bfloat16_is_widened(dtype: str, able: tuple[str, ...]) -> None:
    specs = pcp.spec((1, 9, 9, 4), dtype), pcp.spec((3, 3, 4, 6), dtype)
    program = pcp.trace(lambda a, b: pcp.conv2d(a, b), *specs)
    assert [site.kernels for site in kernels.sites_of(program, "cpu", bare=True)] == [able]


@needs_compiler
@pytest.mark.parametrize(
    ("features", "orders", "offered"), [(3, ORDERS[0], 1), (16, ORDERS[0], 3), (16, ORDERS[1], 3)]
)
def test_short_runs_are_left_to_the_compiler(
    features: int, orders: Any, offered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an image of three colours, only the gradient with respect to it, whose patches are of a cotangent of many features."""
    monkeypatch.setattr(native, "SHORTEST", 16)
    x, kernel = (
        sized(orders[0], N=1, C=features, H=20, W=20),
        sized(orders[1], I=features, O=20, H=3, W=3),
    )
    found = [site.kernels for site in sites(x, kernel, 1, "SAME", 1, 1, 1, orders)]
    assert len(found) == 3
    assert sum(map(bool, found)) == offered


@needs_compiler
@pytest.mark.parametrize("has_tiles", [False, True])
def test_those_of_float32_are_tried_everywhere_where_there_are_tiles(
    monkeypatch: pytest.MonkeyPatch, has_tiles: bool
) -> None:
    def function(x: Any, kernel: Any, left: Any) -> Any:
        return pcp.conv2d(x, kernel, 1, "SAME"), left @ left

    specs = [pcp.spec(shape, "f32") for shape in ((2, 8, 8, 16), (3, 3, 16, 16), (64, 64))]
    classes = site_classes(prepared(pcp.trace(function, *specs)), "cpu")
    features = features_of("cpu") - {"amx_bf16"} | ({"amx_bf16"} if has_tiles else set())
    monkeypatch.setattr(native, "features_of", lambda _: features)
    alone = [kernel.name for _, chosen in everywhere.apart(classes) for kernel in chosen.values()]
    by_tiles = {"convolution.native", "convolution.native:bf16_x3"}  # the second where there really are tiles
    assert not by_tiles.isdisjoint(alone) if has_tiles else "convolution.native" not in alone
    exact = [kernel.name for chosen in everywhere.together(classes, 0.0) for kernel in chosen.values()]
    assert sorted(exact) == (["convolution.native", "product.native"] if has_tiles else [])
