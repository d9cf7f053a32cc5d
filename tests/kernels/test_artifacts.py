"""Kernels that are functions of JAX arrays: lowered for the shapes of their sites, for the kind of device that they are for."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.ir.bindings import ir
from pcp.kernels import Kernel, apply_kernels, sites_of
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.jax_lowering import NotLowered
from pcp.kernels.named import Named, applies_to_f32, tensors
from pcp.rewrite.raising import raised
from tests.execution import run


def _soft(x: jax.Array, axis: int) -> jax.Array:
    return jax.nn.softmax(x, axis=axis)


def _described(op: ir.Operation) -> Application:
    return Application(functools.partial(_soft, axis=Named.of(op).attributes["axis"]), tensors(op))


def _kernel(artifact: Lowered) -> Kernel:
    return Kernel("softmax.jax", "for tests", applies_to_f32, artifact)


def test_a_function_of_jax_arrays_stands_at_a_site() -> None:
    program = raised(pcp.trace(lambda x: pcp.softmax(x, 0) * 2.0, pcp.spec((5, 9), "f32")))
    (site,) = sites_of(program, "cpu")
    changed = apply_kernels(program, {site.key: _kernel(Lowered(_described))})
    assert 'composite "pcp.softmax"' not in str(changed.module())
    x = np.random.default_rng(0).normal(size=(5, 9)).astype(np.float32)
    np.testing.assert_allclose(run(changed, x), run(program, x), rtol=1e-6)


def test_it_is_for_the_kind_of_device_that_it_is_lowered_for() -> None:
    kernel = _kernel(Lowered(_described, "cuda"))
    assert kernel.needs == ("cuda",)
    assert not kernel.is_for("cpu")
    assert kernel.is_for("cuda")


def test_what_cannot_be_lowered_says_why() -> None:
    program = raised(pcp.trace(lambda x: pcp.softmax(x, 0), pcp.spec((5, 9), "f32")))
    (site,) = sites_of(program, "cpu")

    def wrong(op: ir.Operation) -> Application:
        return Application(lambda x: jnp.reshape(x, (7,)), tensors(op))

    with pytest.raises(NotLowered, match=r"TypeError: cannot reshape array of shape \(5, 9\)"):
        apply_kernels(program, {site.key: _kernel(Lowered(wrong))})
