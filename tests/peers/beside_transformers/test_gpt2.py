"""GPT-2 beside `transformers`: logits, loss, every gradient, and twenty steps of training, with the same weights."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests.execution import run

import pcp
from pcp.importers.weights import map_weights
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.names import from_transformers, to_transformers
from pcp.models.published import gpt2_config
from pcp.optimizers import WarmupCosine, adamw
from pcp.training.step import training_step

CONFIG = gpt2_config(layers=2, heads=4, width=32, context=16, vocabulary=29)
RATE, FINAL, WARMUP, STEPS, BETAS, DECAY, CLIP = 3e-3, 3e-4, 4, 20, (0.9, 0.99), 0.1, 1.0


def peer(seed: int) -> Any:
    """A GPT-2 of PyTorch in which no parameter is zero, so that no term of a gradient can hide."""
    torch.manual_seed(seed)
    settings = transformers.GPT2Config(
        vocab_size=CONFIG.vocabulary,
        n_positions=CONFIG.context,
        n_embd=CONFIG.width,
        n_layer=CONFIG.layers,
        n_head=CONFIG.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(settings).train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def weights_of(model: Any) -> Any:
    """Copies of the model's parameters, nested as ours."""
    return from_transformers({n: p.detach().numpy().copy() for n, p in model.state_dict().items()}, CONFIG)


def random_batch(seed: int) -> tuple[Any, Any]:
    windows = np.random.default_rng(seed).integers(0, CONFIG.vocabulary, (4, CONFIG.context + 1), np.int32)
    return windows[:, :-1].copy(), windows[:, 1:].copy()


def loss_of(model: Any, batch: tuple[Any, Any]) -> Any:
    tokens, targets = (torch.from_numpy(part).long() for part in batch)
    logits = model(tokens).logits
    return torch.nn.functional.cross_entropy(logits.view(-1, CONFIG.vocabulary), targets.reshape(-1))


def loss_program(parameters: Any) -> pcp.Program:
    tokens = pcp.spec((4, CONFIG.context), "i32")
    return pcp.trace(lambda p, x, y: decoder.loss(p, x, y, CONFIG), pcp.specs_of(parameters), tokens, tokens)


def distance(ours: Any, theirs: Any) -> float:
    """The norm of the difference relative to the norm."""
    return float(np.linalg.norm(np.asarray(ours) - theirs) / np.linalg.norm(theirs))


def test_logits_are_equal() -> None:
    model, (tokens, _) = peer(1), random_batch(1)
    parameters = weights_of(model)
    program = pcp.trace(
        lambda p, t: decoder.logits(p, t, CONFIG), pcp.specs_of(parameters), pcp.specs_of(tokens)
    )
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens).long()).logits.numpy()
    assert distance(run(program, parameters, tokens), expected) < 1e-5


def test_loss_and_every_gradient_are_equal() -> None:
    model, batch = peer(2), random_batch(2)
    parameters = weights_of(model)
    value, gradients = run(pcp.value_and_grad(loss_program(parameters)), parameters, *batch)
    expected = loss_of(model, batch)
    expected.backward()
    assert float(value) == pytest.approx(expected.item(), rel=1e-5)
    theirs = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
    ours = to_transformers(gradients, CONFIG)
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        if name.endswith("attn.c_attn.bias"):
            # In exact arithmetic the gradient of a key's bias is zero: softmax does not see a shift of all scores.
            key = slice(CONFIG.width, 2 * CONFIG.width)
            assert max(np.abs(gradient[key]).max(), np.abs(theirs[name][key]).max()) < 1e-7
            gradient, theirs[name] = (np.delete(g, key) for g in (gradient, theirs[name]))
        assert distance(gradient, theirs[name]) < 1e-5, name


def test_a_saved_model_is_loaded(tmp_path: Path) -> None:
    model = peer(3)
    model.save_pretrained(tmp_path)
    ours, theirs = from_transformers(map_weights(tmp_path / "model.safetensors"), CONFIG), weights_of(model)
    for a, b in zip(flatten(ours)[0], flatten(theirs)[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_twenty_steps_of_training_have_the_same_losses() -> None:
    model = peer(4)
    parameters = weights_of(model)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": DECAY},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=BETAS, eps=1e-8)
    ours = adamw(WarmupCosine(RATE, WARMUP, STEPS, FINAL), BETAS, weight_decay=DECAY)
    step = training_step(loss_program(parameters), ours, clip_norm=CLIP)
    plan = pcp.plan(step, cache=False)
    state = step.initial_state(parameters)
    losses, expected = [], []
    for number in range(STEPS):
        batch = random_batch(40 + number % 3)  # seen again and again, so that the loss falls
        state, metrics = plan.run(state, batch)
        losses.append(float(metrics["loss"]))
        progress = min(max((number - WARMUP) / (STEPS - WARMUP), 0.0), 1.0)
        fall = FINAL + (RATE - FINAL) * 0.5 * (1 + np.cos(np.pi * progress))
        for group in optimizer.param_groups:
            group["lr"] = min((number + 1) * RATE / (WARMUP + 1), fall)
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        expected.append(loss.item())
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert losses[-1] < 0.8 * losses[0]
    theirs = weights_of(model)
    keys = slice(CONFIG.width, 2 * CONFIG.width)
    for found in (trained := map_tree(lambda p: np.array(p), state["params"]), theirs):
        for block in found["blocks"]:
            block["attn"]["qkv"]["bias"][keys] = 0  # Adam turns the noise of a zero gradient into whole steps
    for name, a, b in zip(flatten(theirs)[1].names(), flatten(trained)[0], flatten(theirs)[0], strict=True):
        assert distance(a, b) < 1e-3, name
