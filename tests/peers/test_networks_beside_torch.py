"""A perceptron, a convolutional network and an LSTM beside PyTorch's: outputs and every gradient."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from tests.execution import run

import pcp
from pcp import nn
from pcp.ops.movement import reshape
from pcp.ops.scanning import scan

Arrays = dict[str, Any]


def random_arrays(seed: int, **shapes: tuple[int, ...]) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def assert_equal_gradients(
    ours: Callable[[Arrays, Any], Any], theirs: Callable[[Arrays, Any], Any], arrays: Arrays, x: Any
) -> None:
    """Outputs, and gradients of their weighted sum by every array and by x, agree to 1e-5 of their norm."""
    tensors = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in arrays.items()}
    inputs = torch.from_numpy(x.copy()).requires_grad_()
    expected = theirs(tensors, inputs)
    weights = np.random.default_rng(99).normal(size=expected.shape).astype(np.float32)
    (expected * torch.from_numpy(weights)).sum().backward()

    def weighted(both: Any) -> Any:
        output = ours(both["arrays"], both["x"])
        return (output * weights).sum(), output

    both = {"arrays": arrays, "x": x}
    program = pcp.value_and_grad(pcp.trace(weighted, pcp.specs_of(both)), has_aux=True)
    (_, output), gradients = run(program, both)
    found = {"output": output, "x": gradients["x"]} | gradients["arrays"]
    wanted = {"output": expected.detach(), "x": inputs.grad} | {n: t.grad for n, t in tensors.items()}
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        norm = np.linalg.norm(array.numpy())
        assert norm > 0, name
        assert np.linalg.norm(found[name] - array.numpy()) <= 1e-5 * norm, name


def test_a_perceptron() -> None:
    arrays = random_arrays(1, w1=(6, 8), b1=(8,), scale=(8,), shift=(8,), w2=(8, 3), b2=(3,))
    [x] = random_arrays(2, x=(5, 6)).values()

    def ours(a: Arrays, x: Any) -> Any:
        hidden = nn.layer_norm(nn.gelu(nn.linear(x, a["w1"], a["b1"])), a["scale"], a["shift"])
        return nn.log_softmax(nn.linear(nn.silu(hidden), a["w2"], a["b2"]))

    def theirs(a: Arrays, x: Any) -> Any:
        hidden = F.gelu(F.linear(x, a["w1"].T, a["b1"]), approximate="tanh")
        hidden = F.layer_norm(hidden, (8,), a["scale"], a["shift"])
        return F.log_softmax(F.linear(F.silu(hidden), a["w2"].T, a["b2"]), dim=-1)

    assert_equal_gradients(ours, theirs, arrays, x)


def test_a_convolutional_network() -> None:
    arrays = random_arrays(3, k1=(3, 3, 2, 4), b1=(4,), k2=(3, 3, 2, 6), w=(24, 5), b=(5,))
    [x] = random_arrays(4, x=(3, 9, 9, 2)).values()

    def ours(a: Arrays, x: Any) -> Any:
        x = nn.relu(nn.conv(x, a["k1"], a["b1"], padding="SAME"))
        x = nn.max_pool(x, (3, 3), 2)
        x = nn.relu(nn.conv(x, a["k2"], padding="VALID", groups=2))
        return nn.linear(reshape(x, (3, 24)), a["w"], a["b"])

    def theirs(a: Arrays, x: Any) -> Any:
        x = F.relu(F.conv2d(x.permute(0, 3, 1, 2), a["k1"].permute(3, 2, 0, 1), a["b1"], padding=1))
        x = F.max_pool2d(x, 3, 2)
        x = F.relu(F.conv2d(x, a["k2"].permute(3, 2, 0, 1), groups=2))
        return F.linear(x.permute(0, 2, 3, 1).reshape(3, 24), a["w"].T, a["b"])

    assert_equal_gradients(ours, theirs, arrays, x)


def test_an_lstm_by_scan() -> None:
    length, batch, inputs, width = 7, 3, 4, 5
    arrays = random_arrays(
        5, w=(inputs, 4 * width), u=(width, 4 * width), b=(4 * width,), h=(batch, width), c=(batch, width)
    )
    [x] = random_arrays(6, x=(length, batch, inputs)).values()

    def ours(a: Arrays, x: Any) -> Any:
        parameters = {"input": a["w"], "hidden": a["u"], "bias": a["b"]}

        def body(state: Any, row: Any) -> Any:
            state = nn.lstm_cell(state, row, parameters)
            return state, state[0]

        (_, cell), hidden = scan(body, (a["h"], a["c"]), x)
        return hidden * cell

    def theirs(a: Arrays, x: Any) -> Any:
        flat = [a["w"].T, a["u"].T, a["b"], torch.zeros(4 * width)]
        state = (a["h"][None], a["c"][None])
        hidden, _, cell = torch.lstm(x, state, flat, True, 1, 0.0, True, False, False)
        return hidden * cell[0]

    assert_equal_gradients(ours, theirs, arrays, x)
