"""Whole models of PyTorch, imported: losses, every gradient, changed buffers and training beside PyTorch's own."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.execution import QUICK, run
from tests.peers.from_torch.models import MODELS, WithLoss, convolutional, gpt2

import pcp


def numpy_of(tensors: Any) -> list[Any]:
    return [t.detach().numpy().copy() for t in tensors]


def gradients_of(module: torch.nn.Module) -> dict[str, Any]:
    return {name: p.grad.numpy() for name, p in module.named_parameters() if p.grad is not None}


def as_float64(inputs: Any) -> list[torch.Tensor]:
    return [x.double() if x.is_floating_point() else x for x in inputs]


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_every_gradient_are_those_of_torch(name: str) -> None:
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    module, inputs = module.double().eval(), as_float64(inputs)
    imported = pcp.from_torch(module, *inputs)
    expected = module(*inputs)
    expected.backward()
    held = (imported.buffers,) if imported.buffers else ()
    loss, gradients = run(pcp.value_and_grad(imported.program), imported.weights, *held, *numpy_of(inputs))
    assert float(loss) == pytest.approx(expected.item(), rel=1e-10 if name != "GPT-2" else 1e-6)
    wanted = gradients_of(module)
    assert gradients.keys() == wanted.keys()
    # transformers computes the loss in float32, whatever the model is in.
    tolerance = 1e-9 if name != "GPT-2" else 1e-5
    for key, gradient in wanted.items():
        assert np.linalg.norm(gradients[key] - gradient) <= tolerance * (np.linalg.norm(gradient) + 1e-3), key


def test_batch_norm_in_training_changes_its_buffers() -> None:
    torch.manual_seed(0)
    module, inputs = convolutional()
    module, inputs = module.double(), as_float64(inputs)
    imported = pcp.from_torch(module, *inputs)
    before = {name: array.copy() for name, array in imported.buffers.items()}
    found, loss = run(imported.program, imported.weights, before, *numpy_of(inputs))
    assert float(loss) == pytest.approx(module(*inputs).item(), rel=1e-10)
    expected = {name: buffer.numpy() for name, buffer in module.named_buffers()}
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert np.allclose(found[name], array, 1e-10), name
        assert not np.array_equal(before[name], array), name


def trained_by_torch(module: torch.nn.Module, batches: list[Any], rate: float) -> list[float]:
    optimizer = torch.optim.AdamW(module.parameters(), rate, (0.9, 0.999), 1e-8, 0.01)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        loss = module(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained_by_pcp(imported: pcp.Imported, batches: list[Any], rate: float) -> tuple[list[float], Any]:
    optimizer = pcp.optimizers.adamw(
        rate, betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.01, decays=lambda *_: True
    )
    step = pcp.training_step(imported.program, optimizer)
    plan = pcp.plan(step, cache=False, options=QUICK)
    state = step.initial_state(imported.weights, imported.buffers or None)
    losses = []
    for batch in batches:
        state, metrics = plan.run(state, tuple(numpy_of(batch)))
        losses.append(float(metrics["loss"]))
    return losses, state


def test_a_network_with_batch_norm_trains_as_in_torch() -> None:
    torch.manual_seed(1)
    module, (x, target) = convolutional()
    batches = [(torch.randn(x.shape), torch.randint(0, 4, target.shape)) for _ in range(8)]
    imported = pcp.from_torch(module, x, target)
    ours, state = trained_by_pcp(imported, batches, 1e-2)
    theirs = trained_by_torch(module, batches, 1e-2)
    assert np.allclose(ours, theirs, 1e-3)
    for name, buffer in module.named_buffers():
        assert np.allclose(state["buffers"][name], buffer.numpy(), 1e-2, 1e-3), name


def test_frozen_buffers_and_parameters_are_carried_unchanged() -> None:
    torch.manual_seed(2)
    module, (x, target) = convolutional()
    module.eval()
    module.net[0].weight.requires_grad_(False)
    batches = [(torch.randn(x.shape), torch.randint(0, 4, target.shape)) for _ in range(3)]
    imported = pcp.from_torch(module, x, target)
    assert "net.0.weight" in imported.buffers
    assert "net.0.weight" not in imported.weights
    ours, state = trained_by_pcp(imported, batches, 1e-2)
    assert np.allclose(ours, trained_by_torch(module, batches, 1e-2), 1e-3)
    assert np.array_equal(state["buffers"]["net.0.weight"], module.net[0].weight.numpy())


def test_gpt2_of_transformers_trains_as_in_torch() -> None:
    """100 steps of AdamW on tokens with something to learn: a walk with small steps around the vocabulary."""
    torch.manual_seed(3)
    model = gpt2(layers=4, width=128, vocabulary=61)
    model.train()
    walks = torch.randint(-2, 3, (100, 4, 24)).cumsum(-1) % 61
    imported = pcp.from_torch(
        model, keywords={"input_ids": walks[0], "labels": walks[0]}, output=lambda output: output["loss"]
    )
    assert "transformer.h.0.attn.c_attn.weight" in imported.weights
    assert "lm_head.weight" not in imported.weights  # it is tied to the embedding
    before = model.transformer.wte.weight.detach().clone()
    ours, _ = trained_by_pcp(imported, [(tokens, tokens) for tokens in walks], 3e-4)
    assert torch.equal(model.transformer.wte.weight, before)

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=tokens, labels=tokens).loss

    theirs = trained_by_torch(Loss(), [(tokens,) for tokens in walks], 3e-4)
    assert theirs[-1] < 0.7 * theirs[0]
    assert np.abs(np.asarray(ours) - theirs).max() < 1e-3


def test_dropout_trains_with_a_seed() -> None:
    torch.manual_seed(4)
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 64), torch.nn.Dropout(0.25), torch.nn.Linear(64, 1, bias=False)
    )
    module = WithLoss(net, F.mse_loss)
    imported = pcp.from_torch(module, pcp.spec((4, 8), "f32"), pcp.spec((4, 1), "f32"), seed=5)
    assert set(imported.buffers) == {"random_key"}
    x, target = np.ones((4, 8), np.float32), np.zeros((4, 1), np.float32)
    first, loss = run(imported.program, imported.weights, imported.buffers, x, target)
    again, same = run(imported.program, imported.weights, imported.buffers, x, target)
    second, other = run(imported.program, imported.weights, first, x, target)
    assert loss == same
    assert loss != other
    assert np.array_equal(first["random_key"], again["random_key"])
    assert not np.array_equal(first["random_key"], second["random_key"])
