"""Cross entropy beside NumPy in float64 and beside JAX, with weights, and what it refuses."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.execution import run, run_in_jax

import pcp
from pcp import nn
from pcp.tensor import DTypeMismatch, ShapeMismatch


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def example(*shape: int, classes: int = 7) -> tuple[Any, Any, Any]:
    """Random scores, targets and weights."""
    generator = np.random.default_rng(shape)
    logits = 3 * generator.normal(size=(*shape, classes))
    return logits, generator.integers(0, classes, shape, np.int32), generator.random(shape)


def exact(logits: Any, targets: Any) -> Any:
    """-log softmax(logits)[target] of every example."""
    total = np.log(np.exp(logits).sum(-1))
    return total - np.take_along_axis(logits, targets[..., None], -1)[..., 0]


@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_losses_of_examples_and_their_mean(shape: tuple[int, ...], dtype: Any) -> None:
    logits, targets, _ = example(*shape)
    given = logits.astype(dtype), targets
    program = pcp.trace(lambda x, t: (nn.negative_log_likelihood(x, t), nn.cross_entropy(x, t)), *given)
    each, mean = run(program, *given)
    wide = exact(given[0].astype(np.float64), targets)
    near = 1e-13 if dtype is np.float64 else 1e-5
    np.testing.assert_allclose(each, wide, rtol=near)
    np.testing.assert_allclose(mean, wide.mean(), rtol=near)
    assert each.dtype == mean.dtype == dtype
    assert mean.shape == ()


def test_weights_say_how_much_an_example_counts() -> None:
    logits, targets, weights = example(3, 4)
    weights[1] = 0  # a sequence of padding
    program = pcp.trace(nn.cross_entropy, logits, targets, weights)
    expected = (exact(logits, targets) * weights).sum() / weights.sum()
    np.testing.assert_allclose(run(program, logits, targets, weights), expected, rtol=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_equal_those_of_jax(weighted: bool) -> None:
    logits, targets, weights = example(3, 4)
    used = weights if weighted else np.ones_like(weights)

    def theirs(logits: Any) -> Any:
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)[..., 0]
        return -(picked * used).sum() / used.sum()

    arguments = (logits, targets, weights)[: 2 + weighted]
    value, gradient = run(pcp.value_and_grad(pcp.trace(nn.cross_entropy, *arguments)), *arguments)
    expected, expected_gradient = run_in_jax(jax.value_and_grad(theirs), logits)
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-11, atol=1e-16)


@pytest.mark.parametrize("dtype", ["u8", "i16", "i64"])
def test_targets_of_any_integers(dtype: str) -> None:
    logits, targets, _ = example(5)
    targets = targets.astype(pcp.spec((), dtype).spec.dtype.numpy)
    program = pcp.trace(nn.cross_entropy, logits, targets)
    np.testing.assert_allclose(run(program, logits, targets), exact(logits, targets).mean(), rtol=1e-13)


@pytest.mark.parametrize(
    ("logits", "targets"), [((3, 7), (4,)), ((3, 4, 7), (3,)), ((7,), (7,)), ((), ()), ((3, 7), (3, 1))]
)
def test_shapes_that_do_not_correspond(logits: tuple[int, ...], targets: tuple[int, ...]) -> None:
    message = rf"cross_entropy: logits {logits} need targets of shape .*; {targets} was given"
    with pytest.raises(ShapeMismatch, match=message.replace("(", r"\(").replace(")", r"\)")):
        pcp.trace(nn.cross_entropy, pcp.spec(logits, "f32"), pcp.spec(targets, "i32"))


@pytest.mark.parametrize("dtype", ["f32", "bool"])
def test_targets_that_are_no_integers(dtype: str) -> None:
    message = f"cross_entropy: targets of {dtype} were given; expected integers, the index of the class"
    with pytest.raises(DTypeMismatch, match=message):
        pcp.trace(nn.cross_entropy, pcp.spec((3, 7), "f32"), pcp.spec((3,), dtype))


def test_weights_of_another_shape() -> None:
    with pytest.raises(ShapeMismatch, match=r"multiply: shapes \(3,\) and \(2,\) do not broadcast"):
        pcp.trace(nn.cross_entropy, pcp.spec((3, 7), "f32"), pcp.spec((3,), "i32"), pcp.spec((2,), "f32"))
