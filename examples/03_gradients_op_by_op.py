"""Gradients operation by operation: each against finite differences, with its time, and a check that nothing leaks.

python examples/03_gradients_op_by_op.py [--repeats 100]
"""

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import pcp

SHAPE = (3, 4)
INDICES = np.array([2, 0, 2])

OPERATIONS: dict[str, tuple[Callable[..., pcp.Tensor], tuple[tuple[int, ...], ...]]] = {
    "add": (lambda a, b: a + b, (SHAPE, SHAPE)),
    "subtract": (lambda a, b: a - b, (SHAPE, SHAPE)),
    "multiply": (lambda a, b: a * b, (SHAPE, SHAPE)),
    "divide": (lambda a, b: a / (b * b + 1.0), (SHAPE, SHAPE)),
    "matmul": (lambda a, b: a @ b, ((3, 4), (4, 2))),
    "relu": (pcp.nn.relu, (SHAPE,)),
    "softmax": (pcp.softmax, (SHAPE,)),
    "transpose": (lambda a: pcp.exp(a.T), (SHAPE,)),
    "embedding lookup": (lambda table: table[INDICES], (SHAPE,)),
    "layer norm": (lambda x, scale: pcp.nn.layer_norm(x, scale), (SHAPE, (4,))),
    "cumulative sum": (lambda x: pcp.cumsum(x, 0), (SHAPE,)),
    "loop": (lambda x: pcp.fori_loop(0, 5, lambda _, carry: pcp.sin(carry) * x, x), (SHAPE,)),
}


def numerical_gradient(
    run: Callable[..., Any], arguments: list[Any], cotangent: Any, epsilon: float = 1e-6
) -> list[Any]:
    """Central differences of sum(cotangent * result), for every element of every argument."""
    gradients = []
    for argument in arguments:
        gradient = np.zeros_like(argument)
        for place in np.ndindex(argument.shape):
            kept = argument[place]
            values = []
            for moved in (kept + epsilon, kept - epsilon):
                argument[place] = moved
                values.append(float(np.vdot(cotangent, np.asarray(run(*arguments)))))
            argument[place] = kept
            gradient[place] = (values[0] - values[1]) / (2 * epsilon)
        gradients.append(gradient)
    return gradients


def check(name: str, repeats: int) -> float:
    """Compare one operation's gradients with differences, and print its times; returns the largest error."""
    function, shapes = OPERATIONS[name]
    rng = np.random.default_rng(7)
    arguments = [rng.standard_normal(shape) for shape in shapes]
    plan = pcp.AutoDiffPlan(pcp.plan(pcp.trace(function, *(pcp.spec(shape, "f64") for shape in shapes))))
    cotangent = rng.standard_normal(plan.plan.outputs[0].spec.shape)
    plan.forward(*arguments)
    found = plan.backward(cotangent)
    expected = numerical_gradient(plan.plan.run, arguments, cotangent)
    error = max(float(np.abs(np.asarray(f) - e).max()) for f, e in zip(found, expected, strict=True))

    began = time.perf_counter()
    for _ in range(repeats):
        jax.block_until_ready(plan.forward(*arguments))
    middle = time.perf_counter()
    for _ in range(repeats):
        jax.block_until_ready(plan.backward(cotangent))
    forward, backward = (middle - began) / repeats, (time.perf_counter() - middle) / repeats
    print(f"{name:18} error {error:.1e}  forward {forward * 1e6:7.1f} us  backward {backward * 1e6:7.1f} us")
    return error


def main() -> None:
    """Check every operation, then count what is left in memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=100)
    repeats = parser.parse_args().repeats
    gc.collect()
    before = len(jax.live_arrays())
    errors = [check(name, repeats) for name in OPERATIONS]
    gc.collect()
    left = len(jax.live_arrays()) - before
    print(f"largest error {max(errors):.1e}; buffers left over {left}")
    assert max(errors) < 1e-6
    assert left == 0


if __name__ == "__main__":
    main()
