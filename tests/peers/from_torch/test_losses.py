"""Losses of classes as PyTorch's users write them have the sites of cross entropy, wherever the axis of classes stands."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import pcp  # noqa: E402
from pcp import kernels  # noqa: E402
from pcp.planning.paths.preparation import prepared  # noqa: E402

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
