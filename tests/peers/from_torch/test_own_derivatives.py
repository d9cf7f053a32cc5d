"""What changes gradients in a module of PyTorch holds in the program, or is refused by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.execution import run
from torch import nn
from torch.utils.checkpoint import checkpoint

import pcp
from pcp import ops
from pcp.importers.checking import CannotCheck, ImportDiffers
from pcp.importers.torch.interpreting import UnsupportedOperations
from pcp.importers.torch.own_derivatives import OwnDerivative, own_derivatives_refused
from pcp.importers.torch.table import TABLE, Row


class Net(nn.Module):
    """A layer, and a function of what it gives."""

    def __init__(self, function: Callable[..., Any], layer: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4) if layer is None else layer
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.layer(x))


def without_gradient(y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        z = y * 2
    return y * z


def with_an_island(y: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        z = y * 2
        with torch.enable_grad():
            z = z + y.cos()
    return y * z


def hooked(register: Callable[[nn.Module], Any], layer: nn.Module | None = None) -> nn.Module:
    net = Net(torch.sin, layer)
    register(net.layer)
    return net


class HalfSine(torch.autograd.Function):
    """Its backward is the derivative of its forward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.sin() * factor

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        return g * ctx.saved_tensors[0].cos() * ctx.factor, None


class StraightThrough(torch.autograd.Function):
    """Its backward is not."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(_: Any, g: torch.Tensor) -> torch.Tensor:
        return g


def frozen(layer: nn.Linear) -> None:
    layer.weight.requires_grad_(False)


PADDED = torch.tensor([[0, 1, 3, 1], [5, 1, 1, 2]])
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
HONOURED: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "padding_idx": (lambda: Net(torch.sin, nn.Embedding(7, 3, padding_idx=1)), PADDED),
    "padding_idx from the end": (lambda: Net(torch.sin, nn.Embedding(7, 3, padding_idx=-6)), PADDED),
    "sparse": (lambda: Net(torch.sin, nn.Embedding(7, 3, sparse=True)), PADDED),
    "scale_grad_by_freq": (lambda: Net(torch.sin, nn.Embedding(7, 3, scale_grad_by_freq=True)), PADDED),
    "both": (lambda: Net(torch.sin, nn.Embedding(7, 3, padding_idx=1, scale_grad_by_freq=True)), PADDED),
    "detach": (lambda: Net(lambda y: y * y.detach()), X),
    "no_grad": (lambda: Net(without_gradient), X),
    "enable_grad in no_grad": (lambda: Net(with_an_island), X),
    "frozen parameter": (lambda: hooked(frozen), X),
    "forward hook": (lambda: hooked(lambda layer: layer.register_forward_hook(lambda *given: given[-1] * 2)), X),
    "forward pre-hook": (lambda: hooked(lambda layer: layer.register_forward_pre_hook(lambda _, given: (given[0].exp(),))), X),
    "spectral norm": (lambda: hooked(nn.utils.parametrizations.spectral_norm), X),
    "older spectral norm": (lambda: hooked(nn.utils.spectral_norm), X),
    "weight norm": (lambda: hooked(nn.utils.parametrizations.weight_norm), X),
    "a backward by hand": (lambda: Net(lambda y: HalfSine.apply(y, 0.5)), X),
    "checkpoint": (lambda: Net(lambda y: checkpoint(torch.sin, y, use_reentrant=False)), X),
}  # fmt: skip


@pytest.mark.parametrize("name", HONOURED)
def test_values_and_gradients_are_those_of_torch(name: str) -> None:
    make, x = HONOURED[name]
    module = make()
    imported = pcp.from_torch(module, x)
    parameters = {key: p for key, p in module.named_parameters() if p.requires_grad}
    weights = {key: array.copy() for key, array in imported.weights.items()}
    held = [{key: array.copy() for key, array in imported.buffers.items()}] if imported.buffers else []
    result = module(x)
    cotangent = torch.randn(result.shape, generator=torch.Generator().manual_seed(2))
    wanted = torch.autograd.grad(result, list(parameters.values()), cotangent)

    def weighted(params: Any, *rest: Any) -> Any:
        found = pcp.call(imported.program, params, *rest[:-1])
        return ((found[1] if isinstance(found, tuple) else found) * rest[-1]).sum()

    arrays = [weights, *held, x.to_dense().numpy(), cotangent.to_dense().numpy()]
    gradients = run(pcp.grad(pcp.trace(weighted, *pcp.ir.tree.map_tree(np.asarray, arrays))), *arrays)
    assert gradients.keys() == parameters.keys()
    for key, gradient in zip(parameters, wanted, strict=True):
        np.testing.assert_allclose(
            gradients[key], gradient.to_dense().numpy(), rtol=1e-4, atol=1e-5, err_msg=key
        )


def tensor_hook(y: torch.Tensor) -> torch.Tensor:
    y.register_hook(lambda g: g * 100)
    return y.sin()


NOT_THE_DERIVATIVE = r"is a torch.autograd.Function, whose backward is not the derivative of its forward.*"
REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "function": (lambda: Net(StraightThrough.apply), rf"StraightThrough {NOT_THE_DERIVATIVE}torch.no_grad\(\)"),
    "reentrant checkpoint": (
        lambda: Net(lambda y: checkpoint(torch.sin, y, use_reentrant=True)),
        rf"CheckpointFunction {NOT_THE_DERIVATIVE}use_reentrant=False",
    ),
    "tensor hook": (lambda: Net(tensor_hook), r"registers the hook .*tensor_hook.<locals>.<lambda> on a tensor's gradient"),
    "backward hook": (
        lambda: hooked(lambda layer: layer.register_full_backward_hook(lambda *_: None)),
        r"(?s)layer: .*<lambda> \(backward_hooks\).*handle.remove\(\)",
    ),
    "backward pre-hook": (
        lambda: hooked(lambda layer: layer.register_full_backward_pre_hook(lambda *_: None)),
        r"layer: .*<lambda> \(backward_pre_hooks\)",
    ),
    "parameter hook": (
        lambda: hooked(lambda layer: layer.weight.register_hook(lambda g: g * 2)),
        r"layer.weight: .*<lambda> \(backward_hooks\)",
    ),
    "hook after accumulation": (
        lambda: hooked(lambda layer: layer.weight.register_post_accumulate_grad_hook(lambda _: None)),
        r"layer.weight: .*<lambda> \(post_accumulate_grad_hooks\)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_graph_does_not_hold_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(OwnDerivative, match=message):
        pcp.from_torch(make(), X)
    register = torch.Tensor.register_hook
    assert register.__module__ == "torch._tensor"  # it is put back


def test_an_embedding_that_writes_into_its_table_is_refused() -> None:
    with pytest.raises(UnsupportedOperations, match="embedding_renorm"):
        pcp.from_torch(nn.Embedding(7, 3, max_norm=1.0), PADDED)


def test_a_check_compares_gradients_that_torch_keeps_sparse() -> None:
    net = Net(torch.sin, nn.Embedding(7, 3, sparse=True))
    pcp.from_torch(net, PADDED, check=True)


def test_a_check_passes_where_everything_is_the_same() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.GELU())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    pcp.from_torch(module, pcp.spec((5, 4), "f32"), check=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    pcp.from_torch(lambda a, b: {"sum": a + b, "above": (a > 0).long()}, X, X + 1, check=True)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (lambda x: ops.sin(x) * 1.1, r"differs from it in 1 of 1 tensors:\n  result: relative error 0.1, tolerance 0.001"),
        (lambda x: ops.stop_gradient(ops.sin(x)), r"in 3 of 3 tensors:\n  gradient of weights.layer.bias: relative error 1,"),
    ],
)  # fmt: skip
def test_a_check_names_what_differs(row: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, "sin.default", Row(row))
    with pytest.raises(ImportDiffers, match=message):
        pcp.from_torch(Net(torch.sin), X, check=True)


def test_random_numbers_cannot_be_checked() -> None:
    with pytest.raises(CannotCheck, match=r"this module draws random ones.*call module.eval\(\)"):
        pcp.from_torch(lambda x: F.dropout(x), X, seed=1, check=True)


def test_a_pytorch_that_does_not_show_its_functions_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The private function through which they are seen is no promise of PyTorch's."""
    monkeypatch.delattr(torch.autograd.function, "_is_setup_context_defined")
    with own_derivatives_refused(torch, nn.Linear(4, 4)):
        assert not hasattr(torch.autograd.function, "_is_setup_context_defined")
    assert "does not show which torch.autograd.Function a module calls" in caplog.text
    assert "import with check=True, which compares gradients" in caplog.text
