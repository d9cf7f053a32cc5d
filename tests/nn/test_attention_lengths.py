"""Attention with a cap of its scores, and of sequences of different lengths, beside its definition on cut sequences."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run
from tests.nn.padded_attention import attended, drawn, spoiled

import pcp
from pcp import nn
from pcp.tensor import DTypeMismatch, ShapeMismatch

FULL = ([5, 5, 5], [7, 7, 7])


def found(operands: list[Any], *given: Any, **settings: Any) -> list[Any]:
    """The result and the cotangents of query, key and value."""
    *qkv, g = operands
    names = list(settings.pop("named", ()))

    def attention(q: Any, k: Any, v: Any, *more: Any) -> Any:
        return nn.scaled_dot_product_attention(q, k, v, **settings, **dict(zip(names, more, strict=True)))

    program = pcp.trace(attention, *qkv, *given)
    gradient = pcp.autodiff.gradient.value_and_vjp(program, (0, 1, 2))
    y, cotangents = run(gradient, *qkv, *given, g)
    return [y, *cotangents]


def close(found: Any, expected: Any, error: float = 1e-11) -> None:
    for a, b in zip(found, expected, strict=True):
        assert np.linalg.norm(a - b) <= error * max(np.linalg.norm(b), 1e-3)


@pytest.mark.share(2, each="masked")
@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_a_cap_bounds_scores_before_keys_are_hidden(groups: int, causal: bool, masked: bool) -> None:
    operands = drawn(5, 7, 4, groups, 6, seed=1)
    mask = np.random.default_rng(2).random((3, 4, 5, 7)) < 0.6
    mask[..., 0] = True
    given = {"named": ["mask"]} if masked else {}
    y = found(operands, *[mask] * masked, causal=causal, cap=0.7, **given)
    close(y, attended(*operands, FULL, causal=causal, cap=0.7, mask=mask if masked else None))


LENGTHS = {
    "all": FULL,
    "none": ([0, 0, 0], [0, 0, 0]),
    "different": ([5, 0, 3], [2, 7, 4]),
    "no keys for some": ([5, 4, 1], [0, 7, 1]),
    "beyond what there is": ([9, -3, 2], [100, 7, -1]),
}


@pytest.mark.share(2, each="name")
@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize(
    ("groups", "causal", "window", "cap"), [(4, False, None, None), (2, True, None, 2.0), (2, True, 2, None)]
)
def test_what_is_beyond_a_length_counts_nowhere(
    name: str, groups: int, causal: bool, window: int | None, cap: float | None
) -> None:
    inside = tuple(np.clip(ends, 0, most) for ends, most in zip(LENGTHS[name], (5, 7), strict=True))
    operands = drawn(5, 7, 4, groups, 6, seed=3)
    *qkv, g = spoiled(operands, inside)
    settings = {"causal": causal, "window": window, "cap": cap}
    names = ["query_lengths", "key_lengths"]
    ends = [np.array(each, dtype) for each, dtype in zip(LENGTHS[name], (np.int64, np.int8), strict=True)]
    y = found([*qkv, g], *ends, named=names, **settings)
    close(y, attended(*operands, inside, **settings))
    for each, of in zip(y, (*inside[:1], *inside[:1], *inside[1:], *inside[1:]), strict=True):
        for b, end in enumerate(of):
            assert not each[b, end:].any()


@pytest.mark.parametrize("kind", ["query_lengths", "key_lengths"])
def test_one_of_the_lengths_alone_and_beside_a_mask(kind: str) -> None:
    operands = drawn(5, 7, 4, 2, 6, seed=4)
    inside = tuple(
        np.array([4, 0, 2]) if each == kind else np.array(full)
        for each, full in zip(("query_lengths", "key_lengths"), FULL, strict=True)
    )
    mask = np.random.default_rng(5).random((3, 4, 5, 7)) < 0.3  # which hides all keys from some queries
    y = found(spoiled(operands, inside), np.array([4, 0, 2]), mask, named=[kind, "mask"])
    close(y, attended(*operands, inside, mask=mask))


def test_narrow_types_have_caps_and_lengths_too() -> None:
    operands = drawn(5, 7, 4, 2, 6, seed=6)
    lengths = ([5, 0, 3], [2, 7, 4])
    *qkv, _ = spoiled(operands, lengths)

    def attention(q: Any, k: Any, v: Any, i: Any, j: Any) -> Any:
        q, k, v = (x.astype("bf16") for x in (q, k, v))
        mixed = nn.scaled_dot_product_attention(q, k, v, cap=2.0, query_lengths=i, key_lengths=j)
        return mixed.astype("f32")

    given = [*(x.astype(np.float32) for x in qkv), *(np.array(each, np.int32) for each in lengths)]
    y = run(pcp.trace(attention, *given), *given)
    expected = attended(*operands, lengths, cap=2.0)[0]
    assert np.linalg.norm(y - expected) <= 2e-2 * np.linalg.norm(expected)


@pytest.mark.parametrize("cap", [0.0, -1.0, np.inf, np.nan])
def test_caps_that_are_none(cap: float) -> None:
    with pytest.raises(nn.InvalidCap, match=r"a cap of \S+ was given; expected a finite number above 0"):
        pcp.trace(
            lambda q: nn.scaled_dot_product_attention(q, q + 1, q, cap=cap), pcp.spec((1, 2, 1, 4), "f32")
        )


@pytest.mark.parametrize(
    ("lengths", "error", "words"),
    [
        (
            pcp.spec((2,), "i32"),
            ShapeMismatch,
            r"key_lengths \(2,\) were given; expected one for each sequence, \(3,\)",
        ),
        (
            pcp.spec((3,), "f32"),
            DTypeMismatch,
            "key_lengths of type f32 were given; expected whole numbers, as i32",
        ),
    ],
)
def test_lengths_that_are_none(lengths: Any, error: type[Exception], words: str) -> None:
    shape = pcp.spec((3, 2, 1, 4), "f32")
    with pytest.raises(error, match=words):
        pcp.trace(lambda q, n: nn.scaled_dot_product_attention(q, q + 1, q, key_lengths=n), shape, lengths)
