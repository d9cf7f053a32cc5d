"""Tensors of PyTorch in calls: at once, through `pcp.jit`, and PyTorch's functions on Tensors of PCP."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp.refusals import TensorHasNoValue

torch: Any = pytest.importorskip("torch")

KINDS = [
    lambda: torch.randn(3, 4),
    lambda: torch.randn(3, 4, requires_grad=True),
    lambda: torch.randn(3, 4).to(torch.bfloat16),
    lambda: torch.randn(3, 4, requires_grad=True).to(torch.bfloat16),
    lambda: torch.randn(4, 3).T,
    lambda: torch.randint(0, 9, (3, 4)),
]


def values(tensor: Any) -> Any:
    return tensor.detach().to(torch.float64).numpy()


@pytest.mark.parametrize("make", KINDS)
def test_tensors_of_torch_are_arguments_as_they_are(make: Any) -> None:
    x = make()
    dtype = str(x.dtype).removeprefix("torch.")
    expected = values(x + x)
    double = pcp.trace(lambda x: x + x, x)
    for found in (
        pcp.add(x, x),
        pcp.array(x) + x,
        pcp.jit(lambda x: x + x)(x),
        double(x),
        pcp.plan(double, "arena:cpu").run(x),
        pcp.jit(lambda: pcp.add(x, x))(),
    ):
        assert np.asarray(found).dtype.name == dtype
        np.testing.assert_allclose(np.asarray(found).astype(np.float64), expected, rtol=1e-2)


def test_gradients_of_tensors_of_torch() -> None:
    w, x = torch.randn(4, requires_grad=True), torch.randn(3, 4)
    (torch.tanh(x @ w) ** 2).sum().backward()
    found = pcp.grad(lambda w, x: (pcp.tanh(x @ w) ** 2).sum())(w, x)
    np.testing.assert_allclose(found, w.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_functions_of_torch_compute_with_arrays(dtype: str) -> None:
    x = pcp.array(np.random.default_rng().normal(size=(2, 3)), dtype)
    found = torch.exp(x)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(values(found), np.exp(np.asarray(x).astype(np.float64)), rtol=1e-2)
    assert isinstance(torch.ones(3) + x, torch.Tensor)
    assert isinstance(x + torch.ones(3), pcp.Array)
    np.testing.assert_array_equal(torch.from_dlpack(pcp.array([1, 2])).numpy(), [1, 2])


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda x: torch.exp(x), r"torch\.exp was given a Tensor.*write pcp\.exp\(\.\.\.\)"),
        (lambda x: torch.cat([x, x]), r"write pcp\.concatenate\(\.\.\.\)"),
        (lambda x: torch.nn.functional.gelu(x), r"write pcp\.nn\.gelu\(\.\.\.\)"),
        (lambda x: torch.ones(3) + x, r"write pcp\.add\(\.\.\.\)"),
        (lambda x: torch.fft.fft2(x), r"compute with pcp's operations"),
    ],
)
def test_functions_of_torch_on_a_traced_tensor_say_what_to_write(use: Any, advice: str) -> None:
    with pytest.raises(TensorHasNoValue, match=advice):
        pcp.trace(use, pcp.spec((2, 3), "f32"))
