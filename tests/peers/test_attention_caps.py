"""Caps of scores as modules of PyTorch have them, Gemma 2's among them, are an attribute of attention."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.peers.test_attention_windows import Form

import pcp
from pcp.rewrite.raising import raised

CAP, SHAPE = 3.0, (2, 3, 12, 8)


def as_in_gemma(q: Any, k: Any, v: Any) -> Any:
    """Divided, bounded and multiplied one after the other, then a mask that is added."""
    weights = torch.matmul(q, k.transpose(2, 3)) * 8**-0.5
    weights = weights / CAP
    weights = torch.tanh(weights)
    weights = weights * CAP
    hidden = torch.full((12, 12), float("-inf")).triu(1)[None, None]
    weights = torch.nn.functional.softmax(weights + hidden, dim=-1, dtype=torch.float32)
    return torch.matmul(weights, v)


def filled(q: Any, k: Any, v: Any) -> Any:
    scores = CAP * torch.tanh((q @ k.transpose(-1, -2)) * 8**-0.5 / CAP)
    later = torch.ones(12, 12, dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(later, float("-inf")), -1) @ v


@pytest.mark.parametrize("function", [as_in_gemma, filled])
def test_caps_of_torch(function: Callable[..., Any]) -> None:
    operands = [torch.randn(SHAPE) for _ in range(3)]
    program = raised(pcp.from_torch(Form(function), *operands).program)
    (line,) = [line for line in program.text.splitlines() if '"pcp.attention"' in line]
    known = dict(re.findall(r"(\w+) = ([^,:}]*)", line))
    assert float(known["cap"]) == pytest.approx(CAP)
    assert float(known["scale"]) == pytest.approx(8**-0.5)
    assert "causal" in known
    assert "bias" not in known
    found = pcp.plan(program, cache=False).run({}, *(x.numpy() for x in operands))
    np.testing.assert_allclose(np.asarray(found), function(*operands).numpy(), rtol=1e-4, atol=1e-5)
