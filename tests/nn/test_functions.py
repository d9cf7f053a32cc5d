"""Every function of pcp.nn beside JAX's and beside NumPy in float64, on fresh random inputs."""

import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run, run_in_jax

import pcp
from pcp import nn
from pcp.tensor import DTypeMismatch, ShapeMismatch

Array = np.ndarray[Any, Any]

# Relative to the norm of the exact result: several roundings of the type.
NEAR = {np.float32: 2e-6, np.float64: 4e-15}


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def normals(name: str, shapes: list[tuple[int, ...]]) -> list[Array]:
    """Random float64 arrays, others for every name."""
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    return [generator.normal(size=shape) for shape in shapes]


def layer_norm(x: Array, scale: Array, bias: Array | float = 0.0) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias


def exact_gelu(x: Array) -> Array:
    return x * np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))(x)


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def tanh_gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def rms_norm(x: Array, scale: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale


def mlp(x: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, gelu: Callable[[Any], Any]) -> Any:
    return gelu(x @ up + up_bias) @ down + down_bias


def our_mlp(x: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, **options: Any) -> Any:
    parameters = {"up": {"weight": up, "bias": up_bias}, "down": {"weight": down, "bias": down_bias}}
    return nn.mlp(x, parameters, **options)


MLP_SHAPES = [(2, 5, 6), (6, 9), (9,), (9, 6), (6,)]

# name -> ours, NumPy's, JAX's, shapes of the arguments
Case = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any], list[tuple[int, ...]]]
CASES: dict[str, Case] = {
    "relu": (nn.relu, lambda x: np.maximum(x, 0), jax.nn.relu, [(4, 7)]),
    "silu": (nn.silu, lambda x: x / (1 + np.exp(-x)), jax.nn.silu, [(4, 7)]),
    "gelu": (nn.gelu, tanh_gelu, jax.nn.gelu, [(4, 7)]),
    "gelu by erf": (
        lambda x: nn.gelu(x, approximate=False),
        exact_gelu,
        lambda x: jax.nn.gelu(x, approximate=False),
        [(4, 7)],
    ),
    "softmax": (nn.softmax, softmax, jax.nn.softmax, [(3, 4, 5)]),
    "softmax of the first axis": (
        lambda x: nn.softmax(x, 0),
        lambda x: softmax(x.T).T,
        lambda x: jax.nn.softmax(x, 0),
        [(6, 3)],
    ),
    "log_softmax": (nn.log_softmax, lambda x: np.log(softmax(x)), jax.nn.log_softmax, [(3, 4, 5)]),
    "linear": (nn.linear, lambda x, w: x @ w, jnp.matmul, [(2, 3, 4), (4, 5)]),
    "linear with bias": (
        nn.linear,
        lambda x, w, b: x @ w + b,
        lambda x, w, b: x @ w + b,
        [(2, 3, 4), (4, 5), (5,)],
    ),
    "layer_norm": (
        nn.layer_norm,
        layer_norm,
        lambda x, s: jax.nn.standardize(x, epsilon=1e-5) * s,
        [(2, 3, 8), (8,)],
    ),
    "layer_norm with bias": (
        nn.layer_norm,
        layer_norm,
        lambda x, s, b: jax.nn.standardize(x, epsilon=1e-5) * s + b,
        [(2, 3, 8), (8,), (8,)],
    ),
    "rms_norm": (
        nn.rms_norm,
        rms_norm,
        lambda x, s: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * s,
        [(2, 3, 8), (8,)],
    ),
    "mlp": (our_mlp, lambda *a: mlp(*a, tanh_gelu), lambda *a: mlp(*a, jax.nn.gelu), MLP_SHAPES),
    "mlp with silu": (
        lambda *a: our_mlp(*a, activation=nn.silu),
        lambda *a: mlp(*a, lambda x: x / (1 + np.exp(-x))),
        lambda *a: mlp(*a, jax.nn.silu),
        MLP_SHAPES,
    ),
    "mse": (
        nn.mse,
        lambda p, t: ((p - t) ** 2).mean(),
        lambda p, t: jnp.mean((p - t) ** 2),
        [(3, 4), (4,)],
    ),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_it_equals_jax_and_numpy(name: str, dtype: Any) -> None:
    ours, numpys, jaxs, shapes = CASES[name]
    given = [x.astype(dtype) for x in normals(name, shapes)]
    found = run(pcp.trace(ours, *given), *given)
    wide = [x.astype(np.float64) for x in given]
    exact = np.asarray(numpys(*wide))
    assert found.dtype == dtype
    assert found.shape == exact.shape
    assert np.linalg.norm(found - exact) <= NEAR[dtype] * np.linalg.norm(exact)
    assert np.linalg.norm(np.asarray(jaxs(*wide)) - exact) <= 1e-14 * np.linalg.norm(exact)


@pytest.mark.parametrize("name", CASES)
def test_its_gradients_equal_those_of_jax(name: str) -> None:
    ours, numpys, jaxs, shapes = CASES[name]
    given = normals(f"gradients of {name}", shapes)
    (cotangent,) = normals(f"cotangent of {name}", [np.shape(numpys(*given))])
    found = run(pcp.vjp(pcp.trace(ours, *given)), *given, cotangent)
    expected = run_in_jax(lambda c, *x: jax.vjp(jaxs, *x)[1](c), cotangent, *given)
    for a, b in zip(found, expected, strict=True):
        assert np.linalg.norm(a - b) <= 1e-13 * np.linalg.norm(b)


@pytest.mark.parametrize("dtype", ["i32", "u8", "i64"])
def test_embedding_takes_rows(dtype: str) -> None:
    (table,) = normals(dtype, [(9, 4)])
    tokens = np.random.default_rng(7).integers(0, 9, (3, 5)).astype(pcp.spec((), dtype).spec.dtype.numpy)
    program = pcp.trace(nn.embedding, tokens, table)
    np.testing.assert_array_equal(run(program, tokens, table), table[tokens])


def test_scores_far_from_zero_do_not_overflow() -> None:
    x = np.array([[1e4, 1e4 - 1, -1e4], [-1e4, -1e4, -1e4 + 2]], np.float32)
    program = pcp.trace(
        lambda x: (nn.softmax(x), nn.log_softmax(x), nn.cross_entropy(x, np.array([1, 2]))), x
    )
    weights, logs, loss = run(program, x)
    exact = x.astype(np.float64) - x.max(-1, keepdims=True).astype(np.float64)
    exact -= np.log(np.exp(exact).sum(-1, keepdims=True))
    np.testing.assert_allclose(weights, np.exp(exact), rtol=1e-6)
    np.testing.assert_allclose(logs, exact, rtol=1e-6)
    np.testing.assert_allclose(loss, -(exact[0, 1] + exact[1, 2]) / 2, rtol=1e-3)


@pytest.mark.parametrize(
    ("function", "shapes", "message"),
    [
        (nn.linear, [(2, 3), (4, 5)], r"matmul: shapes \(2, 3\) and \(4, 5\) do not fit"),
        (nn.linear, [(2, 4), (4, 5), (4,)], r"add: shapes \(2, 5\) and \(4,\) do not broadcast"),
        (nn.layer_norm, [(2, 4), (5,)], r"multiply: shapes \(2, 4\) and \(5,\) do not broadcast"),
        (nn.rms_norm, [(2, 4), (3,)], r"multiply: shapes \(2, 4\) and \(3,\) do not broadcast"),
        (nn.mse, [(2, 4), (3,)], r"mse: shapes \(2, 4\) and \(3,\) do not broadcast"),
        (our_mlp, [(2, 6), (6, 9), (9,), (8, 6), (6,)], r"matmul: shapes \(2, 9\) and \(8, 6\) do not fit"),
        (nn.softmax, [()], r"softmax: axis -1 "),
    ],
)
def test_shapes_that_do_not_fit(function: Any, shapes: Any, message: str) -> None:
    with pytest.raises(ShapeMismatch, match=message) as raised:
        pcp.trace(function, *[pcp.spec(shape, "f32") for shape in shapes])
    assert "\n  at " in str(raised.value)


def test_tokens_must_be_integers() -> None:
    with pytest.raises(DTypeMismatch, match="f32"):
        pcp.trace(nn.embedding, pcp.spec((3,), "f32"), pcp.spec((4, 5), "f32"))
