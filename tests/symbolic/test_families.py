"""Families of operations with symbolic sizes: at random sizes the same program as the static trace, and so its gradient."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import pcp
from pcp import nn

Shapes = tuple[tuple[int | str, ...], ...]


def lstm(x: pcp.Tensor, w: pcp.Tensor) -> pcp.Tensor:
    def cell(carry: Any, step: pcp.Tensor) -> Any:
        hidden, memory = carry
        gates = pcp.concatenate([step, hidden], axis=1) @ w
        new = pcp.sigmoid(gates[:, :8]) * memory + pcp.tanh(gates[:, 8:16])
        hidden = pcp.tanh(new)
        return (hidden, new), hidden

    zero = pcp.zeros((x.shape[0], 8), "f32")
    _, hidden = pcp.scan(cell, (zero, zero), pcp.transpose(x, 1, 0, 2))
    return hidden.mean(axis=0)


def convolution(x: pcp.Tensor, w: pcp.Tensor) -> pcp.Tensor:
    return nn.avg_pool(nn.relu(nn.conv(x, w, strides=2, padding="SAME")), (2, 2))


FAMILIES: dict[str, tuple[Callable[..., Any], Shapes, list[str]]] = {
    "lstm": (lstm, (("n", "t", 5), (13, 16)), []),
    "softmax": (lambda x: nn.softmax(x) * x.max(axis=0), (("n", "t"),), []),
    "variance": (
        lambda x: (x - x.mean(axis=-1, keepdims=True)) / (x.std(axis=-1, keepdims=True) + 1),
        (("n", "t"),),
        [],
    ),
    "norm": (lambda x, s: nn.layer_norm(x, s), (("n", "t", 12), (12,)), []),
    "product": (lambda x, y: pcp.matmul(x, y).sum(axis=0), (("n", "t"), ("t", "m")), []),
    "causal": (lambda q: nn.scaled_dot_product_attention(q, q, q, causal=True), (("n", 3, "t", 8),), []),
    "mask": (lambda x: pcp.where(pcp.iota(x.shape, 1) < 3, x, 0.0) / x.shape[0], (("n", "t"),), []),
    "reshaped": (
        lambda x: x.reshape(x.shape[0] * x.shape[1], 4).reshape(-1, 2) @ np.ones((2, 3), np.float32),
        (("n", "t", 4),),
        [],
    ),
    "halves": (lambda x: x.reshape(x.shape[0] // 2, 2, 3).sum(axis=1), (("n", 3),), ["n % 2 == 0"]),
    "slices": (lambda x: x[1:, :-1] * x[:-1, 1:], (("n", "t"),), ["n >= 2", "t >= 2"]),
    "joined": (lambda x, y: pcp.concatenate([x, y, x], axis=0), (("n", 4), ("m", 4)), []),
    "padded": (lambda x: pcp.pad(x, ((1, 2), (0, 0))), (("n", 4),), []),
    "convolution": (convolution, (("n", "side", "side", 3), (3, 3, 3, 6)), ["side % 8 == 0"]),
    "strided": (lambda x: x[::2] * 2, (("n", 3),), []),
    "cumulative along another axis": (lambda x: pcp.cumsum(x, axis=1), (("n", 4),), []),
    "sorted": (lambda x: pcp.sort(x, axis=0), (("n", 4),), []),
    "taken": (lambda x, i: x[i], (("n", 4), ("m",)), []),
    "scalars": (
        lambda x: x * x.shape[0] + 1.0 / x.shape[1] - x.shape[0] * x.shape[1] ** 0.5,
        (("n", "t"),),
        [],
    ),
    "random": (lambda x, k: x + pcp.random.normal(k, (x.shape[0], 4), "f32"), (("n", 4), (2,)), []),
    "equal": (lambda x: x @ pcp.transpose(x) @ x, (("n", "m"),), ["m == 2*n + 1"]),
}


def specs_of(shapes: Shapes, sizes: dict[str, int] | None, name: str) -> list[Any]:
    made = []
    for place, shape in enumerate(shapes):
        numbers = tuple(s if isinstance(s, int) or sizes is None else sizes[s] for s in shape)
        dtype = {"taken": "i32", "random": "u32"}.get(name, "f32") if place == 1 else "f32"
        made.append(pcp.spec(numbers, dtype))
    return made


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family(name: str) -> None:
    function, shapes, constraints = FAMILIES[name]
    program: Any = pcp.trace(function, *specs_of(shapes, None, name), constraints=constraints)
    gradient: Any = pcp.vjp(program)
    rng = np.random.default_rng()
    for _ in range(2):
        sizes = {symbol: int(rng.integers(3, 100)) for symbol in program.symbols}
        if name == "halves":
            sizes["n"] *= 2
        if name == "convolution":
            sizes = {"n": sizes["n"] % 9 + 1, "side": 8 * (sizes["side"] % 5 + 1)}
        if name == "equal":
            sizes["m"] = 2 * sizes["n"] + 1
        static = pcp.trace(function, *specs_of(shapes, sizes, name))
        assert program.at(**sizes).digest == static.digest, sizes
        assert gradient.at(**sizes).digest == pcp.vjp(static).digest, sizes


@pytest.mark.share(2)
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "logcumsumexp"])
@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_operations_become_loops(name: str, reverse: bool) -> None:
    operation = getattr(pcp, name)
    program: Any = pcp.trace(lambda x: operation(x, axis=1, reverse=reverse), pcp.spec((2, "n", 3), "f32"))
    gradient: Any = pcp.vjp(program)
    rng = np.random.default_rng()
    for size in (1, 2, int(rng.integers(3, 40))):
        x, cotangent = rng.normal(size=(2, 2, size, 3)).astype(np.float32)
        static = pcp.trace(lambda x: operation(x, axis=1, reverse=reverse), pcp.spec(x.shape, "f32"))
        for made, plain, arguments in (
            (program, static, (x,)),
            (gradient, pcp.vjp(static), (x, cotangent)),
        ):
            got = pcp.plan(made.at(n=size), "arena:cpu").run(*arguments)
            expected = pcp.plan(plain, "arena:cpu").run(*arguments)
            for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-5)
