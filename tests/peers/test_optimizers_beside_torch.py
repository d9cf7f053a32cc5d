"""Optimizers beside those of PyTorch: five steps in float64 with clipping, the gradients being the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.execution import run

import pcp
from pcp.optimizers import Optimizer, adamw, clip_by_global_norm, muon, nesterov, sgd

STEPS, LIMIT = 5, 2.0
SHAPES = {"w": (4, 3), "b": (3,), "kernel": (2, 2, 3)}


def random_arrays(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


def adamw_of_torch(parameters: dict[str, Any]) -> Any:
    groups = [
        {"params": [p for p in parameters.values() if p.ndim >= 2], "weight_decay": 0.3},
        {"params": [p for p in parameters.values() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.05, betas=(0.8, 0.95), eps=1e-7)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (adamw(0.05, (0.8, 0.95), epsilon=1e-7, weight_decay=0.3), adamw_of_torch),
        (sgd(0.1), lambda p: torch.optim.SGD(p.values(), lr=0.1)),
        (sgd(0.1, 0.7), lambda p: torch.optim.SGD(p.values(), lr=0.1, momentum=0.7)),
        (nesterov(0.1, 0.7), lambda p: torch.optim.SGD(p.values(), lr=0.1, momentum=0.7, nesterov=True)),
    ],
    ids=["adamw", "sgd", "momentum", "nesterov"],
)
def test_five_clipped_steps(ours: Optimizer, theirs: Callable[[dict[str, Any]], Any]) -> None:
    def step(gradients: Any, state: Any, parameters: Any, number: Any) -> Any:
        clipped, norm = clip_by_global_norm(gradients, LIMIT)
        new, state, _ = ours.update(clipped, state, parameters, number)
        return new, state, norm

    parameters = random_arrays(1)
    state = ours.initial_state(parameters)
    specs = [pcp.specs_of(tree) for tree in (parameters, state, parameters)]
    program = pcp.trace(step, *specs, pcp.spec((), "i32"))
    tensors = {name: torch.from_numpy(p.copy()).requires_grad_() for name, p in parameters.items()}
    optimizer = theirs(tensors)
    clipped = 0
    for number in range(STEPS):
        # Some gradients are longer than the limit, some are not.
        gradients = {name: g * (0.1, 2.0)[number % 2] for name, g in random_arrays(10 + number).items()}
        parameters, state, norm = run(program, gradients, state, parameters, np.int32(number))
        for name, tensor in tensors.items():
            tensor.grad = torch.from_numpy(gradients[name].copy())
        expected = torch.nn.utils.clip_grad_norm_(tensors.values(), LIMIT)
        optimizer.step()
        clipped += float(norm) > LIMIT
        assert float(norm) == pytest.approx(expected.item(), rel=1e-12)
        for name, tensor in tensors.items():
            np.testing.assert_allclose(parameters[name], tensor.detach().numpy(), rtol=1e-11, atol=1e-13)
    assert 0 < clipped < STEPS


@pytest.mark.parametrize("shape", [(16, 40), (40, 16)])
def test_muon_steps_matrices_as_torch_does(shape: tuple[int, int]) -> None:
    """PyTorch orthogonalises in bfloat16, so its steps are as near as that lets them be."""
    rng = np.random.default_rng(shape[0])
    parameters = {"w": rng.normal(size=shape).astype(np.float32)}
    ours = muon(adamw(0.05, weight_decay=0.3), momentum=0.9, weight_decay=0.3)
    state = ours.initial_state(parameters)
    specs = [pcp.specs_of(tree) for tree in (parameters, state, parameters)]
    program = pcp.trace(ours.update, *specs, pcp.spec((), "i32"))
    tensor = torch.from_numpy(parameters["w"].copy()).requires_grad_()
    theirs = torch.optim.Muon(
        [tensor], lr=0.05, weight_decay=0.3, momentum=0.9, adjust_lr_fn="match_rms_adamw"
    )
    begun = parameters["w"]
    for number in range(STEPS):
        gradient = rng.normal(size=shape).astype(np.float32)
        parameters, state, _ = run(program, {"w": gradient}, state, parameters, np.int32(number))
        tensor.grad = torch.from_numpy(gradient)
        theirs.step()
    moved = np.linalg.norm(parameters["w"] - begun)
    assert np.linalg.norm(parameters["w"] - tensor.detach().numpy()) < 1e-2 * moved
