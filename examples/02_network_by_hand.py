"""A small network trained by hand: one plan for each layer, forward and backward, and an update in NumPy.

    python examples/02_network_by_hand.py [--steps 300]

`pcp.training_step` makes all of this one program; here every step of the chain rule is visible.
"""

import argparse
from typing import Any

import numpy as np

import pcp

Array = np.ndarray[Any, Any]


def linear(x: pcp.Tensor, w: pcp.Tensor, b: pcp.Tensor) -> pcp.Tensor:
    """x w + b: x of shape (batch, inputs), w of shape (inputs, outputs)."""
    return x @ w + b


def differentiable(function: Any, *shapes: tuple[int, ...]) -> pcp.AutoDiffPlan:
    """A plan that runs forward and backward, for float32 arguments of these shapes."""
    return pcp.AutoDiffPlan(pcp.plan(pcp.trace(function, *(pcp.spec(shape, "f32") for shape in shapes))))


def train(steps: int, learning_rate: float = 0.1) -> list[float]:
    """Learn the exclusive or of two inputs; returns the loss of every step."""
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    target = np.array([[0], [1], [1], [0]], np.float32)
    rng = np.random.default_rng(3)
    w1, b1 = rng.standard_normal((2, 8)).astype(np.float32), np.zeros(8, np.float32)
    w2, b2 = rng.standard_normal((8, 1)).astype(np.float32), np.zeros(1, np.float32)

    hidden = differentiable(linear, (4, 2), (2, 8), (8,))
    activation = differentiable(pcp.tanh, (4, 8))
    output = differentiable(linear, (4, 8), (8, 1), (1,))
    loss = differentiable(pcp.nn.mse, (4, 1), (4, 1))

    losses = []
    for _ in range(steps):
        y = output.forward(activation.forward(hidden.forward(x, w1, b1)), w2, b2)
        losses.append(float(loss.forward(y, target)))

        g, _ = loss.backward()  # of the loss, which is one number: no cotangent is needed
        g, gw2, gb2 = output.backward(g)  # of its input, and of both parameters
        (g,) = activation.backward(g)
        _, gw1, gb1 = hidden.backward(g)

        w1, b1 = w1 - learning_rate * np.asarray(gw1), b1 - learning_rate * np.asarray(gb1)
        w2, b2 = w2 - learning_rate * np.asarray(gw2), b2 - learning_rate * np.asarray(gb2)
    return losses


def main() -> None:
    """Train, and see what happens when backward comes first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    losses = train(parser.parse_args().steps)
    for step in range(0, len(losses), max(1, len(losses) // 10)):
        print(f"step {step:4}  loss {losses[step]:.5f}")
    print(f"last       loss {losses[-1]:.5f}")
    try:
        differentiable(pcp.tanh, (2,)).backward(np.ones(2, np.float32))
    except pcp.PCPError as error:
        print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
