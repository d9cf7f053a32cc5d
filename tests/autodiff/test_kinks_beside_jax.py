"""Values and gradients at kinks, ties, zeros of either sign, NaN and infinities are JAX's, in one program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pcp
from pcp import nn, ops

X = np.array([-2.0, -1.0, -0.0, 0.0, 1.0, 1.0, 2.0, 3.0], np.float32)
Y = np.array([1.0, -1.0, 0.0, -0.0, 1.0, 2.0, 2.0, -3.0], np.float32)
SPECIAL = np.array([1.0, np.nan, -0.0, 0.0, -np.inf, np.inf, 2.0, 2.0], np.float32)
PLACES = np.arange(8, dtype=np.float32)

Pair = tuple[Callable[..., Any], Callable[..., Any]]
ONE: dict[str, Pair] = {
    "abs": (ops.abs, jnp.abs), "sign": (ops.sign, jnp.sign), "square": (ops.square, jnp.square),
    "root of a square": (lambda a: ops.sqrt(a * a), lambda a: jnp.sqrt(a * a)),
    "norm of nothing": (lambda a: ops.norm(a * 0), lambda a: jnp.linalg.norm(a * 0)),
    "max": (ops.max, jnp.max), "min": (ops.min, jnp.min), "cummax": (ops.cummax, jax.lax.cummax),
    "clip": (lambda a: ops.clip(a, -1, 1), lambda a: jnp.clip(a, -1, 1)),
    "sort": (lambda a: ops.sort(a) * PLACES, lambda a: jnp.sort(a) * PLACES),
    "top_k": (lambda a: ops.top_k(a, 3)[0], lambda a: jax.lax.top_k(a, 3)[0]),
    "median": (ops.median, jnp.median), "quantile": (lambda a: ops.quantile(a, 0.3), lambda a: jnp.quantile(a, 0.3)),
    "prod": (ops.prod, jnp.prod), "cumprod": (ops.cumprod, jnp.cumprod), "mean": (ops.mean, jnp.mean),
    "std": (ops.std, jnp.std), "var": (ops.var, jnp.var), "logsumexp": (ops.logsumexp, jax.nn.logsumexp),
    "floor": (ops.floor, jnp.floor), "round": (ops.round, jnp.round), "trunc": (ops.trunc, jnp.trunc),
    "relu": (nn.relu, jax.nn.relu), "leaky_relu": (nn.leaky_relu, jax.nn.leaky_relu), "elu": (nn.elu, jax.nn.elu),
    "softplus": (ops.softplus, jax.nn.softplus), "sigmoid": (ops.sigmoid, jax.nn.sigmoid),
    "log_softmax": (ops.log_softmax, jax.nn.log_softmax), "nan_to_num": (ops.nan_to_num, jnp.nan_to_num),
    "powers": (lambda a: a**2 + a**3 + a**1.0, lambda a: a**2 + a**3 + a**1.0), "expm1": (ops.expm1, jnp.expm1),
}  # fmt: skip
TWO: dict[str, Pair] = {
    "maximum": (ops.maximum, jnp.maximum), "minimum": (ops.minimum, jnp.minimum), "arctan2": (ops.arctan2, jnp.arctan2),
    "remainder": (lambda a, b: ops.remainder(a, b + 0.25), lambda a, b: jnp.remainder(a, b + 0.25)),
    "fmod": (lambda a, b: ops.fmod(a, b + 0.25), lambda a, b: jnp.fmod(a, b + 0.25)),
    "floor_divide": (lambda a, b: a // (b + 0.25), lambda a, b: a // (b + 0.25)),
    "logaddexp": (ops.logaddexp, jnp.logaddexp), "hypot": (ops.hypot, jnp.hypot), "divide": (ops.divide, jnp.divide),
    "where": (lambda a, b: ops.where(a > b, a, b), lambda a, b: jnp.where(a > b, a, b)),
}  # fmt: skip


def calls(of: int, grad: Callable[..., Any], x: Any, y: Any, special: Any) -> dict[str, Any]:
    """All values and gradients, of PCP's functions (0) or JAX's (1)."""
    made = {}
    for name, pair in ONE.items():
        f = pair[of]
        made[name], made[f"{name} of NaN"] = f(x), f(special)
        made[f"gradient of {name}"] = grad(lambda a, f=f: f(a).sum())(x)
    for name, pair in TWO.items():
        f = pair[of]
        made[name], made[f"{name} of NaN"] = f(x, y), f(special, y)
        for side in (0, 1):
            made[f"gradient {side} of {name}"] = grad(lambda a, b, f=f: f(a, b).sum(), side)(x, y)
    return made


def test_kinks_and_special_numbers_are_those_of_jax() -> None:
    program = pcp.trace(lambda *given: calls(0, pcp.grad, *given), X, Y, SPECIAL)
    with np.errstate(all="ignore"):
        found = pcp.plan(program, "arena:cpu").run(X, Y, SPECIAL)
    wanted = jax.jit(lambda *given: calls(1, jax.grad, *given))(X, Y, SPECIAL)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(np.asarray(found[name]), value, rtol=1e-5, atol=1e-6, err_msg=name)
