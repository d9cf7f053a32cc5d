"""What JAX's libraries write is recognised: softmax, normalisation, attention and cross entropy."""

import re
from typing import Any

import flax.linen as flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import pcp
from pcp import autodiff, kernels
from pcp.rewrite.raising import raised


def spec(*shape: int, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


X, W, Q, K, T = spec(2, 3, 5), spec(5), spec(2, 6, 4, 8), spec(2, 6, 2, 8), spec(2, 3, dtype=jnp.int32)


def normed(layer: Any) -> Any:
    return lambda x, *weights: layer.apply({"params": dict(zip(("scale", "bias"), weights, strict=False))}, x)


def picked_log_softmax(x: Any, t: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(x), t[..., None], -1)[..., 0].mean()


FORMS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "softmax": (jax.nn.softmax, (X,), "softmax"),
    "log_softmax": (jax.nn.log_softmax, (X,), "log_softmax"),
    "layer norm of flax": (normed(flax.LayerNorm()), (X, W, W), "layer_norm"),
    "with the slow variance": (normed(flax.LayerNorm(use_fast_variance=False)), (X, W, W), "layer_norm"),
    "without bias": (normed(flax.LayerNorm(use_bias=False)), (X, W), "layer_norm"),
    "rms norm of flax": (normed(flax.RMSNorm()), (X, W), "rms_norm"),
    "attention": (jax.nn.dot_product_attention, (Q, Q, Q), "attention"),
    "causal attention in groups": (
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
        (Q, K, K),
        "attention",
    ),
    "attention with a bias": (
        lambda q, k, v, b: jax.nn.dot_product_attention(q, k, v, bias=b),
        (Q, Q, Q, spec(2, 4, 6, 6)),
        "attention",
    ),
    "attention of flax with a mask": (
        lambda q, k, v, m: flax.dot_product_attention(q, k, v, mask=m),
        (Q, Q, Q, spec(2, 1, 6, 6, dtype=bool)),
        "attention",
    ),
    "cross entropy of optax": (
        lambda x, t: optax.softmax_cross_entropy_with_integer_labels(x, t).mean(),
        (X, T),
        "cross_entropy",
    ),
    "cross entropy with one-hot targets": (
        lambda x, t: optax.softmax_cross_entropy(x, jax.nn.one_hot(t, 5)).mean(),
        (X, T),
        "cross_entropy",
    ),
    "the logarithm of softmax, picked": (picked_log_softmax, (X, T), "cross_entropy"),
}


@pytest.mark.parametrize("name", FORMS)
def test_what_the_libraries_of_jax_write_is_recognised(name: str) -> None:
    function, specs, composite = FORMS[name]
    program = pcp.from_jax(function, *specs)
    found = raised(program)
    assert re.findall(r'stablehlo.composite "([^"]*)"', found.text) == [f"pcp.{composite}"]
    assert found.digest == program.digest
    if composite == "cross_entropy":
        assert autodiff.grad(found).digest == autodiff.grad(program).digest


@pytest.mark.parametrize("name", [name for name in FORMS if "ttention" in name or "ross" in name])
def test_kernels_of_what_was_recognised_agree_with_jax(name: str) -> None:
    function, specs, composite = FORMS[name]
    found = raised(pcp.from_jax(function, *specs))
    (site,) = [s for s in kernels.sites_of(found, "cpu") if s.family == composite]
    random = np.random.default_rng(0)
    arrays = [
        random.normal(size=s.shape).astype(np.float32)
        if s.dtype == jnp.float32
        else random.integers(0, 2 if s.dtype == bool else 5, s.shape).astype(s.dtype)
        for s in specs
    ]
    expected = np.asarray(function(*arrays))
    exact = [n for n in site.kernels if kernels.kernel_named(n).effect == "reassociating"]
    assert exact
    for kernel in exact:
        program = kernels.apply_kernels(found, {site.key: kernels.kernel_named(kernel)})
        np.testing.assert_allclose(
            np.asarray(pcp.plan(program, cache=False).run(*arrays)), expected, rtol=2e-5, atol=1e-6
        )
