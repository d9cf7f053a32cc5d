"""Products of few rows and attention of one query by Triton: interpreted, beside float64; and in a step of decoding."""

import dataclasses
from collections import Counter
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from tests.conftest import PLATFORM
from tests.kernels.gpu.emulated import emulate, interpreted

import pcp
from pcp.backends.registry import DEFAULT
from pcp.inference.kept_steps import standing_kernels
from pcp.inference.readiness import Shape
from pcp.inference.runner import step_program
from pcp.ir.tree import map_tree
from pcp.kernels import apply_kernels
from pcp.kernels.attention.triton_few import HELD, SEEN, FewQueries
from pcp.kernels.products.triton import Normed, OneRow
from pcp.models.config import DecoderConfig
from pcp.models.decoder import empty_cache
from pcp.models.initial import initial_parameters
from pcp.models.published import gpt2_config
from pcp.planning.paths.preparation import prepared

RNG = np.random.default_rng()
pytestmark = [
    pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated"),
    pytest.mark.skipif(PLATFORM != "cpu", reason="it is interpreted"),
]


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype("bfloat16")


def gelu(x: Any) -> Any:
    return x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "norm", [None, Normed(1e-5, True), Normed(1e-2, False)], ids=["as is", "layer", "rms"]
)
@pytest.mark.parametrize(("inner", "columns"), [(192, 72), (3584, 40)])
def test_a_product_with_all_that_is_around_it(
    inner: int, columns: int, norm: Normed | None, turned: bool
) -> None:
    """The longer one is read in several turns, and where there is no norm shared out by the rows of the weights, too."""
    x, weights = 2 + drawn(1, inner), drawn(*((columns, inner) if turned else (inner, columns)))
    scale, shift, bias, residual = drawn(1, inner), drawn(1, inner), drawn(1, columns), drawn(1, columns)
    kernel = OneRow(columns, turned, norm, True, "tanh_gelu", True)
    vectors = (scale, shift) if norm else ()
    (found,) = interpreted(jax.jit(kernel))(x, weights, *vectors, bias, residual)
    x, weights, scale, shift, bias, residual = (
        each.astype(np.float64) for each in (x, weights, scale, shift, bias, residual)
    )
    if norm is not None:
        x = x - x.mean(1, keepdims=True) * norm.centred
        x = x / np.sqrt((x * x).mean(1, keepdims=True) + norm.epsilon) * scale + shift
    expected = gelu(x @ (weights.T if turned else weights) + bias) + residual
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("shared", "cap", "width"), [(1, 0.0, 64), (3, 2.0, 24)])
def test_attention_of_one_query_out_of_pages(shared: int, cap: float, width: int) -> None:
    rows, heads, page, pages = 2, 2, 16, 9
    keys = page * pages
    table = RNG.permutation(2 * rows * pages)[: rows * pages].reshape(rows, pages).astype(np.int32)
    query = drawn(rows, heads, shared, width)
    stored = drawn(2, 2 * rows * pages, page, heads, width)
    seen, held = (RNG.random((rows, keys)) < 0.5 for _ in range(2))
    seen[0, 40:] = False  # whole blocks that nobody sees
    stored[:, table[0, 4]] = np.nan
    sight = (seen * (SEEN + HELD * held)).astype(np.int8)
    kernel = FewQueries(rows, heads, shared, width, keys, page, 0.3, cap, "float32", is_safe=False)
    flat = [each.reshape(-1, heads * width) for each in stored]
    operands = (query.reshape(rows, -1), *flat, table.ravel(), sight.ravel())
    (found,) = interpreted(jax.jit(kernel))(*operands)
    key, value = (each[table].reshape(rows, keys, heads, width).astype(np.float64) for each in stored)
    scores = np.einsum("rhgd,rkhd->rhgk", query.astype(np.float64), key) * 0.3
    scores = np.tanh(scores / cap) * cap if cap else scores
    weights = np.where(seen[:, None, None], np.exp(scores), 0.0)
    value = np.where(held[:, :, None, None], value, 0.0)
    expected = np.einsum("rhgk,rkhd->rhgd", weights / weights.sum(-1, keepdims=True), np.nan_to_num(value))
    assert np.abs(found.reshape(expected.shape) - expected).max() < 1e-5


def test_a_query_that_sees_no_key_gives_nothing_or_no_number() -> None:
    for is_safe in (True, False):
        kernel = FewQueries(1, 1, 1, 16, 32, 32, 1.0, 0.0, "float32", is_safe)
        operands = drawn(1, 16), drawn(32, 16), drawn(32, 16), np.zeros(1, np.int32), np.zeros(32, np.int8)
        (found,) = interpreted(jax.jit(kernel))(*operands)
        assert np.array_equal(found, np.full((1, 16), 0.0 if is_safe else np.nan), equal_nan=True)


GPT2 = gpt2_config(layers=2, heads=2, width=64, context=64, vocabulary=99)
GROUPED = dataclasses.replace(
    GPT2,
    family="llama",
    heads=4,
    key_value_heads=2,
    layer_norm=False,
    joined=False,
    biases=(),
    gated=True,
    activation="silu",
    attention_cap=3.0,
    window=9,
    windowed=(0,),
)
"""Heads that share keys, a window in one of two blocks, and capped scores."""


def step(config: DecoderConfig, shape: Shape) -> tuple[pcp.Program, list[Any]]:
    """A step and its arguments, in which the page that belongs to nobody holds no numbers."""
    parameters = map_tree(
        lambda x: (x + 0.2 * RNG.normal(size=x.shape)).astype(np.float32), initial_parameters(config)
    )
    cache = empty_cache(config, 1 + 4 * shape.rows, 16, "f32")
    cache = map_tree(lambda x: RNG.normal(size=x.shape).astype(x.dtype), cache)
    cache[0]["value"][0] = np.nan
    program = step_program(parameters, config, pcp.specs_of(cache), shape)
    whole = np.zeros((shape.rows, 6), np.int32)
    whole[:, 0], whole[:, 1] = RNG.integers(0, 60 - shape.turns, shape.rows), shape.turns
    table = (1 + RNG.permutation(4 * shape.rows)).reshape(shape.rows, 4).astype(np.int32)
    tokens = RNG.integers(0, 99, (shape.rows, 1)).astype(np.int32)
    real = np.zeros((shape.rows, 4), np.float32)
    return program, [parameters, cache, tokens, table, whole, real, np.bool_(True), None]


@pytest.mark.parametrize(
    ("config", "turns", "count"),
    [(GPT2, 1, (8, 1, 2)), (GROUPED, 3, (6, 9, 2))],
    ids=["GPT-2", "grouped, windows, caps, three turns"],
)
def test_a_step_of_decoding_with_them_is_the_step(
    config: DecoderConfig, turns: int, count: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32, where nothing but the order of sums differs."""
    emulate(monkeypatch)
    program, arguments = step(config, Shape(1, 1, 4, turns=turns))
    gpu: Any = SimpleNamespace(backend=DEFAULT, platform="cuda")
    chosen = standing_kernels(program, gpu)
    names = Counter(kernel.name for kernel in chosen.values())
    assert (names["product_epilogue.triton"], names["product.triton"], names["attention.triton_few"]) == count
    plain, found = (
        jax.tree.leaves(pcp.plan(each, "cpu:0").run(*arguments))
        for each in (program, apply_kernels(prepared(program), chosen))
    )
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_allclose(np.asarray(other), np.asarray(one), rtol=1e-4, atol=1e-4)
