"""Dropout is one operation whose gradient keeps its key alone: the mask is made again, and is the same."""

import re
from typing import Any

import jax
import numpy as np
import pytest
from tests.execution import QUICK, run, run_in_jax

import pcp
from pcp import nn
from pcp.autodiff.rematerialisation.joint_graph import JointGraph
from pcp.ir.toolkit.functions import entry_block
from pcp.ops.dropping import dropped
from pcp.ops.random import bernoulli

RNG = np.random.default_rng()
KEY = pcp.random.key(int(RNG.integers(1 << 60)))
RATE = 0.3


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def written_out(x: Any, key: Any, rate: float = RATE) -> Any:
    """The same in plain operations, which keep the mask."""
    return pcp.where(bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def layers(drop: Any) -> Any:
    """A loss of two layers with dropout in between."""

    def loss(w: Any, x: Any, key: Any) -> Any:
        for index, each in enumerate(w):
            x = x + drop(pcp.tanh(x @ each), pcp.random.fold_in(key, index))
        return (x * x).sum()

    return loss


def dropout(x: Any, key: Any) -> Any:
    return nn.dropout(x, key, RATE)


def assert_same(left: Any, right: Any) -> None:
    for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def composites(program: pcp.Program) -> list[str]:
    return re.findall(r'stablehlo.composite "([^"]*)"', program.text)


def test_the_gradient_is_dropout_of_the_cotangent_and_keeps_nothing() -> None:
    given = ([normal(6, 6), normal(6, 6)], normal(5, 6), KEY)
    program = pcp.value_and_grad(pcp.trace(layers(dropout), *given))
    assert composites(program) == ["pcp.dropout"] * 4
    module = program.module()
    block = entry_block(module)
    operations = [view.operation for view in block.operations]
    forward = next(i for i, op in enumerate(operations) if op.name == "stablehlo.reduce") + 1
    graph = JointGraph(block, forward)
    kept = {graph.names[graph.maker[value]] for value in graph.residuals}
    assert "stablehlo.composite" not in kept
    assert not [value for value in graph.residuals if str(graph.specs[value]).startswith("bool")]
    plain = pcp.value_and_grad(pcp.trace(layers(written_out), *given))
    assert_same(run(program, *given), run(plain, *given))


def test_derivatives_of_all_kinds_are_those_of_the_operations_inside() -> None:
    x, t = normal(4, 7), normal(4, 7)

    def kinds(drop: Any) -> Any:
        def every(x: Any, t: Any, key: Any) -> Any:
            def cube(x: Any) -> Any:
                return drop(x**3, key)

            twice = pcp.grad(lambda x: (pcp.grad(lambda x: cube(x).sum())(x) * t).sum())(x)
            return twice, pcp.jvp(cube)(x, t)

        return every

    found, expected = (run(pcp.trace(kinds(drop), x, t, KEY), x, t, KEY) for drop in (dropout, written_out))
    assert_same(found, expected)


@pytest.mark.parametrize("axes", [(0, None), (0, 0), (None, 0)])
def test_samples_share_a_key_or_have_their_own(axes: tuple[int | None, int | None]) -> None:
    x, keys = normal(3, 4), np.stack([pcp.random.key(i) for i in range(3)])
    given = (x if axes[0] == 0 else x[0], keys if axes[1] == 0 else keys[0])

    def gradients(drop: Any) -> Any:
        gradient = pcp.grad(lambda x, key: (drop(x, key) ** 2).sum())
        return lambda x, key: pcp.vmap(gradient, axes)(x, key)

    found = run(pcp.trace(gradients(dropout), *given), *given)
    for index, sample in enumerate(found):
        own = (x[index] if axes[0] == 0 else x[0], keys[index] if axes[1] == 0 else keys[0])
        plain = pcp.trace(pcp.grad(lambda x, key: (written_out(x, key) ** 2).sum()), *own)
        assert_same(sample, run(plain, *own))


def test_a_loop_over_layers_keeps_no_mask() -> None:
    w, x = normal(4, 6, 6), normal(5, 6)

    def scanned(drop: Any) -> Any:
        def loss(w: Any, x: Any, key: Any) -> Any:
            def layer(state: Any, each: Any) -> Any:
                x, key = state
                key = pcp.random.fold_in(key, 1)
                return (drop(x @ each, key), key), ()

            (x, _), _ = pcp.scan(layer, (x, key), w)
            return (x * x).sum()

        return pcp.value_and_grad(pcp.trace(loss, w, x, KEY))

    program = scanned(dropout)
    assert not re.search(r"tensor<4x5x6xi1>", program.text)
    assert_same(run(program, w, x, KEY), run(scanned(written_out), w, x, KEY))


@pytest.mark.cpu
def test_a_step_with_dropout_takes_no_more_memory_than_one_without() -> None:
    w, x = [normal(64, 64).astype("f4") for _ in range(3)], normal(512, 64).astype("f4")

    def temporaries(drop: Any) -> int:
        gradient = pcp.value_and_grad(pcp.trace(layers(drop), w, x, KEY))
        return pcp.plan(gradient, "cpu:0", cache=False).memory["cpu:0"].temporaries

    assert temporaries(dropout) <= temporaries(lambda x, _: x) + x.size


@pytest.mark.cpu
@pytest.mark.parametrize("imported", [False, True])
def test_within_less_memory_the_mask_is_the_same(imported: bool) -> None:
    """Also of a gradient that JAX made, whose random bits are a function of their own."""
    w, x = [normal(48, 48).astype("f4") for _ in range(2)], normal(256, 48).astype("f4")

    def of_jax(w: Any, x: Any, key: Any) -> Any:
        for index, each in enumerate(w):
            kept = jax.random.bernoulli(jax.random.fold_in(key, index), 1 - RATE, x.shape)
            x = x + jax.numpy.where(kept, jax.numpy.tanh(x @ each) / (1 - RATE), 0)
        return (x * x).sum()

    if imported:
        gradient = pcp.from_jax(jax.value_and_grad(of_jax), w, x, KEY)
    else:
        gradient = pcp.value_and_grad(pcp.trace(layers(dropout), w, x, KEY))
    whole = pcp.plan(gradient, "cpu:0", cache=False, options=QUICK).memory["cpu:0"].peak
    less = pcp.plan(gradient, "cpu:0", memory=whole * 9 // 10, cache=False, options=QUICK)
    assert less.fit is not None
    assert less.fit.remade or less.fit.parts > 1
    found = less.run(w, x, KEY)
    expected = run_in_jax(jax.value_and_grad(of_jax), w, x, KEY)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.linalg.norm(one - other) <= 1e-3 * np.linalg.norm(other)


def test_a_rate_of_numpy_is_a_rate() -> None:
    x = normal(50).astype("f4")
    found, expected = (
        run(pcp.trace(lambda x, k, r=rate: nn.dropout(x, k, r), x, KEY), x, KEY)
        for rate in (np.float64(0.3), 0.3)
    )
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_a_factor_instead_of_a_division() -> None:
    x = normal(50)
    found = run(pcp.trace(lambda x, k: dropped(x, k, RATE, divides=False), x, KEY), x, KEY)
    kept = run(pcp.trace(lambda k: bernoulli(k, 1 - RATE, (50,)), KEY), KEY)
    np.testing.assert_allclose(found, np.where(kept, x * (1 / (1 - RATE)), 0), rtol=1e-15)


def test_what_only_has_its_name_is_differentiated_as_it_is_written() -> None:
    program = pcp.Program.parse("""
func.func private @f(%k: tensor<2xui32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.exponential %x : tensor<4xf32>
  return %0 : tensor<4xf32> }
func.func @main(%k: tensor<2xui32>, %x: tensor<4xf32>) -> tensor<f32> {
  %0 = stablehlo.composite "pcp.dropout" %k, %x
    {composite_attributes = {rate = 0.3 : f64, divides = true}, decomposition = @f}
    : (tensor<2xui32>, tensor<4xf32>) -> tensor<4xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %s : tensor<f32> }""")
    x = normal(4).astype("f4")
    np.testing.assert_allclose(run(pcp.grad(program, wrt=1), KEY, x), np.exp(x), rtol=1e-6)
