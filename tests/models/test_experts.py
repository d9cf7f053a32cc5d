"""Experts that are computed for their own tokens alone give what all give for all tokens."""

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp import nn
from pcp.models.config import Experts
from pcp.models.experts import experts

WIDTH, HIDDEN = 6, 5


@pytest.mark.parametrize(
    ("tokens", "count", "chosen", "pull"), [(40, 6, 2, 0.0), (33, 3, 1, 0.0), (70, 4, 3, 9.0)]
)
def test_each_expert_for_its_own_tokens(tokens: int, count: int, chosen: int, pull: float) -> None:
    generator = np.random.default_rng(tokens)

    def drawn(*shape: int) -> np.ndarray:
        return generator.normal(size=shape).astype(np.float32)

    router = drawn(WIDTH, count)
    x = drawn(2, tokens // 2, WIDTH)
    x[..., 0] = 1
    router[0, -1] += pull  # nearly all tokens choose the last
    weights = {"gate": drawn(count, WIDTH, HIDDEN), "up": drawn(count, WIDTH, HIDDEN)}
    weights["down"] = drawn(count, HIDDEN, WIDTH)
    row = Experts(count, chosen, HIDDEN)
    program = pcp.trace(
        lambda *given: [experts(*given, row, nn.silu, apart) for apart in (False, True)], x, router, weights
    )
    whole, own = (np.asarray(each) for each in run(program, x, router, weights))
    np.testing.assert_allclose(own, whole, rtol=2e-5, atol=2e-5)
    assert np.abs(whole).min() > 0
