"""Losses of classes as PyTorch's users write them have the sites of cross entropy, wherever the axis of classes stands."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from tests.execution import exactly  # noqa: E402

import pcp  # noqa: E402
from pcp import kernels  # noqa: E402
from pcp.planning.paths.preparation import prepared  # noqa: E402
from pcp.rewrite.canonical import canonical  # noqa: E402
from pcp.rewrite.memory.linear_losses import without_logits  # noqa: E402

CLASSES = 7
WEIGHTS = torch.rand(CLASSES)
LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "tokens in rows": lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten()),
    "classes second": lambda x, y: F.cross_entropy(x.transpose(1, 2), y),
    "some left out": lambda x, y: F.cross_entropy(x.transpose(1, 2), torch.where(y == 0, -100, y)),
    "weights of classes": lambda x, y: F.cross_entropy(x.transpose(1, 2), y, WEIGHTS),
    "one for each": lambda x, y: F.cross_entropy(x.transpose(1, 2), y, reduction="none").sum(),
    "of an image": lambda x, y: F.cross_entropy(x.transpose(1, 2)[..., None], y[..., None]),
    "logarithm of a sum": lambda x, y: (x.logsumexp(-1) - x.gather(-1, y[..., None])[..., 0]).mean(),
    "all but one are 0": lambda x, y: -(F.one_hot(y, CLASSES).float() * F.log_softmax(x, -1)).sum(-1).mean(),
    "by hand": lambda x, y: F.nll_loss(torch.log_softmax(x, -1).transpose(1, 2), y),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_classes_has_its_sites(name: str) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(4, CLASSES, bias=False)

        def forward(self, x: Any, y: Any) -> Any:
            return LOSSES[name](self.head(x), y)

    imported = pcp.from_torch(Model(), np.zeros((3, 5, 4), np.float32), np.zeros((3, 5), np.int64))
    step = pcp.training_step(imported.program, pcp.optimizers.sgd(0.1))
    families = [site.family for site in kernels.sites_of(prepared(step), "cpu", bare=True)]
    assert families.count("cross_entropy") == 1
    assert families.count("cross_entropy_gradient") == 1


LARGE: dict[str, Callable[[Any, Any], Any]] = {
    "smooth": lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    "smooth, some left out": lambda x, y: F.cross_entropy(x, y, ignore_index=3, label_smoothing=0.1),
    "smooth, weighted": lambda x, y: F.cross_entropy(
        x, y, torch.linspace(0.5, 2.0, 96, dtype=x.dtype), label_smoothing=0.1
    ),
    "by hand": lambda x, y: (
        x.logsumexp(-1) - 0.9 * x.gather(-1, y[:, None])[:, 0] - 0.1 * x.mean(-1)
    ).mean(),
    "normalisers held down": lambda x, y: F.cross_entropy(x, y) + 1e-2 * (x.logsumexp(-1) ** 2).mean(),
}


@pytest.mark.parametrize("name", LARGE)
def test_gradients_without_logits_are_those_of_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcp.rewrite.memory.linear_losses.ROWS", 32)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(8, 96, dtype=torch.float64)

        def forward(self, x: Any, y: Any) -> Any:
            return LARGE[name](self.head(x), y)

    model, rng = Model(), np.random.default_rng()
    x, y = rng.normal(size=(128, 8)), rng.integers(0, 96, 128)
    program = pcp.value_and_grad(canonical(pcp.from_torch(model, x, y).program))
    blocked = without_logits(program, 8 * 32 * 96)
    assert "tensor<128x96x" not in blocked.text.partition("func.func private")[0]
    loss = model(torch.tensor(x), torch.tensor(y))
    loss.backward()
    weights = {key: each.detach().numpy() for key, each in model.named_parameters()}
    found, gradients = exactly(blocked, weights, x, y)
    np.testing.assert_allclose(found, loss.item(), rtol=1e-12)
    for key, each in model.named_parameters():
        np.testing.assert_allclose(gradients[key], each.grad.numpy(), rtol=1e-9, atol=1e-14)


def test_a_loss_with_weights_of_samples_is_planned_on_weights_like_those_of_the_example() -> None:
    """Normal numbers add up to nothing now and then, and what is divided by that is nothing but roundings."""

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(8, 4))

        def forward(self, x: Any, lengths: Any, weights: Any) -> Any:
            each = ((x @ self.w) ** 2).mean(-1) / lengths
            return (each * weights).sum() / weights.sum().clamp(min=1e-6)

    x, lengths, weights = torch.randn(16, 8), torch.randint(1, 9, (16,)), torch.rand(16)
    for examples in ((x, lengths, weights), (x, lengths.numpy(), weights.numpy())):
        step = pcp.training_step(pcp.from_torch(Loss(), *examples), pcp.optimizers.sgd(1e-2))
        assert {"batch.2"} == {name for name in step.begins if name.startswith("batch")}
        assert step.begins["batch.2"].mean > step.begins["batch.2"].deviation
    without = pcp.from_torch(Loss(), pcp.spec((16, 8), "f32"), lengths, torch.zeros(16))
    assert list(without.program.begins) == ["weights.w"]
    assert [entry.name for entry in without.program.arguments][1:] == ["x", "lengths", "weights_"]
