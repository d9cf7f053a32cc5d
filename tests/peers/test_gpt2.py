"""GPT-2 beside the implementation that everybody uses: logits, loss, every gradient and every generated token."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import pcp
from pcp.importers import load_gpt2
from pcp.inference import Sampling, generate
from pcp.models import gpt2
from pcp.models.gpt2_weights import named_weights, parameters_from

CONFIG = gpt2.GPT2Config(layers=3, heads=4, width=32, context=24, vocabulary=61)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Their model, with random weights of which none is 0 or 1."""
    torch.manual_seed(5)
    configuration = transformers.GPT2Config(
        vocab_size=CONFIG.vocabulary,
        n_positions=CONFIG.context,
        n_embd=CONFIG.width,
        n_layer=CONFIG.layers,
        n_head=CONFIG.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    model = transformers.GPT2LMHeadModel(configuration).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def weights_of(model: Any, dtype: str = "f32") -> gpt2.Parameters:
    """Our parameters from theirs, by name."""
    arrays = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
    return parameters_from(arrays, CONFIG, dtype)


def batch(seed: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    tokens = generator.integers(0, CONFIG.vocabulary, (4, CONFIG.context + 1), np.int32)
    return tokens[:, :-1].copy(), tokens[:, 1:].copy()


def assert_near(name: str, ours: Any, theirs: Any, tolerance: float) -> None:
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape, name
    assert np.linalg.norm(ours - theirs) <= tolerance * np.linalg.norm(theirs), name


# In float32 both round; in float64 nothing but the mathematics is compared.
@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 1e-5), ("f64", 1e-12)])
def test_logits_loss_and_every_gradient(theirs: Any, dtype: str, tolerance: float) -> None:
    model = theirs if dtype == "f32" else copied(theirs).double()
    parameters, (tokens, targets) = weights_of(theirs, dtype), batch(7)
    model.zero_grad()
    logits = model(torch.from_numpy(tokens).long()).logits
    loss = torch.nn.functional.cross_entropy(
        logits.reshape(-1, CONFIG.vocabulary), torch.from_numpy(targets).reshape(-1).long()
    )
    loss.backward()
    forward = pcp.trace(lambda p, t: gpt2.logits(p, t, CONFIG), parameters, tokens)
    assert_near("logits", pcp.plan(forward).run(parameters, tokens), logits.detach(), tolerance)
    program = pcp.trace(lambda p, x, y: gpt2.loss(p, x, y, CONFIG), parameters, tokens, targets)
    value, gradients = pcp.plan(pcp.value_and_grad(program)).run(parameters, tokens, targets)
    assert float(value) == pytest.approx(loss.item(), rel=tolerance)
    ours = named_weights(gradients)
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert set(ours) == set(expected)
    for name, gradient in ours.items():
        assert_near(name, gradient, expected[name], tolerance)


def copied(model: Any) -> Any:
    made = transformers.GPT2LMHeadModel(model.config).eval()
    made.load_state_dict(model.state_dict())
    return made


def test_a_file_that_they_wrote_gives_the_text_that_they_generate(theirs: Any, tmp_path: Path) -> None:
    theirs.save_pretrained(tmp_path)
    parameters = load_gpt2(tmp_path / "model.safetensors", CONFIG)
    prompt = [3, 1, 4, 1, 5]
    expected = theirs.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
        max_new_tokens=CONFIG.context - len(prompt),
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )[0, len(prompt) :].tolist()
    found = list(generate(parameters, CONFIG, prompt, len(expected), Sampling(temperature=0)))
    assert found == expected
    assert len(set(found)) > 1
