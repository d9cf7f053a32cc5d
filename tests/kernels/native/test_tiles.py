"""Products by AMX's tiles, on any processor: a stand-in for the instructions is compiled in, which checks how they are used."""

import ctypes
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp import kernels, nn
from pcp.kernels.features import masked
from pcp.kernels.native.building import build_here
from pcp.kernels.native.compiling import compiler
from pcp.kernels.products.kept import words_of
from pcp.planning.paths.path import Path as Chosen
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised
from tests.kernels.native.test_quantised import FORMS, MANY, native, stored, wide

STAND_IN = Path(__file__).parent / "emulated_tiles.h"
SHAPES = [
    (1, 1, 1), (2, 3, 2), (16, 16, 32), (32, 32, 32), (31, 33, 31), (33, 31, 33), (17, 65, 34), (64, 96, 512), (65, 97, 513),
    (40, 40, 1025), (3, 70, 1536), (529, 40, 47), (1, 50, 70), (70, 1, 50),
]  # fmt: skip
IN_PARTS, OF_BF16 = "product_in_parts_by_emulated_tiles", "product_of_bf16_by_emulated_tiles"
KEEP, KEPT = "keep_by_emulated_tiles", "kept_by_emulated_tiles"


SAID = f"stand-in {hashlib.sha256(STAND_IN.read_bytes()).hexdigest()[:12]}"
"""What the compiler with the stand-in says it is: a build is found by it."""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compiler of another name, which builds with the stand-in."""
    command = compiler()
    if command is None:
        pytest.skip("there is no C++ compiler")
    script = tmp_path_factory.mktemp("stand-in") / "c++"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo {SAID} && exit\n'
        f'exec {command} "$@" -O1 -w \'-DPCP_EMULATED_TILES="{STAND_IN}"\'\n'
    )
    script.chmod(0o700)
    return script


@pytest.fixture(scope="module", autouse=True)
def _with_stand_in(stand_in: Path) -> Iterator[None]:
    """Libraries are built with the stand-in, beside those of the whole suite."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", str(stand_in))
        patch.setenv("PCP_CACHE_DIR", str(Path(os.environ["PCP_TEST_BUILDS"]) / "stand-in"))
        yield


@pytest.fixture(scope="module")
def tiles(_with_stand_in: None) -> str:
    """The FFI target of a build with the stand-in: a product that rounds to bfloat16."""
    build = build_here("products")
    assert build.compiler == SAID
    library = ctypes.CDLL(str(build.file))
    for target, handler in (
        ("product_by_emulated_tiles", library.pcp_product_bf16),
        (IN_PARTS, library.pcp_product_bf16_x3),
        (OF_BF16, library.pcp_product_of_bf16),
        (KEEP, library.pcp_keep_product_bf16),
        (KEPT, library.pcp_kept_product_bf16),
    ):
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
    return "product_by_emulated_tiles"


def product(
    target: str, x: Any, y: Any, *more: Any, turned: str = "", result: Any = np.float32, **attributes: int
) -> Any:
    """x @ y as a handler computes it, and with more operands also the epilogue; `turned` names operands stored transposed."""
    (rows, inner), columns = x.shape, y.shape[1]
    given = [np.ascontiguousarray(each.T if name in turned else each) for name, each in (("x", x), ("y", y))]
    strides = {
        "left_strides": [1, rows] if "x" in turned else [inner, 1],
        "right_strides": [1, inner] if "y" in turned else [columns, 1],
    }
    numbers = {name: np.array(value) for name, value in strides.items()}
    call = jax.ffi.ffi_call(target, jax.ShapeDtypeStruct((rows, columns), result))
    zero = {"bias": 0, "residual": 0, "activation": 0} | attributes
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        made = call(
            *given,
            *more,
            sizes=np.array([rows, columns, inner]),
            **numbers,
            **{k: np.int64(v) for k, v in zero.items()},
        )
    return np.asarray(made)


def rounded(x: Any) -> Any:
    """Numbers as bfloat16 holds them, in float64."""
    return np.asarray(x).astype(ml_dtypes.bfloat16).astype(np.float64)


@pytest.mark.parametrize("turned", ["", "x", "y", "xy"])
def test_they_are_products_of_rounded_numbers(tiles: str, turned: str) -> None:
    rng = np.random.default_rng()
    for rows, columns, inner in SHAPES:
        x, y = (rng.normal(size=size).astype(np.float32) for size in ((rows, inner), (inner, columns)))
        found = product(tiles, x, y, turned=turned)
        error = np.abs(found - rounded(x) @ rounded(y)) / (np.abs(x).astype(np.float64) @ np.abs(y))
        assert error.max() <= 2e-6, (rows, columns, inner)


@pytest.mark.parametrize("turned", ["", "y"])
def test_panels_that_are_kept_are_those_of_tiles(tiles: str, turned: str) -> None:
    rng = np.random.default_rng()
    for rows, columns, inner in SHAPES:
        x, y = (rng.normal(size=size).astype(np.float32) for size in ((rows, inner), (inner, columns)))
        words = jax.ShapeDtypeStruct((1, words_of("product_bf16", columns, inner)), np.uint32)
        strides = np.array([1, inner] if turned else [columns, 1])
        with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
            given = np.ascontiguousarray(y.T) if turned else y
            panels = jax.ffi.ffi_call(KEEP, words)(given, sizes=np.array([columns, inner]), strides=strides)
            call = jax.ffi.ffi_call(KEPT, jax.ShapeDtypeStruct((rows, columns), np.float32))
            none = {name: np.int64(0) for name in ("bias", "residual", "activation")}
            numbers = {"sizes": np.array([rows, columns, inner]), "left_strides": np.array([inner, 1])}
            found = np.asarray(call(x, panels, **numbers, right_strides=np.array([], np.int64), **none))
        if min(rows, columns) > 1:
            np.testing.assert_array_equal(found, product(tiles, x, y, turned=turned))
        else:
            np.testing.assert_allclose(found, rounded(x) @ rounded(y), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("turned", ["", "x", "y", "xy"])
def test_numbers_of_bfloat16_are_multiplied_as_they_lie(turned: str) -> None:
    rng, narrow = np.random.default_rng(), ml_dtypes.bfloat16
    for rows, columns, inner in SHAPES:
        x, y = (rng.normal(size=size).astype(narrow) for size in ((rows, inner), (inner, columns)))
        found = product(OF_BF16, x, y, turned=turned)
        exact, terms = rounded(x) @ rounded(y), np.abs(rounded(x)) @ np.abs(rounded(y))
        assert (np.abs(found - exact) / terms).max() <= 2e-6, (rows, columns, inner)
        bits = product(OF_BF16, x, y, turned=turned, result=np.uint16)
        np.testing.assert_array_equal(bits.view(narrow), found.astype(narrow))


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("turned", ["", "x", "y", "xy"])
def test_numbers_in_two_parts_lose_256_times_less(turned: str) -> None:
    """Each operand is off by 2^-17 at most, and the product of both rests, at most 2^-16, is left out."""
    rng = np.random.default_rng()
    for rows, columns, inner in SHAPES:
        x, y = (rng.normal(size=size).astype(np.float32) for size in ((rows, inner), (inner, columns)))
        found = product(IN_PARTS, x, y, turned=turned)
        exact, terms = x.astype(np.float64) @ y, np.abs(x).astype(np.float64) @ np.abs(y)
        assert (np.abs(found - exact) / terms).max() <= 2**-15, (rows, columns, inner)
        whole = min(rows, columns) > 1
        assert not whole or np.linalg.norm(found - exact) > 1e-7 * np.linalg.norm(terms)  # by tiles indeed
        with masked("amx_bf16"):
            plain = product(IN_PARTS, x, y, turned=turned)
        np.testing.assert_allclose(plain, exact, atol=1e-6 * terms.max())


@pytest.mark.usefixtures("tiles")
def test_what_follows_is_done_to_complete_sums_of_parts() -> None:
    rng = np.random.default_rng()
    x, y = (rng.normal(size=size).astype(np.float32) for size in ((45, 1030), (1030, 75)))
    bias, residual = (rng.normal(size=size).astype(np.float32) for size in ((75,), (45, 75)))
    found = product(IN_PARTS, x, y, bias, residual, bias=1, residual=1)
    np.testing.assert_allclose(found, x.astype(np.float64) @ y + bias + residual, atol=2e-3)
    x[3, 5], y[7, 69] = np.nan, np.inf
    found = product(IN_PARTS, x, y)
    assert np.isnan(found[3]).all()
    assert not np.isfinite(found[:, 69]).any()
    assert np.isfinite(np.delete(np.delete(found, 3, 0), 69, 1)).all()


def test_infinities_and_nan_stay_where_they_belong(tiles: str) -> None:
    x, y = np.ones((40, 47), np.float32), np.ones((47, 70), np.float32)
    product(tiles, np.full((4, 512), np.nan, np.float32), np.full((512, 70), np.nan, np.float32))
    np.testing.assert_array_equal(product(tiles, x, y), 47)  # in memory that is kept, where NaN were
    x[3, 5], x[39, 46], y[7, 69] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(product(tiles, x, y), x.astype(np.float64) @ y)


def test_what_follows_is_done_to_complete_sums(tiles: str) -> None:
    rng = np.random.default_rng()
    x, y = (rng.normal(size=size).astype(np.float32) for size in ((45, 1030), (1030, 75)))
    bias, residual = (rng.normal(size=size).astype(np.float32) for size in ((75,), (45, 75)))
    found = product(tiles, x, y, bias, residual, bias=1, residual=1)
    np.testing.assert_allclose(found, rounded(x) @ rounded(y) + bias + residual, atol=2e-4)


def test_tiles_that_are_hidden_are_not_used(tiles: str) -> None:
    """The order in which pairs are added up differs, so that some last bits do."""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=size).astype(np.float32) for size in ((64, 1500), (1500, 64)))
    found = product(tiles, x, y)
    with masked("amx_bf16"):
        hidden = product(tiles, x, y)
    with masked("amx_bf16_and_more"):
        np.testing.assert_array_equal(product(tiles, x, y), found)
    assert (hidden != found).any()
    np.testing.assert_allclose(hidden, found, atol=1e-3)


@pytest.mark.parametrize("window", [None, 40])
def test_attention_by_tiles_is_that_of_rounded_numbers(window: int | None) -> None:
    """Every gradient has other bits where they are hidden: pairs are added up in another order. A loss is one number."""
    rng = np.random.default_rng(0)
    operands = [rng.normal(size=(2, 175, 2, 40)).astype(np.float32) for _ in range(4)]

    def loss(q: Any, k: Any, v: Any, g: Any) -> Any:
        return (nn.scaled_dot_product_attention(q, k, v, causal=True, window=window) * g).sum()

    program = pcp.value_and_grad(
        raised(pcp.trace(loss, *(pcp.spec(x.shape, "f32") for x in operands))), wrt=(0, 1, 2)
    )
    ready = prepared(program)
    names = ("attention.native:bf16", "attention_gradient.native:bf16")
    chosen = {
        site.key: kernels.kernel_named(name)
        for site in kernels.sites_of(ready, "cpu")
        for name in names
        if name in site.kernels
    }
    assert chosen
    plan = pcp.plan(ready, device="cpu:0", path=Chosen.of(ready, chosen), cache=False)
    plain = pcp.plan(program, device="cpu:0", cache=False)
    assert build_here("attention").compiler == SAID

    def arrays(of: pcp.Plan) -> list[Any]:
        return [np.asarray(each) for each in jax.tree.leaves(of.run(*operands))]  # which waits for them

    found, exact = arrays(plan), arrays(plain)
    for a, b in zip(found, exact, strict=True):
        assert np.linalg.norm(a - b) < 1e-2 * np.linalg.norm(b)
    with masked("amx_bf16"):
        hidden = arrays(plan)
    for a, b in zip(found[1:], hidden[1:], strict=True):
        assert (a != b).any()
    for a, b in zip(found, arrays(plan), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("form", FORMS)
def test_stored_weights_by_tiles_are_multiplied_as_bfloat16(form: str) -> None:
    """Of int8 its integers are, which bfloat16 holds; where a row has several scales numbers are rounded with theirs."""
    rng = np.random.default_rng()
    for rows, outputs, inputs in (
        (9, 1, 32),
        (70, 301, 1088),
        *(() if form in ("int4", "int8_blocks") else ((40, 33, 77), (9, 70, 1))),
    ):
        x, weights = rng.normal(size=(rows, inputs)).astype(np.float32), stored(form, outputs, inputs)
        plan = native(pcp.trace(nn.quantised_product, x, weights), f"{MANY}:bf16")
        assert build_here("quantised").compiler == SAID
        found, right = np.asarray(plan.run(x, weights)), wide(weights).T
        in_blocks = form == "int4" or np.size(weights.get("scales", 0.0)) > outputs
        right = rounded(right.astype(np.float32)) if in_blocks else right
        error = np.abs(found - rounded(x) @ right) / (np.abs(x).astype(np.float64) @ np.abs(right))
        assert error.max() <= 2e-6, (rows, outputs, inputs)
        with masked("amx_bf16"):
            assert (np.asarray(plan.run(x, weights)) != found).any() or inputs < 1000
