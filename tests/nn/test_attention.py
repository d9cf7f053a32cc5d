"""Attention beside a loop over heads and places in NumPy, and beside JAX's."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run, run_in_jax

import pcp
from pcp import nn
from pcp.tensor import ShapeMismatch

BATCH, HEADS, WIDTH = 2, 4, 6


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def operands(queries: int, keys: int, groups: int, seed: int = 0) -> list[Any]:
    """Random queries, keys and values."""
    generator = np.random.default_rng((seed, queries, keys, groups))
    return [
        generator.normal(size=(BATCH, length, count, WIDTH))
        for length, count in ((queries, HEADS), (keys, groups), (keys, groups))
    ]


def one_query_at_a_time(q: Any, k: Any, v: Any, sees: Any) -> Any:
    """Attention as its definition says it: `sees(b, h, i)` tells which keys query i sees."""
    result = np.empty_like(q)
    share = q.shape[2] // k.shape[2]
    for b, i, h in np.ndindex(q.shape[:3]):
        scores = k[b, :, h // share] @ q[b, i, h] / np.sqrt(q.shape[3])
        weights = np.exp(scores - scores.max()) * sees(b, h, i)
        result[b, i, h] = weights @ v[b, :, h // share] / weights.sum()
    return result


def assert_is_the_definition(given: Any, found: Any, window: int | None, causal: bool) -> None:
    queries, keys = given[0].shape[1], given[1].shape[1]

    def sees(_batch: int, _head: int, query: int) -> Any:
        last = query + keys - queries if causal else keys
        return (np.arange(keys) <= last) & (np.arange(keys) > last - (window or keys + queries))

    with np.errstate(invalid="ignore"):  # of more queries than keys the first see none in a window
        np.testing.assert_allclose(found, one_query_at_a_time(*given, sees), rtol=1e-12)
    if queries == keys:  # with fewer queries than keys, JAX counts the places of both from the start
        local = None if window is None else (window - 1, 0)
        theirs = run_in_jax(
            lambda *x: jax.nn.dot_product_attention(*x, is_causal=causal, local_window_size=local), *given
        )
        # JAX's own takes the softmax in float32, whatever it is given.
        assert np.linalg.norm(found - theirs) <= 1e-6 * np.linalg.norm(found)


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 7), (1, 4)])
def test_it_is_the_definition(queries: int, keys: int) -> None:
    given = [operands(queries, keys, groups) for groups in (4, 2, 1)]
    program = pcp.trace(
        lambda every: [
            [nn.scaled_dot_product_attention(*x, causal=causal) for causal in (False, True)] for x in every
        ],
        given,
    )
    for x, (plain, causal) in zip(given, run(program, given), strict=True):
        assert_is_the_definition(x, plain, None, False)
        assert_is_the_definition(x, causal, None, True)


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (3, 7), (7, 3), (1, 4)])
def test_a_query_sees_the_last_keys_of_a_window(queries: int, keys: int) -> None:
    given, windows = [operands(queries, keys, groups) for groups in (4, 2)], (1, 3, 100)
    program = pcp.trace(
        lambda every: [
            [nn.scaled_dot_product_attention(*x, causal=True, window=window) for window in windows]
            for x in every
        ],
        given,
    )
    assert all(f"window = {window}" in program.text for window in windows)
    for x, found in zip(given, run(program, given), strict=True):
        for window, y in zip(windows, found, strict=True):
            assert_is_the_definition(x, y, window, True)


@pytest.mark.parametrize(
    ("causal", "window", "words"),
    [
        (False, 3, "a window without causal=True was given"),
        (True, 0, "a window of 0 was given; expected 1 key or more"),
    ],
)
def test_windows_that_are_none(causal: bool, window: int, words: str) -> None:
    with pytest.raises(nn.InvalidWindow, match=words):
        pcp.trace(
            lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, causal, window=window),
            *operands(5, 5, 4),
        )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(BATCH, HEADS, 5, 5), (BATCH, 1, 1, 5), (5,)])
def test_a_mask_hides_keys(shape: tuple[int, ...], causal: bool) -> None:
    given = operands(5, 5, HEADS)
    mask = np.random.default_rng(8).random(shape) < 0.6
    mask[..., 0] = True  # every query sees a key
    full = np.broadcast_to(mask, (BATCH, HEADS, 5, 5))
    full = full & np.tril(np.ones((5, 5), bool)) if causal else full
    program = pcp.trace(
        lambda q, k, v, m: nn.scaled_dot_product_attention(q, k, v, causal=causal, mask=m), *given, mask
    )
    found = run(program, *given, mask)
    np.testing.assert_allclose(found, one_query_at_a_time(*given, lambda b, h, i: full[b, h, i]), rtol=1e-12)
    assert not np.allclose(found, one_query_at_a_time(*given, lambda *_: np.ones(5)))


@pytest.mark.parametrize("window", [None, 2])
def test_gradients_equal_those_of_jax(window: int | None) -> None:
    given = operands(5, 5, 2)
    cotangent = np.random.default_rng(9).normal(size=given[0].shape)
    program = pcp.trace(
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, causal=True, window=window), *given
    )
    seen = np.tril(np.ones((5, 5), bool)) & np.triu(np.ones((5, 5), bool), 1 - (window or 5))
    found = run(pcp.vjp(program), *given, cotangent)

    def theirs(q: Any, k: Any, v: Any) -> Any:
        k, v = (jnp.repeat(x, HEADS // 2, axis=2) for x in (k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(WIDTH)
        scores = jnp.where(seen, scores, -jnp.inf)
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)

    expected = run_in_jax(lambda c, *x: jax.vjp(theirs, *x)[1](c), cotangent, *given)
    for a, b in zip(found, expected, strict=True):
        assert np.linalg.norm(a - b) <= 1e-12 * np.linalg.norm(b)


@pytest.mark.parametrize("bias", [False, True])
def test_self_attention_projects_mixes_and_projects(bias: bool) -> None:
    generator = np.random.default_rng(10)
    width, length = HEADS * WIDTH, 5
    x = generator.normal(size=(BATCH, length, width))
    weights = generator.normal(size=(width, 3 * width)), generator.normal(size=(width, width))
    biases = generator.normal(size=3 * width), generator.normal(size=width)
    parameters = {
        name: {"weight": weight} | ({"bias": added} if bias else {})
        for name, weight, added in zip(("qkv", "out"), weights, biases, strict=True)
    }
    program = pcp.trace(lambda x, p: nn.attention(x, p, HEADS, causal=True), x, parameters)
    found = run(program, x, parameters)
    parts = np.split(x @ weights[0] + bias * biases[0], 3, axis=-1)
    q, k, v = (part.reshape(BATCH, length, HEADS, WIDTH) for part in parts)
    mixed = one_query_at_a_time(q, k, v, lambda _b, _h, i: np.arange(length) <= i)
    expected = mixed.reshape(BATCH, length, width) @ weights[1] + bias * biases[1]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            [(2, 5, 4), (2, 5, 4, 6), (2, 5, 4, 6)],
            r"attention: query \(2, 5, 4\), key \(2, 5, 4, 6\) and value \(2, 5, 4, 6\) were given; "
            r"expected \(batch, queries, heads, width\) and twice \(batch, keys, groups, width\)",
        ),
        ([(2, 5, 4, 6), (2, 5, 4, 6), (2, 7, 4, 6)], r"value \(2, 7, 4, 6\) were given"),
        ([(2, 5, 4, 6), (3, 5, 4, 6), (3, 5, 4, 6)], r"key \(3, 5, 4, 6\) and value"),
        ([(2, 5, 4, 6), (2, 5, 4, 8), (2, 5, 4, 8)], r"key \(2, 5, 4, 8\) and value"),
        ([(2, 5, 4, 6), (2, 5, 3, 6), (2, 5, 3, 6)], "4 heads cannot share 3 groups of keys evenly"),
    ],
)
def test_shapes_that_do_not_correspond(shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(ShapeMismatch, match=message):
        pcp.trace(nn.scaled_dot_product_attention, *[pcp.spec(shape, "f32") for shape in shapes])


def test_heads_that_do_not_divide_the_width() -> None:
    with pytest.raises(ShapeMismatch, match="a width of 10 cannot be shared by 4 heads evenly"):
        pcp.trace(
            lambda x, w: nn.attention(x, {"qkv": {"weight": w}}, 4),
            pcp.spec((2, 5, 10), "f32"),
            pcp.spec((10, 30), "f32"),
        )
