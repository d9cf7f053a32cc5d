"""GPT-2 124M beside `transformers`: a saved file loaded by name, then logits and every gradient."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import pcp
from pcp.autodiff import value_and_grad
from pcp.importers.weights import map_weights
from pcp.ir.tree import flatten
from pcp.models import decoder
from pcp.models.names import from_transformers
from pcp.models.published import CONFIGURATIONS

CONFIG = CONFIGURATIONS["gpt2"]


def distance(ours: Any, theirs: Any) -> float:
    """The norm of the difference relative to the norm."""
    return float(np.linalg.norm(np.asarray(ours) - theirs) / np.linalg.norm(theirs))


@pytest.mark.long
def test_logits_and_every_gradient_are_equal(tmp_path: Path) -> None:
    torch.manual_seed(11)
    settings = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(settings).train()
    model.save_pretrained(tmp_path, safe_serialization=True)
    parameters = from_transformers(map_weights(tmp_path / "model.safetensors"), CONFIG)
    windows = np.random.default_rng(12).integers(0, CONFIG.vocabulary, (2, 65), np.int32)
    tokens, targets = windows[:, :-1].copy(), windows[:, 1:].copy()
    shape = pcp.spec(tokens.shape, "i32")

    scores = pcp.trace(lambda p, t: decoder.logits(p, t, CONFIG), pcp.specs_of(parameters), shape)
    theirs = model(torch.from_numpy(tokens).long()).logits
    assert distance(pcp.plan(scores, cache=False).run(parameters, tokens), theirs.detach().numpy()) < 1e-5

    loss = torch.nn.functional.cross_entropy(
        theirs.view(-1, CONFIG.vocabulary), torch.from_numpy(targets).long().reshape(-1)
    )
    loss.backward()
    program = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, CONFIG), pcp.specs_of(parameters), shape, shape)
    value, gradients = pcp.plan(value_and_grad(program), cache=False).run(parameters, tokens, targets)
    assert float(value) == pytest.approx(loss.item(), rel=1e-5)
    expected = from_transformers({n: p.grad.numpy() for n, p in model.named_parameters()}, CONFIG)
    leaves, tree = flatten(gradients)
    for name, ours, peer in zip(tree.names(), leaves, flatten(expected)[0], strict=True):
        if name.endswith("qkv.bias"):  # the part of the keys is zero in exact arithmetic
            ours = np.delete(np.asarray(ours), slice(CONFIG.width, 2 * CONFIG.width))
            peer = np.delete(peer, slice(CONFIG.width, 2 * CONFIG.width))
        assert distance(ours, peer) < 1e-5, name
