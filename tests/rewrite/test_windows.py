"""Masks that compare places are read as windows of keys, however they are written; others stay masks."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import Program, nn
from pcp.rewrite.raising import raised
from pcp.tensor import Tensor, as_tensor
from tests.execution import run

LENGTH, WINDOW = 9, 4
SPECS = [pcp.spec((2, LENGTH, 3, 4), "f32")] * 3


def attention(seen: Callable[..., Any], q: Any, k: Any, v: Any, *more: Any) -> Any:
    """Attention of one mask, by hand."""
    scores = pcp.einsum("bqhd,bkhd->bhqk", q, k) * 0.5
    return pcp.einsum("bhqk,bkhd->bqhd", pcp.softmax(seen(scores, *more), -1), v)


def places(dtype: str = "i32") -> tuple[Tensor, Tensor]:
    """The numbers of queries and keys."""
    i, j = (pcp.iota((LENGTH, LENGTH), axis).astype(dtype) for axis in (0, 1))
    return i, j


def seen_by(mask: Callable[[Any, Any], Any], dtype: str = "i32") -> Callable[..., Any]:
    """Scores of a mask from the numbers of queries and keys."""
    return lambda scores, *_: pcp.where(mask(*places(dtype)), scores, -np.inf)


def table(length: int, axis: int) -> Any:
    """Numbers of places as JAX's own window has them: a constant."""
    return as_tensor(np.expand_dims(np.arange(length, dtype=np.int32), 1 - axis))


def ones() -> Tensor:
    return pcp.ones((LENGTH, LENGTH), "bool")


FORMS: dict[str, Callable[..., Any]] = {
    "a difference below a number": seen_by(lambda i, j: (j <= i) & (i - j < WINDOW)),
    "a difference turned": seen_by(lambda i, j: (j - i <= 0) & (j - i > -WINDOW)),
    "a difference from a number": seen_by(lambda i, j: (i >= j) & (j - i >= 1 - WINDOW)),
    "places after": seen_by(lambda i, j: (j > i - WINDOW) & (i >= j)),
    "places from": seen_by(lambda i, j: (j >= i - WINDOW + 1) & (j < i + 1)),
    "in wide integers": seen_by(lambda i, j: (j <= i) & (i - WINDOW < j), "i64"),
    "in floats": seen_by(lambda i, j: (j <= i) & (i - j < WINDOW), "f32"),
    "as JAX counts": seen_by(
        lambda i, j: (i >= j) & (table(LENGTH, 0) <= table(LENGTH, 1) + (WINDOW - 1)) & (i >= table(LENGTH, 1))
    ),
    "the narrowest of several": seen_by(lambda i, j: (i - j < 7) & (j <= i + 2) & (i - j < WINDOW) & (j <= i)),
    "triangles": lambda scores: pcp.where(pcp.triu(pcp.tril(ones()), 1 - WINDOW), scores, -1e30),
    "two masks": lambda scores: pcp.where(
        pcp.triu(ones(), 1 - WINDOW), pcp.where(pcp.tril(ones()), scores, -np.inf), -np.inf
    ),
    "what is hidden": lambda scores: pcp.where(
        (places()[1] > places()[0]) | (places()[0] - places()[1] >= WINDOW), -np.inf, scores
    ),
    "what is not hidden": seen_by(lambda i, j: ~((j > i) | (i - j >= WINDOW))),
    "not what is seen": lambda scores: pcp.where(
        ~((places()[1] <= places()[0]) & (places()[0] - places()[1] < WINDOW)), -np.inf, scores
    ),
}  # fmt: skip


def exact(*arrays: Any, first: int = 1 - WINDOW, last: int = 0) -> Any:
    """Where a query sees the keys from `first` to `last` after its own number."""
    q, k, v = (np.asarray(x, np.float64) for x in arrays)
    i, j = np.indices((LENGTH, LENGTH))
    scores = np.where((j - i >= first) & (j - i <= last), np.einsum("bqhd,bkhd->bhqk", q, k) * 0.5, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v)


def said(program: Program) -> dict[str, str]:
    """The attributes of its one attention."""
    (line,) = [line for line in program.text.splitlines() if '"pcp.attention"' in line]
    return dict(re.findall(r"(\w+) = ([^,:}]*)", line))


@pytest.mark.parametrize("name", FORMS)
def test_a_window_is_read_however_it_is_written(name: str) -> None:
    program = pcp.trace(lambda *x: attention(FORMS[name], *x), *SPECS)
    found = raised(program)
    known = said(found)
    assert (known["causal"], known["offset"].split()[0], known["window"].split()[0]) == (
        "true",
        "0",
        str(WINDOW),
    )
    assert "mask" not in known
    assert found.digest == program.digest
    assert raised(found) is found
    arrays = [np.random.default_rng().normal(size=(2, LENGTH, 3, 4)).astype(np.float32) for _ in range(3)]
    np.testing.assert_allclose(run(found, *arrays), exact(*arrays), rtol=1e-5, atol=1e-6)


# name: scores of masks, and whether a mask is left of them, or nothing is recognised but softmax
OTHERS: dict[str, tuple[Callable[..., Any], bool]] = {
    "a window without causality": (seen_by(lambda i, j: i - j < WINDOW), True),
    "a distance": (seen_by(lambda i, j: abs(i - j) < WINDOW), True),
    "a window in which no key is": (seen_by(lambda i, j: (j <= i) & (j > i)), True),
    "every second key": (seen_by(lambda i, j: 2 * j <= i), True),
    "keys before a number": (seen_by(lambda _, j: j < WINDOW), True),
    "a multiple of a difference": (seen_by(lambda i, j: (j <= i) & (2 * i - 2 * j < WINDOW)), True),
    "a half": (seen_by(lambda i, j: i - j < 3.5, "f32"), True),
    "numbers that wrap": (seen_by(lambda i, j: (j <= i) & (i - j < (1 << 31) - 5)), True),
    "unsigned numbers": (seen_by(lambda i, j: i - j < WINDOW, "u32"), True),
    "numbers in steps": (seen_by(lambda i, _: as_tensor(np.arange(0, 2 * LENGTH, 2, np.int32)) <= i), True),
    "both of several masks, hidden": (
        lambda scores: pcp.where((places()[0] - places()[1] < WINDOW) & (places()[1] <= places()[0]), -1e30, scores),
        False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_another_mask_stays_one(name: str) -> None:
    function, is_attention = OTHERS[name]
    program = pcp.trace(lambda *x: attention(function, *x), *SPECS)
    found = raised(program)
    assert ("pcp.attention" in found.text) is is_attention
    assert "window" not in found.text
    if is_attention:
        assert "mask" in said(found)
    arrays = [np.random.default_rng().normal(size=(2, LENGTH, 3, 4)).astype(np.float32) for _ in range(3)]
    np.testing.assert_array_equal(run(found, *arrays), run(program, *arrays))


def test_beside_a_window_another_mask_stays() -> None:
    def masked(scores: Any, padding: Any) -> Any:
        i, j = places()
        return pcp.where((j <= i) & ~padding & (i - j < WINDOW), scores, -np.inf)

    given = [*SPECS, pcp.spec((2, 1, 1, LENGTH), "bool")]
    found = said(raised(pcp.trace(lambda *x: attention(masked, *x), *given)))
    assert found["window"].split()[0] == str(WINDOW)
    assert "mask" in found


def test_the_mask_of_a_named_attention_is_read_as_its_window() -> None:
    def masked(q: Any, k: Any, v: Any) -> Any:
        i, j = places()
        return nn.scaled_dot_product_attention(q, k, v, causal=True, mask=(i - j < WINDOW) & (i - j < 7))

    program = pcp.trace(masked, *SPECS)
    assert "mask" in said(program)
    found = said(raised(program))
    assert found["window"].split()[0] == str(WINDOW)
    assert "mask" not in found
    narrower = pcp.trace(
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, True, places()[0] - places()[1] < 2, WINDOW),
        *SPECS,
    )
    assert said(raised(narrower))["window"].split()[0] == "2"
