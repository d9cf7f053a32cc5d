"""Attention against a loop over heads and queries in NumPy."""

import math
from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import nn
from pcp.tensor import ShapeMismatch

RNG = np.random.default_rng(8)
BATCH, QUERIES, KEYS, HEADS, WIDTH = 2, 3, 5, 4, 6


def loop(q: Any, k: Any, v: Any, visible: Any) -> Any:
    """One query of one head after the other; `visible` says which (batch, head, query, key) are seen."""
    result = np.zeros(q.shape)
    share = q.shape[2] // k.shape[2]
    for b, i, h in np.ndindex(q.shape[:3]):
        seen = [j for j in range(k.shape[1]) if visible(b, h, i, j)]
        scores = np.array([q[b, i, h] @ k[b, j, h // share] for j in seen]) / math.sqrt(q.shape[3])
        weights = np.exp(scores) / np.exp(scores).sum()
        result[b, i, h] = sum(w * v[b, j, h // share] for w, j in zip(weights, seen, strict=True))
    return result


def random_heads(groups: int = HEADS, keys: int = KEYS) -> tuple[Any, Any, Any]:
    q = RNG.normal(size=(BATCH, QUERIES, HEADS, WIDTH))
    k, v = (RNG.normal(size=(BATCH, keys, groups, WIDTH)) for _ in range(2))
    return q, k, v


def apply(function: Any, *arguments: Any) -> Any:
    return run(pcp.trace(function, *map(pcp.specs_of, arguments)), *arguments)


@pytest.mark.parametrize("groups", [1, 2, HEADS])
@pytest.mark.parametrize("causal", [False, True])
def test_every_query_mixes_the_values_of_the_keys_it_sees(groups: int, causal: bool) -> None:
    q, k, v = random_heads(groups)
    found = apply(lambda *qkv: nn.scaled_dot_product_attention(*qkv, causal=causal), q, k, v)
    expected = loop(q, k, v, lambda _b, _h, i, j: not causal or j <= i + KEYS - QUERIES)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_mask_narrows_what_is_seen() -> None:
    q, k, v = random_heads()
    mask = RNG.random((BATCH, 1, QUERIES, KEYS)) < 0.5
    mask[..., 0] = True
    found = apply(lambda *a: nn.scaled_dot_product_attention(*a[:3], causal=True, mask=a[3]), q, k, v, mask)
    expected = loop(q, k, v, lambda b, _h, i, j: mask[b, 0, i, j] and j <= i + KEYS - QUERIES)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_self_attention_projects_splits_and_merges() -> None:
    width = HEADS * WIDTH
    x = RNG.normal(size=(BATCH, 3, width))
    parameters = {
        "qkv": {"weight": RNG.normal(size=(width, 3 * width)) * 0.2, "bias": RNG.normal(size=3 * width)},
        "out": {"weight": RNG.normal(size=(width, width)), "bias": RNG.normal(size=width)},
    }
    found = apply(lambda x, p: nn.attention(x, p, HEADS, causal=True), x, parameters)
    q, k, v = (
        part.reshape(BATCH, 3, HEADS, WIDTH)
        for part in np.split(x @ parameters["qkv"]["weight"] + parameters["qkv"]["bias"], 3, axis=2)
    )
    mixed = loop(q, k, v, lambda _b, _h, i, j: j <= i).reshape(BATCH, 3, width)
    expected = mixed @ parameters["out"]["weight"] + parameters["out"]["bias"]
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            ((2, 3, 4), (2, 5, 4), (2, 5, 4)),
            r"query \(2, 3, 4\), key \(2, 5, 4\) and value \(2, 5, 4\) were given",
        ),
        (((2, 3, 4, 6), (2, 5, 4, 6), (2, 4, 4, 6)), r"twice \(batch, keys, groups, width\)"),
        (((2, 3, 4, 6), (1, 5, 4, 6), (1, 5, 4, 6)), "were given; expected"),
        (((2, 3, 4, 6), (2, 5, 3, 6), (2, 5, 3, 6)), "4 heads cannot share 3 groups of keys evenly"),
    ],
)
def test_shapes_that_do_not_correspond_are_refused(shapes: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ShapeMismatch, match=message):
        pcp.trace(nn.scaled_dot_product_attention, *(pcp.spec(shape, "f32") for shape in shapes))


def test_heads_must_divide_the_width() -> None:
    parameters = {"qkv": {"weight": pcp.spec((6, 18), "f32")}, "out": {"weight": pcp.spec((6, 6), "f32")}}
    with pytest.raises(ShapeMismatch, match="a width of 6 cannot be shared by 4 heads evenly"):
        pcp.trace(lambda x, p: nn.attention(x, p, 4), pcp.spec((1, 2, 6), "f32"), parameters)
