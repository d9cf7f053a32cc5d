"""Windows of keys as users of PyTorch and JAX write them are attributes of attention: no mask is left in memory."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import pcp
from pcp.rewrite.raising import raised

WINDOW, SHAPE = 5, (2, 3, 12, 8)


def places(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The numbers of queries and keys."""
    return torch.arange(length)[:, None], torch.arange(length)[None]


def in_a_mask(q: Any, k: Any, v: Any) -> Any:
    i, j = places(q.shape[-2])
    seen = (j <= i) & (i - j < WINDOW)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def in_triangles(q: Any, k: Any, v: Any) -> Any:
    ones = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool)
    seen = ones.tril().triu(1 - WINDOW)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def filled(q: Any, k: Any, v: Any) -> Any:
    i, j = places(q.shape[-2])
    scores = (q @ k.transpose(-1, -2)) * 8**-0.5
    return torch.softmax(scores.masked_fill((j > i) | (j <= i - WINDOW), float("-inf")), -1) @ v


def none_for_the_first(q: Any, k: Any, v: Any) -> Any:
    """Where no key is seen, PyTorch's result is 0."""
    i, j = places(q.shape[-2])
    seen = (j < i) & (i - j < WINDOW)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


class Form(torch.nn.Module):
    """A function of query, key and value as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        return self.function(q, k, v)


def said(text: str) -> dict[str, str]:
    """The attributes of its one attention; empty if there is none."""
    lines = [line for line in text.splitlines() if '"pcp.attention"' in line]
    assert len(lines) <= 1
    return dict(re.findall(r"(\w+) = (\w+)", lines[0])) if lines else {}


@pytest.mark.parametrize("function", [in_a_mask, in_triangles, filled, none_for_the_first])
def test_windows_of_torch(function: Callable[..., Any]) -> None:
    operands = [torch.randn(SHAPE) for _ in range(3)]
    program = raised(pcp.from_torch(Form(function), *operands).program)
    known = said(program.text)
    if function is none_for_the_first:
        assert known["safe"] == "true"
    else:
        assert "safe" not in known
        assert (known["causal"], known["offset"], known["window"]) == ("true", "0", str(WINDOW))
        assert "mask" not in known
    found = pcp.plan(program, cache=False).run({}, *(x.numpy() for x in operands))
    np.testing.assert_allclose(np.asarray(found), function(*operands).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_causal", [True, False])
def test_windows_of_jax(is_causal: bool) -> None:
    def windowed(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, is_causal=is_causal, local_window_size=(WINDOW - 1, 0))

    array = jax.ShapeDtypeStruct((2, 12, 4, 8), jnp.float32)
    keys = jax.ShapeDtypeStruct((2, 12, 2, 8), jnp.float32)
    known = said(raised(pcp.from_jax(windowed, array, keys, keys)).text)
    assert (known["causal"], known["offset"], known["window"]) == ("true", "0", str(WINDOW))
    assert "mask" not in known
