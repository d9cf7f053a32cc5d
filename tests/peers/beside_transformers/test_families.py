"""Tiny models of the families of transformers: the loss and every gradient are PyTorch's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.execution import run
from tests.peers.beside_transformers.families import FAMILIES, made
from tests.peers.from_torch.models import gpt2
from tests.training.loss_files import save_arrays

import pcp
from pcp.training.recipes.loss_program import read_loss

# Padding in embeddings; a torch.autograd.Function; experts; an encoder and a decoder with features.
QUICK_ONES = ("opt", "bloom", "mixtral", "whisper")


@pytest.mark.parametrize(
    "family",
    [
        *QUICK_ONES,
        *(pytest.param(name, marks=pytest.mark.long) for name in FAMILIES if name not in QUICK_ONES),
    ],
)
def test_loss_and_every_gradient_are_those_of_torch(family: str) -> None:
    loss, inputs = made(family)
    imported = pcp.from_torch(loss, *inputs)
    expected = loss(*inputs)
    parameters = {name: p for name, p in loss.named_parameters() if name in imported.weights}
    wanted = torch.autograd.grad(expected, list(parameters.values()), allow_unused=True)
    held = (imported.buffers,) if imported.buffers else ()
    value, found = run(
        pcp.value_and_grad(imported.program), imported.weights, *held, *(x.numpy() for x in inputs)
    )
    assert float(value) == pytest.approx(expected.item(), rel=1e-5)
    assert len(found) == len(wanted) > 5
    for name, gradient in zip(parameters, wanted, strict=True):
        theirs = 0 if gradient is None else gradient.numpy()
        size = np.linalg.norm(theirs)
        assert np.linalg.norm(found[name] - theirs) <= 1e-3 * max(size, 1e-3), name


def test_a_text_trains_gpt2_on_the_next_token(tmp_path: Path) -> None:
    """GPT2LMHeadModel moves its labels itself; a batch of a text has the next tokens as its targets."""
    torch.manual_seed(0)
    model = gpt2().eval()
    tokens = pcp.spec((2, 9), "i64")
    imported = pcp.from_torch(
        model, keywords={"input_ids": tokens, "labels": tokens}, output=lambda output: output["loss"]
    )
    imported.program.save(tmp_path / "loss.pcp")
    weights = save_arrays(tmp_path / "weights.safetensors", {**imported.weights, **imported.buffers})
    loss = read_loss(tmp_path / "loss.pcp", weights, tokens=True)
    text = np.random.default_rng(0).integers(0, 31, (2, 10)).astype(np.int32)
    found: Any = run(loss.program, loss.parameters, text[:, :-1], text[:, 1:])
    x = torch.from_numpy(text[:, :-1].astype(np.int64))
    with torch.no_grad():
        logits = model(x).logits
    expected = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten())
    assert float(found) == pytest.approx(expected.item(), rel=1e-5)
