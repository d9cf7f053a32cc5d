"""Cotangents of keys add up to zero over the keys, also where kernels round operands to bfloat16."""

import jax
import numpy as np
import pytest

import pcp
from pcp.kernels import apply_kernels, kernel_named, sites_of
from pcp.planning.paths.preparation import prepared


@pytest.mark.cpu
@pytest.mark.parametrize("kind", ["whole:bf16", "rows_64:bf16", "native:bf16"])
def test_rounding_leaves_nothing_in_the_sum(kind: str) -> None:
    def loss(q: pcp.Tensor, k: pcp.Tensor, v: pcp.Tensor, w: pcp.Tensor) -> pcp.Tensor:
        return (pcp.nn.scaled_dot_product_attention(q, k, v, causal=True) * w).sum()

    program = prepared(pcp.value_and_grad(pcp.trace(loss, *[pcp.spec((2, 128, 2, 16), "f32")] * 4), wrt=1))
    chosen = {
        site.key: kernel_named(f"attention_gradient.{kind}")
        for site in sites_of(program, "cpu")
        if site.family == "attention_gradient"
    }
    assert chosen
    rng = np.random.default_rng(11)
    arguments = [rng.normal(size=(2, 128, 2, 16)).astype(np.float32) for _ in range(4)]
    plain, found = (
        np.asarray(jax.tree.leaves(pcp.plan(each)(*arguments))[1])
        for each in (program, apply_kernels(program, chosen))
    )
    assert np.linalg.norm(found - plain) > 1e-4 * np.linalg.norm(plain)  # it did round
    assert np.linalg.norm(found - plain) < 1e-2 * np.linalg.norm(plain)
    assert np.abs(found.sum(1)).max() < 1e-5 * np.abs(found).sum(1).max()


def test_a_number_that_is_none_does_not_spread_over_the_keys() -> None:
    from pcp.kernels.attention.key_cotangents import without_mean

    x = np.array([[1.0], [np.nan], [2.0]], np.float32)
    program = pcp.trace(lambda x: without_mean(x, 0), pcp.spec((3, 1), "f32"))
    found = np.asarray(pcp.plan(program)(x))
    assert found[0, 0] == 1.0
    assert np.isnan(found[1, 0])
