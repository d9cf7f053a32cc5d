"""Layers against JAX's or NumPy's form of them, values and gradients, in float64."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from tests.execution import run, run_in_jax

import pcp
from pcp import nn
from pcp.nn.dropout import InvalidRate
from pcp.tensor import ShapeMismatch

RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def assert_like(mine: Callable[..., Any], theirs: Callable[..., Any], *arguments: Any) -> None:
    """Both make the same, and so do the gradients of a weighted sum of what they make."""
    with jax.enable_x64(True):
        weights = RNG.normal(size=jax.eval_shape(theirs, *arguments).shape)

        def weighted(a: Any) -> Any:
            y = theirs(*a)
            return (y * weights).sum(), y

        wanted, expected = run_in_jax(jax.grad(weighted, has_aux=True), arguments)
    program = pcp.trace(lambda a: (pcp.grad(lambda a: (mine(*a) * weights).sum())(a), mine(*a)), arguments)
    gradients, found = run(program, arguments)
    assert (found.shape, found.dtype) == (expected.shape, np.float64)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11)
    for got, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(got, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (nn.leaky_relu, jax.nn.leaky_relu),
        (lambda x: nn.leaky_relu(x, 0.2), lambda x: jax.nn.leaky_relu(x, 0.2)),
        (nn.elu, jax.nn.elu),
        (lambda x: nn.elu(x, 0.5), lambda x: jax.nn.elu(x, 0.5)),
        (nn.softplus, jax.nn.softplus),
        (nn.relu, jax.nn.relu),
        (nn.silu, jax.nn.silu),
        (nn.gelu, jax.nn.gelu),
        (lambda x: nn.gelu(x, approximate=False), lambda x: jax.nn.gelu(x, approximate=False)),
        (nn.softmax, jax.nn.softmax),
        (nn.log_softmax, jax.nn.log_softmax),
        (nn.glu, jax.nn.glu),
        (lambda x: nn.glu(x, 0, nn.silu), lambda x: x[:2] * jax.nn.silu(x[2:])),
    ],
)
def test_activations(mine: Any, theirs: Any) -> None:
    assert_like(mine, theirs, 3 * normal(4, 6))


def test_activations_of_large_numbers_have_finite_gradients() -> None:
    x = np.array([-1e4, 1e4], np.float32)
    for function in (nn.elu, nn.softplus, nn.leaky_relu, nn.silu, nn.gelu):
        found = run(pcp.grad(pcp.trace(lambda x, f=function: f(x).sum(), x)), x)
        assert np.isfinite(found).all(), function


def _group_norm(x: Any, scale: Any, bias: Any, groups: int, last: bool) -> Any:
    moved = jnp.moveaxis(x, -1, 1) if last else x
    cut = moved.reshape(moved.shape[0], groups, -1)
    normed = (cut - cut.mean(-1, keepdims=True)) / jnp.sqrt(cut.var(-1, keepdims=True) + 1e-5)
    along = (1, -1, *[1] * (x.ndim - 2))
    whole = normed.reshape(moved.shape) * scale.reshape(along) + bias.reshape(along)
    return jnp.moveaxis(whole, 1, -1) if last else whole


@pytest.mark.parametrize(("shape", "last"), [((2, 3, 4, 6), True), ((2, 6, 3, 4), False), ((3, 12), True)])
@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group_norm(shape: tuple[int, ...], last: bool, groups: int) -> None:
    channels = shape[-1] if last else shape[1]
    assert_like(
        lambda x, s, b: nn.group_norm(x, groups, s, b, channels_last=last),
        lambda x, s, b: _group_norm(x, s, b, groups, last),
        normal(*shape),
        normal(channels),
        normal(channels),
    )


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_conv_takes_any_leading_axes(lead: tuple[int, ...]) -> None:
    def theirs(x: Any, w: Any, b: Any) -> Any:
        flat = x.reshape(-1, *x.shape[-3:])
        found = lax.conv_general_dilated(flat, w, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return found.reshape(*lead, *found.shape[1:]) + b

    assert_like(
        lambda x, w, b: nn.conv(x, w, b, (2, 1)),
        theirs,
        normal(*lead, 5, 4, 3),
        normal(3, 3, 3, 2),
        normal(2),
    )


def test_conv_transpose_makes_images_larger() -> None:
    def theirs(x: Any, w: Any, b: Any) -> Any:
        return (
            lax.conv_transpose(
                x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), transpose_kernel=True
            )
            + b
        )

    assert_like(
        lambda x, w, b: nn.conv_transpose(x, w, b, 2),
        theirs,
        normal(2, 3, 4, 3),
        normal(2, 2, 5, 3),
        normal(5),
    )


def test_pooling() -> None:
    x = normal(2, 6, 4, 3)
    window, ones = (1, 2, 2, 1), (1, 1, 1, 1)
    assert_like(
        lambda x: nn.max_pool(x, (2, 2)),
        lambda x: lax.reduce_window(x, -np.inf, lax.max, window, window, "VALID"),
        x,
    )
    assert_like(
        lambda x: nn.avg_pool(x, (2, 2), 1, "SAME", count_padding=False),
        lambda x: (
            lax.reduce_window(x, 0.0, lax.add, window, ones, "SAME")
            / lax.reduce_window(jnp.ones_like(x), 0.0, lax.add, window, ones, "SAME")
        ),
        x,
    )


def test_the_first_of_equal_largest_elements_gets_the_gradient() -> None:
    x = np.zeros((1, 2, 2, 1))
    found = run(pcp.grad(pcp.trace(lambda x: nn.max_pool(x, (2, 2)).sum(), x)), x)
    np.testing.assert_array_equal(found[0, :, :, 0], [[1, 0], [0, 0]])


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(interleaved: bool) -> None:
    x, places = normal(2, 5, 3, 8), RNG.integers(0, 50, (2, 5))

    def theirs(x: Any) -> Any:
        angles = places[..., None, None] / 10000 ** (np.arange(4) / 4)
        pairs = x.reshape(2, 5, 3, 4, 2) if interleaved else x.reshape(2, 5, 3, 2, 4).swapaxes(-1, -2)
        turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)
        both = jnp.stack([turned.real, turned.imag], -1)
        return (both if interleaved else both.swapaxes(-1, -2)).reshape(x.shape)

    assert_like(lambda x: nn.rotary(x, places, interleaved=interleaved), theirs, x)


def test_rotated_products_depend_on_the_distance_only() -> None:
    q, k = normal(8), normal(8)
    program = pcp.trace(lambda x, n: nn.rotary(x, n), pcp.spec((2, 1, 8), "f64"), pcp.spec((2,), "i32"))

    def product(i: int, j: int) -> float:
        a, b = run(program, np.stack([q, k])[:, None], np.array([i, j]))[:, 0]
        return float(a @ b)

    assert math.isclose(product(3, 7), product(103, 107), rel_tol=1e-9)
    assert not math.isclose(product(3, 7), product(3, 8), rel_tol=1e-3)
    default = pcp.trace(lambda x: nn.rotary(x), pcp.spec((2, 1, 8), "f64"))
    x = normal(2, 1, 8)
    np.testing.assert_array_equal(run(default, x), run(program, x, np.array([0, 1])))


def _lstm(x: Any, p: Any) -> Any:
    hidden = cell = jnp.zeros((x.shape[0], p["hidden"].shape[0]))
    outputs = []
    for t in range(x.shape[1]):
        i, f, g, o = jnp.split(x[:, t] @ p["input"] + hidden @ p["hidden"] + p["bias"], 4, -1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        outputs.append(hidden)
    return jnp.stack(outputs, 1)


def _gru(x: Any, p: Any) -> Any:
    hidden = jnp.zeros((x.shape[0], p["hidden"].shape[0]))
    outputs = []
    for t in range(x.shape[1]):
        a, b = x[:, t] @ p["input"] + p["bias"], hidden @ p["hidden"] + p["hidden_bias"]
        (ar, az, an), (br, bz, bn) = jnp.split(a, 3, -1), jnp.split(b, 3, -1)
        z = jax.nn.sigmoid(az + bz)
        hidden = (1 - z) * jnp.tanh(an + jax.nn.sigmoid(ar + br) * bn) + z * hidden
        outputs.append(hidden)
    return jnp.stack(outputs, 1)


@pytest.mark.parametrize(("mine", "theirs", "gates"), [(nn.lstm, _lstm, 4), (nn.gru, _gru, 3)])
def test_recurrent_layers(mine: Any, theirs: Any, gates: int) -> None:
    parameters = {"input": normal(3, gates * 4), "hidden": normal(4, gates * 4), "bias": normal(gates * 4)}
    if gates == 3:
        parameters["hidden_bias"] = normal(12)
    x = normal(2, 5, 3)
    assert_like(lambda x, p: mine(x, p)[0], theirs, x, parameters)
    backwards = run(pcp.trace(lambda x, p: mine(x, p, reverse=True)[0], x, parameters), x, parameters)
    with jax.enable_x64(True):
        np.testing.assert_allclose(backwards, theirs(x[:, ::-1], parameters)[:, ::-1], rtol=1e-10)


def test_a_recurrent_layer_goes_on_from_a_state() -> None:
    parameters = {"input": normal(3, 16), "hidden": normal(4, 16)}
    x = normal(2, 6, 3)

    def in_two_parts(x: pcp.Tensor) -> Any:
        first, state = nn.lstm(x[:, :4], parameters)
        second, _ = nn.lstm(x[:, 4:], parameters, state)
        return pcp.concatenate([first, second], 1), nn.lstm(x, parameters)[0]

    parts, whole = run(pcp.trace(in_two_parts, x), x)
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (nn.mse, lambda a, b: ((a - b) ** 2).mean()),
        (nn.mae, lambda a, b: jnp.abs(a - b).mean()),
        (lambda a, b: nn.huber(a, b, 0.7), lambda a, b: _huber(a, b, 0.7)),
        (
            lambda a, b: nn.binary_cross_entropy(a, nn.sigmoid(b)),
            lambda a, b: _binary(a, jax.nn.sigmoid(b)),
        ),
    ],
)
def test_losses(mine: Any, theirs: Any) -> None:
    assert_like(mine, theirs, normal(3, 4), normal(3, 4))


def _huber(a: Any, b: Any, delta: float) -> Any:
    size = jnp.abs(a - b)
    return jnp.where(size <= delta, size**2 / 2, delta * (size - delta / 2)).mean()


def _binary(logits: Any, targets: Any) -> Any:
    p = jax.nn.sigmoid(logits)
    return -(targets * jnp.log(p) + (1 - targets) * jnp.log(1 - p)).mean()


def test_binary_cross_entropy_takes_booleans_and_large_logits() -> None:
    logits, targets = np.float32([-1000, 1000, 0]), np.array([False, True, True])
    found = run(pcp.trace(nn.binary_cross_entropy, logits, targets), logits, targets)
    np.testing.assert_allclose(found, math.log(2) / 3, rtol=1e-6)


def test_dropout_keeps_the_mean_and_drops_its_share() -> None:
    x, key = np.ones((100, 200), np.float32), pcp.random.key(3)
    program = pcp.trace(
        lambda x, k: (nn.dropout(x, k, 0.3), nn.dropout(x, None), nn.dropout(x, k, 1.0)), x, key
    )
    some, untouched, none = run(program, x, key)
    assert set(np.unique(some)) == {np.float32(0), np.float32(1) / np.float32(0.7)}
    assert abs((some == 0).mean() - 0.3) < 0.01
    np.testing.assert_array_equal(untouched, x)
    np.testing.assert_array_equal(none, np.zeros_like(x))


def test_the_gradient_of_dropout_is_dropped_alike() -> None:
    x, key = normal(50), pcp.random.key(4)
    loss = pcp.trace(lambda x, k: nn.dropout(x, k, 0.5).sum(), x, key)
    dropped = run(pcp.trace(lambda x, k: nn.dropout(x, k, 0.5), x, key), x, key)
    np.testing.assert_array_equal(run(pcp.grad(loss), x, key), np.where(dropped == 0, 0, 2))


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda x: nn.dropout(x, None, 1.5),
            InvalidRate,
            "dropout: a rate of 1.5 was given; expected 0 <= rate <= 1",
        ),
        (
            lambda x: nn.group_norm(x, 4),
            ShapeMismatch,
            r"group_norm: shape \(2, 3, 6\) has 6 channels; expected a multiple",
        ),
        (
            lambda x: nn.glu(x, axis=1),
            ShapeMismatch,
            r"split: axis 1 of shape \(2, 3, 6\) cannot be cut into 2",
        ),
        (
            lambda x: nn.rotary(x[0]),
            ShapeMismatch,
            r"rotary: shape \(3, 6\) was given; expected \(..., length, heads",
        ),
        (lambda x: nn.rotary(x[:, :, :3]), ShapeMismatch, "with an even width"),
        (
            lambda x: nn.conv(x, np.ones((3, 3, 3, 6, 2))),
            ShapeMismatch,
            r"conv: x of shape \(2, 3, 6\) was given; expected 4",
        ),
        (
            lambda x: nn.conv(x, np.ones((3, 5, 2))),
            ShapeMismatch,
            "has 6 channels; the kernel of shape .* takes 5",
        ),
        (
            lambda x: nn.max_pool(x, (2, 2, 2)),
            ShapeMismatch,
            r"max_pool: x of shape \(2, 3, 6\) was given; expected 4 axes",
        ),
        (
            lambda x: nn.lstm(x[0], {"input": np.ones((6, 8)), "hidden": np.ones((2, 8))}),
            ShapeMismatch,
            r"lstm: x of shape \(3, 6\) was given; expected \(batch, length, inputs\)",
        ),
        (
            lambda x: nn.binary_cross_entropy(x, x[:, :2]),
            ShapeMismatch,
            "binary_cross_entropy: shapes .* do not broadcast",
        ),
    ],
)
def test_wrong_shapes_are_explained(function: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pcp.trace(function, pcp.spec((2, 3, 6), "f32"))


def test_the_derivative_of_relu_at_zero_is_zero_and_nan_stays() -> None:
    x = np.array([-1.0, 0.0, 2.0, np.nan])
    value, gradient = run(pcp.trace(lambda x: (nn.relu(x), pcp.grad(lambda x: nn.relu(x).sum())(x)), x), x)
    np.testing.assert_array_equal(value, [0, 0, 2, np.nan])
    np.testing.assert_array_equal(gradient[:3], jax.grad(lambda x: jax.nn.relu(x).sum())(x)[:3])
