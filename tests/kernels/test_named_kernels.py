"""Every kernel of a named operation against float64, at odd sizes and extreme values, and every one of its gradient."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import Program, kernels
from pcp.kernels.features import features_of
from pcp.kernels.sites import Site
from pcp.rewrite.raising import raised
from pcp.rewrite.row import Effect
from tests.execution import exactly, run
from tests.kernels.rows import ROWS, Row, program_of

NAMED = [family for name, family in kernels.FAMILIES.items() if name != "product"]
KERNELS = [kernel for family in NAMED for kernel in family.kernels.values() if kernel.is_for("cpu")]

# Largest relative errors, of a reassociating kernel in units of the plain form's own.
REASSOCIATING, LOWERED = 16, 2e-2


def sites(row: Row) -> Iterator[Site]:
    for site in kernels.sites_of(program_of(row), "cpu"):
        if site.family != "product":
            yield site


def arrays_for(row: Row, site: Site) -> list[Any]:
    random = np.random.default_rng(0)
    made = []
    for place, entry in enumerate(site.region.arguments):
        if place in row.operands:
            made.append(np.asarray(row.operands[place](entry.spec.shape)).astype(entry.spec.dtype.numpy))
        elif entry.spec.dtype.is_float:
            made.append(random.normal(size=entry.spec.shape).astype(entry.spec.dtype.numpy))
        else:
            made.append(random.integers(0, 5, entry.spec.shape).astype(entry.spec.dtype.numpy))
    return made


def error(found: Any, exact: Any) -> float:
    """The relative error, or the distance from a result that is smaller than the operands."""
    distance = np.linalg.norm(found.astype(np.float64) - exact)
    return float(distance) / max(float(np.linalg.norm(exact)), 1.0)


ON_GPUS = {"joined"}
"""Families without a kernel for processors: tests/kernels/gpu."""


@pytest.mark.parametrize(
    ("family", "index"),
    # The first row of a family always: that is where rounding is seen. Of the others each family's share.
    [
        pytest.param(f, i, marks=[pytest.mark.share(5, each="family")] if i else [])
        for f in ROWS
        if f not in ON_GPUS
        for i in range(len(ROWS[f]))
    ],
)
def test_kernels_are_as_exact_as_they_say(family: str, index: int) -> None:
    row = ROWS[family][index]
    found = list(sites(row))
    assert found
    for site in found:
        arrays = arrays_for(row, site)
        candidates = [kernels.kernel_named(name) for name in site.kernels]
        if index:  # what is lost by rounding is seen at one size
            candidates = [kernel for kernel in candidates if kernel.effect is not Effect.lowers_precision]
        programs = [kernels.replaced(site.region, kernel) for kernel in candidates]
        native = any(any(need.startswith("library:") for need in kernel.needs) for kernel in candidates)
        device = "cpu:0" if native else None  # a native kernel runs nowhere else
        exact = exactly(site.region, *arrays)
        plain = run(site.region, *arrays, device=device)
        for kernel, program in zip(candidates, programs, strict=True):
            for mine, theirs, true in zip(run(program, *arrays, device=device), plain, exact, strict=True):
                if not np.isfinite(true).all():
                    np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs), err_msg=kernel.name)
                    continue
                limit = max(REASSOCIATING * error(theirs, true), 1e-6)
                if kernel.effect is Effect.lowers_precision:
                    limit = LOWERED
                assert error(mine, true) <= limit, kernel.name


def test_every_kernel_has_a_row() -> None:
    reached = {name for each in ROWS.values() for row in each for site in sites(row) for name in site.kernels}
    needless = {"product_epilogue.native:int8"} if "amx_bf16" in features_of("cpu") else set()
    assert {kernel.name for kernel in KERNELS if not kernel.lacks("cpu")} - needless == reached


def test_families_name_those_of_their_gradients() -> None:
    for family in NAMED:
        assert family.gradient == "" or family.gradient in kernels.FAMILIES
    assert kernels.FAMILIES["attention"].gradient == "attention_gradient"


def test_kernels_that_round_do_round_and_others_do_not() -> None:
    for kernel in KERNELS:
        assert ("bf16" in kernel.name) <= (kernel.effect is Effect.lowers_precision), kernel.name


def attention(mask: bool, causal: bool, queries: int = 200) -> Program:
    def function(q: Any, k: Any, v: Any, *m: Any) -> Any:
        return pcp.nn.scaled_dot_product_attention(q, k, v, causal, *m)

    specs = [pcp.spec((1, queries if i == 0 else 200, 1, 4), "f32") for i in range(3)]
    masks = [pcp.spec((1, 1, queries, 200), "bool")] * mask
    return raised(pcp.trace(function, *specs, *masks))


@pytest.mark.parametrize(
    ("mask", "causal", "rows"), [(False, True, True), (False, False, False), (True, True, True)]
)
def test_blocks_of_queries_are_offered_where_keys_can_be_left_out(
    mask: bool, causal: bool, rows: bool
) -> None:
    (site,) = (s for s in kernels.sites_of(attention(mask, causal), "cpu") if s.family == "attention")
    assert ("attention.rows_64" in site.kernels) is rows
    assert "attention.chunked" in site.kernels


def test_later_keys_are_not_left_out_where_some_queries_see_none() -> None:
    (site,) = (s for s in kernels.sites_of(attention(False, True, 210), "cpu") if s.family == "attention")
    assert "attention.rows_64" not in site.kernels


def test_tiles_before_a_window_are_left_out() -> None:
    """As many products as blocks of 128 queries meet blocks of 128 keys: 1 + 3 * 2 with a window, 1 + 2 + 3 + 4 without."""
    for window, tiles in ((100, 7), (None, 10), (1 << 40, 10)):
        program = raised(
            pcp.trace(
                lambda q, k, v, w=window: pcp.nn.scaled_dot_product_attention(q, k, v, True, window=w),
                *[pcp.spec((1, 512, 1, 8), "f32")] * 3,
            )
        )
        (site,) = (s for s in kernels.sites_of(program, "cpu") if s.family == "attention")
        tiled = kernels.replaced(site.region, kernels.kernel_named("attention.tiled"))
        main, _, _ = tiled.text.partition("func.func private")  # which says what is computed
        assert main.count("dot_general") == 2 * tiles


def test_rows_without_any_key_are_no_numbers_as_in_the_plain_form() -> None:
    program = attention(True, True)
    (site,) = (s for s in kernels.sites_of(program, "cpu") if s.family == "attention")
    q, k, v = np.random.default_rng(0).normal(size=(3, 1, 200, 1, 4)).astype(np.float32)
    mask = np.ones((1, 1, 200, 200), bool)
    mask[:, :, 150] = False
    plain = run(program, q, k, v, mask)
    assert np.isnan(plain[:, 150]).all()
    for name in ("attention.rows_64", "attention.tiled", "attention.whole"):
        found = run(kernels.apply_kernels(program, {site.key: kernels.kernel_named(name)}), q, k, v, mask)
        np.testing.assert_allclose(found, plain, rtol=1e-4, atol=1e-6)


def test_a_program_with_kernels_in_all_places_computes_the_same() -> None:
    program = program_of(ROWS["attention"][0])
    choices = {}
    for site in kernels.cover(kernels.sites_of(program, "cpu")):
        if f"{site.family}.tiled" in site.kernels:
            choices[site.key] = kernels.kernel_named(f"{site.family}.tiled")
    assert {kernel.name for kernel in choices.values()} == {"attention.tiled", "attention_gradient.tiled"}
    random = np.random.default_rng(0)
    arrays = [random.normal(size=entry.spec.shape) for entry in program.arguments]
    leaves = program.argument_tree.unflatten(arrays)
    value, found = run(kernels.apply_kernels(program, choices), *leaves)
    expected_value, expected = run(program, *leaves)
    np.testing.assert_allclose(value, expected_value, rtol=1e-4, atol=1e-5)
    for mine, plain in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-3, atol=1e-5)


def test_a_site_that_takes_what_another_computes_gets_its_kernel_too() -> None:
    program = raised(pcp.trace(lambda x, y, z: x @ y @ z, *[pcp.spec((8, 8), "f32")] * 3))
    kernel = kernels.kernel_named("product.xla:bf16")
    choices = {site.key: kernel for site in kernels.sites_of(program, "cpu")}
    assert len(choices) == 2
    changed = kernels.apply_kernels(program, choices)
    products = [line for line in changed.text.splitlines() if "dot_general" in line]
    assert len(products) == 2
    assert all(line.endswith("(tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xf32>") for line in products)


def test_sites_of_equal_layers_have_equal_regions() -> None:
    def model(x: Any, scale: Any) -> Any:
        return pcp.nn.rms_norm(pcp.nn.rms_norm(x, scale), scale)

    program = raised(pcp.trace(model, pcp.spec((3, 5), "f32"), pcp.spec((5,), "f32")))
    first, second = kernels.sites_of(program, "cpu")
    assert first.key != second.key
    assert first.region.digest == second.region.digest
