"""The Llama of the benchmark on a GPU, in PyTorch, has the loss and the gradients of PCP's."""

import numpy as np
import pytest
import torch
from benchmarks.gpu import llama_torch
from tests.execution import run

import pcp
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.published import llama_config


@pytest.mark.parametrize("key_value_heads", [2, 4])
def test_llama(key_value_heads: int) -> None:
    config = llama_config(2, 4, key_value_heads, 32, 40, 8, 16, tied=key_value_heads == 4)
    params = map_tree(lambda p: p * 5, decoder.initial_parameters(config))
    tokens = np.random.default_rng(1).integers(0, 16, (2, 2, 8), np.int32)
    program = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), params, *tokens)
    value, gradients = run(pcp.value_and_grad(program), params, *tokens)
    theirs = map_tree(lambda p: torch.tensor(p, requires_grad=True), params)
    expected = llama_torch.loss(theirs, *map(torch.from_numpy, tokens), config)
    expected.backward()
    assert float(value) == pytest.approx(expected.item(), rel=1e-5)
    names = flatten(params)[1].names()
    for name, ours, leaf in zip(names, flatten(gradients)[0], flatten(theirs)[0], strict=True):
        right = leaf.grad.numpy()
        assert np.linalg.norm(ours - right) < 1e-4 * np.linalg.norm(right), name
