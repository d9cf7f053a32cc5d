"""Parts beside one another by Triton: where they are found, interpreted beside NumPy, and lowered for a GPU."""

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp.ir import Program
from pcp.ir.toolkit.functions import entry_block
from pcp.kernels import apply_kernels, cover, kernel_named, sites_of
from pcp.kernels.groups import groups_in
from pcp.kernels.joined.triton import TILES, join, without_what_vanishes
from pcp.planning.paths.preparation import prepared
from tests.kernels.gpu import lowers_for_gpus
from tests.kernels.gpu.emulated import interpreted

ROWS, WIDTH = 2 * TILES.rows, 128


def _found(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[tuple[str, list[int]]]:
    """The form of every group, and the arguments that are its parts."""
    module = pcp.trace(function, *[pcp.spec(shape, "f32") for shape in shapes]).module()
    matches = [
        match
        for group in groups_in(entry_block(module))
        if group.family.name == "joined"
        for match in group.matches
    ]
    return [(match.form, [value.arg_number for value in match.inputs.values()]) for match in matches]


def _placed(x: pcp.Tensor, before: int, behind: int) -> pcp.Tensor:
    return pcp.pad(x, [(0, 0), (before, behind)])


PART = (4, 3)


def test_parts_of_one_size_are_found_in_the_order_of_their_places() -> None:
    two = _found(lambda a, b: _placed(b, 3, 0) + _placed(a, 0, 3), PART, PART)
    assert two == [("2 parts", [0, 1])]
    three = _found(lambda a, b, c: _placed(c, 6, 0) + _placed(a, 0, 6) + _placed(b, 3, 3), PART, PART, PART)
    assert three == [("3 parts", [0, 1, 2])]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda a, b: _placed(a, 0, 3) + _placed(b, 0, 3), (PART, PART)),
        (lambda a, b: _placed(a, 0, 4) + _placed(b, 3, 1), (PART, PART)),
        (lambda a, b: _placed(a, 0, 2) + _placed(b, 3, 0), (PART, (4, 2))),
        (lambda a, b: pcp.pad(a, [(0, 4), (0, 0)]) + pcp.pad(b, [(4, 0), (0, 0)]), (PART, PART)),
        (
            lambda a, b: (
                pcp.pad(a, [(0, 0), (0, 3)], constant_values=1.0)
                + pcp.pad(b, [(0, 0), (3, 0)], constant_values=1.0)
            ),
            (PART, PART),
        ),
        (lambda a, b: _placed(a, 0, 3) * _placed(b, 3, 0), (PART, PART)),
        (lambda a, b: a + b, (PART, PART)),
        (lambda a, b: a + b, ((), ())),
    ],
)
def test_what_is_no_whole_of_equal_parts_is_left(
    function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]
) -> None:
    assert not _found(function, *shapes)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("width", [WIDTH, 384, 192])
def test_it_joins_parts_and_adds_up_their_columns(count: int, width: int) -> None:
    rng = np.random.default_rng(count * width)
    parts = [rng.normal(size=(ROWS, width)).astype(ml_dtypes.bfloat16) for _ in range(count)]
    joined, sums = interpreted(join)(*parts)
    whole = np.concatenate(parts, 1)
    assert joined.dtype.name == "bfloat16"
    assert np.array_equal(np.asarray(joined), whole)
    exact = whole.astype(np.float64).reshape(2, TILES.rows, -1).sum(1)
    assert np.abs(np.asarray(sums) - exact).max() < 1e-5


def test_what_is_no_number_stays_in_its_place_and_its_column() -> None:
    rng = np.random.default_rng(7)
    usual = [rng.normal(size=(ROWS, WIDTH)).astype(np.float32) for _ in range(2)]
    joining = jax.jit(interpreted(join))
    for number in (np.nan, np.inf, -np.inf):
        parts = [each.copy() for each in usual]
        parts[1][3, 5] = number
        joined, sums = (np.asarray(each, np.float32) for each in joining(*parts))
        right = np.concatenate(parts, 1)
        assert np.array_equal(joined, right.astype(ml_dtypes.bfloat16).astype(np.float32), equal_nan=True)
        assert np.array_equal(np.argwhere(~np.isfinite(sums)), [[0, WIDTH + 5]])
        assert np.array_equal(sums[0, WIDTH + 5], np.float32(number), equal_nan=True)


def test_a_sum_that_vanishes_is_zero_unless_a_number_is_none() -> None:
    total = np.array([1.0, -2.0, 3e-3, np.nan, 5.0, np.inf], np.float32)
    program = pcp.trace(lambda x: without_what_vanishes(x, [False, True, False]), pcp.spec((6,), "f32"))
    found = np.asarray(pcp.plan(program)(total))
    assert np.array_equal(found, [1.0, -2.0, 0.0, np.nan, 5.0, np.inf], equal_nan=True)


def _attention(biased: bool = True) -> Program:
    """The gradients of the weights and the bias that make queries, keys and values."""

    def loss(x: pcp.Tensor, w: pcp.Tensor, b: pcp.Tensor, g: pcp.Tensor) -> pcp.Tensor:
        made = x @ w + b if biased else x @ w
        q, k, v = (each.reshape((2, ROWS, 2, 64)) for each in pcp.split(made, 3, axis=-1))
        y = pcp.nn.scaled_dot_product_attention(q, k, v, causal=True)
        return (y.reshape((2, ROWS, WIDTH)) * g).sum()

    shapes = (2, ROWS, 32), (32, 3 * WIDTH), (3 * WIDTH,), (2, ROWS, WIDTH)
    specs = [pcp.spec(shape, "f32") for shape in shapes]
    return prepared(pcp.value_and_grad(pcp.trace(loss, *specs), wrt=(0, 1, 2) if biased else (0, 1)))


NAMES = {
    "joined": "joined.triton:bf16",
    "product": "product.xla:bf16+result",
    "attention": "attention.cudnn:bf16+result",
    "attention_gradient": "attention_gradient.cudnn:bf16+result",
}


def _applied(program: Program, monkeypatch: pytest.MonkeyPatch) -> str:
    from pcp.kernels import features

    monkeypatch.setattr(features, "_found", lambda platform: frozenset({platform, "sm_80"}))
    sites = cover(site for site in sites_of(program, "cuda") if site.family in NAMES)
    chosen = {site.key: kernel_named(NAMES[site.family]) for site in sites}
    assert {site.family for site in sites} == set(NAMES)
    return apply_kernels(program, chosen).text


@lowers_for_gpus
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_cotangents_are_read_as_cudnn_wrote_them_and_nowhere_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = _applied(_attention(), monkeypatch)
    (call,) = (line for line in text.splitlines() if "__gpu$xla.gpu.triton" in line)
    given, _, made = call.rpartition(" : (")[2].partition(") -> ")
    assert given.count(f"tensor<{2 * ROWS}x{WIDTH}xbf16>") == 3
    assert f"tensor<{2 * ROWS}x{3 * WIDTH}xbf16>" in made
    main = text.partition("func.func private")[0]
    assert "stablehlo.pad" not in main
    # The mean over keys, which only the sum of their cotangents needs, is not computed, and no tensor is read for a sum.
    sums = [line for line in main.splitlines() if "stablehlo.reduce(" in line]
    assert not [line for line in sums if f"tensor<2x{ROWS}x2x64xf32>" in line]
    assert not [line for line in sums if f"tensor<2x{ROWS}x{3 * WIDTH}xf32>" in line]
    assert [line for line in sums if f"tensor<4x{3 * WIDTH}xf32>" in line]


@lowers_for_gpus
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated")
def test_without_a_bias_nothing_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    text = _applied(_attention(biased=False), monkeypatch)
    assert "__gpu$xla.gpu.triton" in text
    assert f"tensor<4x{3 * WIDTH}xf32>, tensor<f32>" not in text
